"""Masked pieces and the next sentence together: the loss of the reference, and what must be refused."""

from __future__ import annotations

import pytest
import torch

from objectives.rows import bundle_for, rows_for, some_rows, tensors, told, total
from polyseme.bundle import named_tensors, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective_table import check_needs
from references import assert_close, make_pair
from tiny_models import tiny_config, tiny_tokenizer

OBJECTIVE = told(Masked(next="nsp"))


def test_the_loss_equals_the_reference() -> None:
    """Over ragged rows of two segments, in float64; the gradients of every parameter too."""
    pair = make_pair(FAMILIES["bert"], "BertForPreTraining", tiny_config("bert"))
    rows = rows_for(OBJECTIVE, n_rows=7)
    assert rows.lengths is not None
    assert len(set(rows.lengths.tolist())) > 2
    example = OBJECTIVE.corrupt(rows)
    arrays = tensors(example)
    labels = torch.full(arrays["pieces"].shape, -100)
    real = arrays["weights"] > 0
    at = torch.arange(len(labels))[:, None].expand_as(real)
    labels[at[real], arrays["places"][real].long()] = arrays["targets"][real].long()
    theirs = pair.reference(
        input_ids=arrays["pieces"].long(),
        attention_mask=(torch.arange(labels.shape[1])[None] < arrays["lengths"][:, None]).long(),
        token_type_ids=arrays["segments"].long(),
        labels=labels,
        next_sentence_label=arrays["next_labels"].long(),
    ).loss
    nets = OBJECTIVE.nets(pair.ours)
    ours = total(OBJECTIVE, OBJECTIVE.loss(nets, arrays).parts, example.counts)
    assert_close(ours, theirs, 1e-10)
    ours.backward()
    theirs.backward()
    expected = {name: each.grad for name, each in pair.reference.named_parameters()}
    largest = max(float(each.abs().max()) for each in expected.values())
    found = {name: each.grad for name, each in nets.named_parameters()}
    for name, gradient in (
        ("encoder.embeddings.pieces.weight", "bert.embeddings.word_embeddings.weight"),
        ("encoder.embeddings.segments.weight", "bert.embeddings.token_type_embeddings.weight"),
        ("encoder.embeddings.positions.table.weight", "bert.embeddings.position_embeddings.weight"),
        ("pooled.dense.weight", "bert.pooler.dense.weight"),
        ("next.dense.weight", "cls.seq_relationship.weight"),
        ("next.dense.bias", "cls.seq_relationship.bias"),
        ("output.dense.weight", "cls.predictions.transform.dense.weight"),
    ):
        assert_close(found[name], expected[gradient], 1e-10, largest)
    ours_squared = sum(float((each**2).sum()) for each in found.values())
    assert ours_squared == pytest.approx(sum(float((each**2).sum()) for each in expected.values()), rel=1e-10)


def test_padding_and_specials_are_never_targets_and_every_row_has_a_label() -> None:
    rows = rows_for(OBJECTIVE, n_rows=50)
    example = OBJECTIVE.corrupt(rows)
    real = example.arrays["weights"] > 0
    assert not rows.special[real.nonzero()[0], example.arrays["places"][real]].any()
    assert example.counts["next"] == 50
    assert OBJECTIVE.weights == {"masked": 1.0, "next": 1.0}


def test_the_result_has_the_outputs_of_bert() -> None:
    nets = OBJECTIVE.nets(bundle_for(OBJECTIVE))
    bundle = OBJECTIVE.result(nets)["model"]
    assert set(bundle.outputs) == {"masked", "pooled", "next"}
    assert any(name.startswith("outputs.next") for name in named_tensors(bundle))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match=r"The setting next must be nsp, or left out\. Got 'sop'"):
        Masked(next="sop")  # type: ignore[arg-type]
    bundle = new_bundle(FAMILIES["roberta"], tiny_config("roberta"), ["masked"])
    with pytest.raises(OptionError, match=r"needs the output 'next'.*The family 'roberta' has"):
        check_needs(OBJECTIVE, bundle, tiny_tokenizer("roberta"))
    with pytest.raises(ValueError, match="rows that tell whether"):
        OBJECTIVE.corrupt(some_rows())
