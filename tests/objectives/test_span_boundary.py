"""SpanBERT's boundary objective: which states are read, and the paper's equations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from objectives.rows import bundle_for, redrawn, some_rows, tensors, told, total
from polyseme.convert.families import FAMILIES
from polyseme.corpus.layout import RowOptions
from polyseme.errors import OptionError
from polyseme.model_folder import save_bundle
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective_table import objective_from
from polyseme.objectives.span_boundary import N_POSITIONS, boundary_arrays
from polyseme.objectives.target_selection import choose_spans, count_targets
from polyseme.types import Batch
from polyseme.verbs.corpus import build_corpus
from references import assert_close, make_pair
from tiny_models import tiny_config

SPANBERT = Masked(unit="span", boundary=True)


def test_boundaries_stand_on_both_sides_of_each_span() -> None:
    """Span by span: spans that lie side by side have boundaries of their own, and those at an edge have none."""
    rows = some_rows(n_rows=200, length=80)
    allowed = np.ones_like(rows.special)
    allowed[:, [57, 58]] = False  # and nothing at the edges
    chosen, group = choose_spans(allowed, rows.starts, count_targets(allowed, 0.5), rows.keys, shape=0.1, longest=15)
    width = int(chosen.sum(axis=1).max())
    places, real, spans = np.zeros((200, width), np.int64), np.zeros((200, width), bool), np.zeros((200, width), int)
    expected: dict[tuple[int, int], tuple[int, int, int]] = {}
    n_beside = 0
    for row in range(200):
        its = np.flatnonzero(chosen[row])
        places[row, : len(its)], real[row, : len(its)], spans[row, : len(its)] = its, True, group[row, its]
        for number in np.unique(group[row, its]):
            span = its[group[row, its] == number]
            n_beside += span[-1] + 1 in its
            if span[0] > 0 and span[-1] < 79:
                for place in span[:N_POSITIONS]:
                    expected[row, place] = (span[0] - 1, span[-1] + 1, place - span[0])
    assert n_beside > 100
    assert max(np.unique(each[each > 0], return_counts=True)[1].max() for each in spans) > N_POSITIONS
    assert max(position for *_, position in expected.values()) == N_POSITIONS - 1
    arrays = boundary_arrays(places, real, spans, 80)
    counts = arrays["boundary_weights"] > 0
    found = {
        (row, places[row, slot]): tuple(int(arrays[name][row, slot]) for name in ("left", "right", "span_positions"))
        for row, slot in zip(*np.nonzero(counts), strict=True)
    }
    assert found == expected


def test_in_framed_rows_every_target_has_boundaries() -> None:
    example = told(SPANBERT).corrupt(some_rows(n_rows=50, length=32))
    assert example.counts["masked"] == example.counts["boundary"] > 150
    assert SPANBERT.weights == {"masked": 1.0, "boundary": 1.0}
    assert SPANBERT.prediction_parts == ("masked",)


def test_the_loss_equals_the_paper_s_equations() -> None:
    """L = -log P(x|masked) - log P(x|boundaries), over BertForMaskedLM, in float64; gradients too."""
    objective = told(SPANBERT)
    pair = make_pair(FAMILIES["bert"], "BertForMaskedLM", tiny_config("bert"))
    nets: Any = objective.nets(pair.ours)
    table = pair.reference.bert.embeddings.word_embeddings.weight
    redrawn(nets.boundary, 0.3)
    nets.boundary.table.data.copy_(table)  # redrawn with the rest, since it is the encoder's
    rows = some_rows(n_rows=4)
    example = objective.corrupt(rows)
    arrays = tensors(example)
    parts = objective.loss(nets, arrays).parts
    found = total(objective, parts, example.counts)

    head = {name: each.detach().clone().requires_grad_() for name, each in nets.boundary.named_parameters()}
    read = arrays["pieces"].long()
    states = pair.reference.bert(input_ids=read).last_hidden_state
    logits = pair.reference(input_ids=read).logits
    losses = []
    for row in range(4):
        targets = arrays["places"][row][arrays["weights"][row] > 0].tolist()
        for slot, place in enumerate(targets):
            piece = int(rows.pieces[row, place])
            left, right, i = (int(arrays[name][row, slot]) for name in ("left", "right", "span_positions"))
            assert left < place < right
            assert i == place - left - 1
            x = torch.cat([states[row, left], states[row, right], head["positions.weight"][i]])
            h = F.layer_norm(
                F.gelu(head["first.weight"] @ x + head["first.bias"]),
                (32,), head["first_norm.weight"], head["first_norm.bias"], 1e-12,
            )  # fmt: skip
            y = F.layer_norm(
                F.gelu(head["second.weight"] @ h + head["second.bias"]),
                (32,), head["second_norm.weight"], head["second_norm.bias"], 1e-12,
            )  # fmt: skip
            boundary = (table @ y + head["bias"]).log_softmax(-1)[piece]
            losses.append(-logits[row, place].log_softmax(-1)[piece] - boundary)
    expected = torch.stack(losses).mean()
    assert_close(found, expected, 1e-10)

    references = {
        **{f"boundary.{name}": each for name, each in head.items() if name != "table"},
        "encoder.embeddings.pieces.weight": table,
        "encoder.layers.0.feed_forward.up.weight": pair.reference.bert.encoder.layer[0].intermediate.dense.weight,
        "output.dense.weight": pair.reference.cls.predictions.transform.dense.weight,
    }
    gradients = torch.autograd.grad(expected, list(references.values()))
    trained = dict(nets.named_parameters())
    ours = torch.autograd.grad(found, [trained[name] for name in references])
    largest = max(float(each.abs().max()) for each in gradients)
    for one, other in zip(ours, gradients, strict=True):
        assert_close(one, other, 1e-10, largest)


def test_the_model_is_a_bert_and_the_boundary_output_is_left_behind(tmp_path: Path) -> None:
    objective = told(SPANBERT)
    nets: Any = objective.nets(bundle_for(objective))
    assert nets.boundary.table is nets.encoder.piece_table()
    [bundle] = objective.result(nets).values()
    assert list(bundle.outputs) == ["masked"]
    save_bundle(bundle, tmp_path / "model")
    theirs, loading = transformers.BertForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    pieces = torch.from_numpy(some_rows().pieces)
    with torch.no_grad():
        states = nets.eval().encoder(Batch(pieces), layers=[-1])[-1]
        assert_close(nets.output.logits(states), theirs.eval()(input_ids=pieces).logits, 1e-4)


def test_words_are_those_of_the_text_also_where_pieces_are_characters(tmp_path: Path) -> None:
    """Tokenizers without marks of words still have spans of whole words."""
    text = tmp_path / "text.txt"
    words = "dawn broke a vase of thin glass at the old house by the sea"
    text.write_text("\n\n".join(f"{words[n:]} {words[:n]}" for n in range(30)))
    corpus = build_corpus(
        text, output=tmp_path / "corpus", tokenizer="characters", frame="bert", vocab_size=60, held_out=0.1
    )
    objective = SPANBERT.for_tokenizer(corpus.tokenizer)
    rows = objective.needs.layout.rows(corpus, RowOptions(length=128)).rows(np.arange(4))
    assert 0.1 < rows.starts[~rows.special].mean() < 0.4
    example = objective.corrupt(rows)
    arrays = example.arrays
    for row, slot in zip(*np.nonzero(arrays["boundary_weights"]), strict=True):
        left, right = arrays["left"][row, slot], arrays["right"][row, slot]
        for place in (left + 1, right):
            assert rows.starts[row, place] or rows.special[row, place] or rows.special[row, place - 1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"boundary": True}, "boundary objective is of spans, and the unit of masking is 'piece'. Choose unit=span"),
        ({"unit": "word", "boundary": True}, "the unit of masking is 'word'"),
        ({"unit": "span", "boundry": True}, "has no setting 'boundry'. Did you mean 'boundary'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        objective_from("masked", settings)
