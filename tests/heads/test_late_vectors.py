"""Vectors that come in late: between the layers of a BiLSTM (TagLM), or beside its output, by the equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from polyseme.errors import ModelError
from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.parts.recurrence import Reader
from polyseme.tasks.kinds import build_head

LATE, EARLY, CELLS = 5, 4, 3
LABELS = ("O", "B-x", "I-x")
LENGTHS = torch.tensor([6, 2, 4])
MASK = torch.arange(6)[None] < LENGTHS[:, None]


def head_of(late_at: str, n_layers: int, kind: str = "tag", **settings: Any) -> Any:
    torch.manual_seed(3)
    config = HeadConfig(
        kind=kind, labels=LABELS, width=LATE + EARLY, body="bilstm", inner_width=CELLS, n_layers=n_layers,
        late_width=LATE, late_at=late_at, dropout_rate=0.0, init_std=0.5, **settings,
    )  # fmt: skip
    return build_head(config).double().eval()


def as_torch(forwards: Reader, backwards: Reader) -> nn.LSTM:
    """PyTorch's own layer with these weights; the forget gate's constant goes into its bias."""
    lstm = nn.LSTM(forwards.input.shape[1], CELLS, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for reader, suffix in ((forwards, ""), (backwards, "_reverse")):
            getattr(lstm, f"weight_ih_l0{suffix}").copy_(reader.input)
            getattr(lstm, f"weight_hh_l0{suffix}").copy_(reader.recurrent)
            getattr(lstm, f"bias_ih_l0{suffix}").copy_(reader.bias)
            constant = torch.zeros(4 * CELLS)
            constant[CELLS : 2 * CELLS] = reader.forget_bias
            getattr(lstm, f"bias_hh_l0{suffix}").copy_(constant)
    return lstm


def read(lstm: nn.LSTM, words: Tensor) -> Tensor:
    packed = pack_padded_sequence(words, LENGTHS, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=words.shape[1])
    return states


@pytest.mark.parametrize(("late_at", "n_layers"), [("between", 2), ("between", 3), ("output", 1), ("output", 2)])
def test_a_tagger_is_that_of_the_equations(late_at: str, n_layers: int) -> None:
    """h₁ = BiLSTM₁(x), h₂ = BiLSTM₂([h₁; v]), scores W h₂ + b, in float64, with gradients of what is read."""
    head = head_of(late_at, n_layers)
    words = torch.randn(3, 6, LATE + EARLY, dtype=torch.float64, requires_grad=True)
    scores = head(Features(words=words, mask=MASK))

    theirs = words.detach().clone().requires_grad_()
    late, x = theirs.split([LATE, EARLY], dim=-1)
    reader = head.body.body.reader
    for number, (onwards, back) in enumerate(zip(reader.forwards, reader.backwards, strict=True)):
        if number == 1 and late_at == "between":
            x = torch.cat([x, late], dim=-1)
        x = read(as_torch(onwards, back), x)
    if late_at == "output":
        x = torch.cat([x, late], dim=-1)
    expected = x @ head.scores[-1].weight.T + head.scores[-1].bias
    torch.testing.assert_close(scores[MASK], expected[MASK], rtol=0, atol=1e-12)

    weight = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).view_as(scores) * MASK[..., None]
    (scores * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(words.grad, theirs.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("late_at", ["between", "output"])
def test_texts_are_classified_with_late_vectors_too(late_at: str) -> None:
    """States are read out in both directions, late vectors as they are."""
    head = head_of(late_at, 2, "classify", readout="last")
    words = torch.randn(3, 6, LATE + EARLY, dtype=torch.float64)
    states, _ = head.text.body(words, MASK)
    assert states.shape[-1] == 2 * CELLS + (LATE if late_at == "output" else 0)
    last = LENGTHS - 1
    rows = torch.arange(3)
    parts = [states[rows, last, :CELLS], states[:, 0, CELLS : 2 * CELLS], states[rows, last, 2 * CELLS :]]
    expected = head.text.scores(torch.cat(parts, dim=-1))
    torch.testing.assert_close(head(Features(words=words, mask=MASK)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_layers": 1}, r"Give it two layers \('n_layers'\)"),
        ({"body": "linear"}, "need a BiLSTM that reads others first"),
        ({"late_width": 9}, "9 of the 9 numbers of a word come in late"),
        ({"late_width": -1}, "must be a whole number from 0 on"),
        ({"late_at": "sideways"}, "There is no late_at 'sideways'"),
    ],
)
def test_heads_that_cannot_be_are_refused(changes: dict[str, Any], reason: str) -> None:
    settings = {"kind": "tag", "width": 9, "body": "bilstm", "n_layers": 2, "late_width": 5, "late_at": "between"}
    with pytest.raises(ModelError, match=reason):
        HeadConfig(**{**settings, **changes})
