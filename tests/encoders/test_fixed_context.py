"""The neural probabilistic language model equals the equations of Bengio et al. 2003; its memory; what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import polyseme
from conformance.cases import redrawn
from perturbation import drawing, who_sees_whom
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.nnlm import FAMILY
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.fixed_context import FixedContextConfig
from polyseme.errors import ModelError
from polyseme.objectives.streams import Streamed
from polyseme.parts.masks import Causal
from polyseme.text.documents import string_to_document
from polyseme.types import Batch
from references import assert_close, ragged_batch, real
from tiny_models import tiny_model

PLAIN = FixedContextConfig(n_pieces=29, token_width=6, width=7)
CONFIGS = {
    "as published": PLAIN,
    "direct": PLAIN.replace(direct=True),
    "tied": PLAIN.replace(width=6, order=4),
    "bigrams": PLAIN.replace(order=2, direct=True),
    "long": PLAIN.replace(order=9),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def model_of(config: FixedContextConfig) -> Bundle:
    bundle = new_bundle(FAMILY, config, ["causal"])
    redrawn(bundle)  # type: ignore[arg-type]
    return bundle.double()


def by_the_paper(bundle: Bundle, pieces: list[int]) -> Tensor:
    """[T, V]: log-probabilities of the word after each one, word by word, as the paper writes them.

    x is the concatenation of the last n - 1 vectors, the nearest first, with zeros where there is no word yet;
    y = b + W x + U tanh(d + H x), of which W is there with direct connections only.
    """
    config: Any = bundle.config
    c, hidden = bundle.encoder.tokens.table, bundle.encoder.hidden  # type: ignore[union-attr]
    output: Any = bundle.outputs["causal"]
    u, w = output.table[:, : config.width], output.table[:, config.width :]
    rows = []
    for place in range(len(pieces)):
        context = [pieces[place - back] if place >= back else None for back in range(config.order - 1)]
        x = torch.cat([torch.zeros_like(c[0]) if word is None else c[word] for word in context])
        y = output.bias + u @ torch.tanh(hidden.bias + hidden.weight @ x)
        if config.direct:
            y = y + w @ x
        rows.append(y - y.exp().sum().log())
    return torch.stack(rows)


@each_config
def test_log_probabilities_and_gradients_are_those_of_the_equations(config: FixedContextConfig) -> None:
    bundle = model_of(config)
    batch = ragged_batch(config, lengths=(11, 1, 8))
    assert batch.lengths is not None
    targets = torch.arange(20) * 7 % config.n_pieces
    states = bundle.encoder(batch)
    output: Any = bundle.outputs["causal"]
    found = output.log_probs(states[-1][real(batch)])
    loss = output.loss(states[-1][real(batch)], targets)
    rows = [row[:n].tolist() for row, n in zip(batch.pieces, batch.lengths.tolist(), strict=True)]
    expected = torch.cat([by_the_paper(bundle, row) for row in rows])
    assert_close(found, expected, 1e-12)
    assert_close(loss, -expected[torch.arange(20), targets], 1e-12)
    parameters = list(bundle.parameters())
    ours = torch.autograd.grad(loss.sum(), parameters)
    theirs = torch.autograd.grad(-expected[torch.arange(20), targets].sum(), parameters)
    largest = max(float(each.abs().max()) for each in theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, 1e-12, largest)
    shared = config.width == config.token_width and not config.direct
    assert (output.table is bundle.encoder.piece_table()) == shared
    assert_close(states[0][real(batch)], bundle.encoder.tokens.table[batch.pieces[real(batch)]], 1e-15)  # type: ignore[union-attr, index]


@pytest.mark.parametrize("order", [2, 4])
def test_a_piece_sees_the_words_of_its_context_and_no_other(order: int) -> None:
    encoder = redrawn(build_encoder(PLAIN.replace(order=order)), torch.float64)
    pieces = ragged_batch(PLAIN, lengths=(6,)).pieces
    seen = drawing(who_sees_whom(lambda rows: encoder(Batch(rows))[1], pieces, PLAIN.n_pieces))
    assert (
        seen
        == {
            2: ["x.....", ".x....", "..x...", "...x..", "....x.", ".....x"],
            4: ["x.....", "xx....", "xxx...", ".xxx..", "..xxx.", "...xxx"],
        }[order]
    )


@each_config
@pytest.mark.parametrize("parts", [[5, 4], [1] * 9, [2, 0, 1, 6]], ids=str)
def test_parts_with_memory_equal_one_pass(config: FixedContextConfig, parts: list[int]) -> None:
    encoder = redrawn(build_encoder(config), torch.float64)
    pieces = ragged_batch(config, lengths=(9, 9, 9)).pieces
    memory = encoder.new_memory(3)
    states = []
    for part in pieces.split(parts, dim=1):
        read = encoder(Batch(part), memory=memory)
        states.append(read[-1])
        memory = read.memory
    assert_close(torch.cat(states, dim=1), encoder(Batch(pieces))[-1], 1e-12)
    assert memory.lengths.tolist() == [9, 9, 9]
    assert memory.tensors()["pieces"].shape == (3, config.order - 2)


def test_memory_stops_at_each_row_s_length() -> None:
    encoder = redrawn(build_encoder(PLAIN), torch.float64)
    batch = ragged_batch(PLAIN, lengths=(6, 2, 4))
    assert batch.lengths is not None
    step = Batch(torch.tensor([[7], [8], [9]]))
    found = encoder(step, memory=encoder(batch, memory=encoder.new_memory(3)).memory)
    for row, length in enumerate(batch.lengths.tolist()):
        whole = torch.cat([batch.pieces[row : row + 1, :length], step.pieces[row : row + 1]], dim=1)
        assert_close(found[-1][row, 0], encoder(Batch(whole))[-1][0, -1], 1e-12)


def test_streams_have_the_gradient_of_the_whole_text() -> None:
    """The memory is words, not states: nothing is cut off where a row begins, unlike in a recurrent network."""
    bundle = model_of(PLAIN)
    objective = Streamed()
    nets = objective.nets(bundle)
    pieces = ragged_batch(PLAIN, lengths=(13, 13)).pieces
    whole = objective.loss(nets, {"pieces": pieces}, nets.new_memory(2)).parts["causal"]  # type: ignore[operator]
    memory, parts = nets.new_memory(2), []  # type: ignore[operator]
    for begin in (0, 4, 8):
        loss = objective.loss(nets, {"pieces": pieces[:, begin : begin + 5]}, memory)
        parts.append(loss.parts["causal"])
        memory = loss.memory
    assert_close(sum(parts), whole, 1e-12)  # type: ignore[arg-type]
    table = bundle.encoder.piece_table()
    assert table is not None
    for one, other in zip(
        torch.autograd.grad(sum(parts), [table]),
        torch.autograd.grad(whole, [table]),
        strict=True,  # type: ignore[arg-type]
    ):
        assert_close(one, other, 1e-12)


@pytest.mark.parametrize("changes", [{}, {"direct": True}, {"width": 12}, {"output_cutoffs": (9, 19)}], ids=str)
def test_a_saved_model_scores_alike(changes: dict[str, Any], tmp_path: Path) -> None:
    """With the table of words as the output's, with direct connections, without both, with an adaptive softmax."""
    model = tiny_model("nnlm", **changes)
    model.save(tmp_path / "model")
    back = polyseme.load(tmp_path / "model")
    assert back.bundle.config == model.bundle.config
    assert {name for name, _ in back.bundle.named_parameters()} == {n for n, _ in model.bundle.named_parameters()}
    [ours], [theirs] = (each.score(["The vase broke. Dawn broke the law."]) for each in (model, back))
    assert ours.totals.log_prob == theirs.totals.log_prob


def test_windows_of_a_long_text_change_nothing() -> None:
    """They overlap by more than a context."""
    [whole], [cut] = (
        tiny_model("nnlm", **changes).embed([["broke", "law", "the", "crane"] * 9])
        for changes in ({}, {"max_positions": 10})
    )
    assert_close(torch.from_numpy(cut.vectors), torch.from_numpy(whole.vectors), 1e-5)


def test_word_vectors_come_out_as_a_file(tmp_path: Path) -> None:
    """Layer 0 of every word is its row of C, whatever it stands beside."""
    model = tiny_model("nnlm", direct=True)
    text = tmp_path / "text.txt"
    text.write_text("The vase broke . Dawn broke . The law broke .\n", encoding="utf-8")
    polyseme.convert_model(model=model, output=tmp_path / "words.vec", to="word2vec", source=text, layer=0, min_count=1)
    vectors = polyseme.load(tmp_path / "words.vec")
    table: Any = model.bundle.encoder.piece_table()
    for word in ("broke", "law"):
        [row] = model.bundle.tokenizer.encode(string_to_document(word)).ids
        [found] = vectors.embed([word])
        torch.testing.assert_close(torch.from_numpy(found.vectors[0]), table[row].detach(), rtol=0, atol=1e-6)
    assert [layer.shape[1] for layer in model.pieces("law").states] == [16, 80]
    result = polyseme.pieces("law", model=model, output=tmp_path / "law.npz")
    assert repr(result).startswith(f"{len(result.pieces)} piece")
    assert np.load(tmp_path / "law.npz")["states_1"].shape[1] == 80


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": 0}, r"'order'.*from 2 on.*Got 0.*predicted from order - 1 words"),
        ({"order": 1}, r"'order'.*Got 1"),
        ({"order": 2.5}, r"'order'.*whole number"),
        ({"width": 0}, r"'width'.*from 1 on"),
        ({"direct": "yes"}, r"'direct'.*true or false"),
        ({"dropout_rate": 1.0}, r"'dropout_rate'.*below 1"),
        ({"memory": "cache"}, r"memory 'state' or 'none'. Got 'cache'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        PLAIN.replace(**changes)


def test_what_it_cannot_read_is_refused() -> None:
    encoder = build_encoder(PLAIN)
    pieces = torch.tensor([[3, 4]])
    with pytest.raises(ModelError, match="The batch has a mask"):
        encoder(Batch(pieces, mask=Causal()))
    with pytest.raises(ModelError, match="memory is of 2 rows and the batch of 1"):
        encoder(Batch(pieces), memory=encoder.new_memory(2))
    with pytest.raises(ModelError, match="memory 'none' has none to make"):
        build_encoder(PLAIN.replace(memory="none")).new_memory(1)
