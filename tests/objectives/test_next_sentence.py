"""Masked pieces with the next sentence or the order of sentences: the losses of the references, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from objectives.rows import bundle_for, rows_for, some_rows, tensors, told, total
from polyseme.bundle import named_tensors, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.packed_rows import Packed
from polyseme.corpus.sentence_pair_rows import SentencePairs
from polyseme.corpus.whole_sentence_rows import WholeSentences
from polyseme.errors import OptionError
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective_table import check_needs, objective_from
from references import assert_close, make_pair
from tiny_models import tiny_config, tiny_tokenizer

OBJECTIVE = told(Masked(next="nsp"))
BERT = {
    "encoder.embeddings.segments.weight": "bert.embeddings.token_type_embeddings.weight",
    "encoder.embeddings.positions.table.weight": "bert.embeddings.position_embeddings.weight",
    "pooled.dense.weight": "bert.pooler.dense.weight",
    "next.dense.weight": "cls.seq_relationship.weight",
    "next.dense.bias": "cls.seq_relationship.bias",
    "output.dense.weight": "cls.predictions.transform.dense.weight",
}
ALBERT = {
    "encoder.embeddings.segments.weight": "albert.embeddings.token_type_embeddings.weight",
    "encoder.embeddings.positions.table.weight": "albert.embeddings.position_embeddings.weight",
    "pooled.dense.weight": "albert.pooler.weight",
    "next.dense.weight": "sop_classifier.classifier.weight",
    "next.dense.bias": "sop_classifier.classifier.bias",
    "output.dense.weight": "predictions.dense.weight",
}


def one_by_one(arrays: dict[str, Tensor], label: str) -> dict[str, Tensor]:
    """Every pair in a row of its own, as the references take them."""
    targets = torch.full(arrays["pieces"].shape, -100)
    real = arrays["weights"] > 0
    at = torch.arange(len(targets))[:, None].expand_as(real)
    targets[at[real], arrays["places"][real].long()] = arrays["targets"][real].long()
    found: dict[str, list[Tensor]] = {"input_ids": [], "token_type_ids": [], "labels": [], "attention_mask": []}
    followed = []
    for row, label_of_pairs in enumerate(arrays["next_labels"]):
        for number, value in enumerate(label_of_pairs):
            if arrays["next_weights"][row, number]:
                places = torch.arange(arrays["pieces"].shape[1])
                here = places < arrays["lengths"][row]
                if "documents" in arrays:
                    here = arrays["documents"][row] == number
                for name, values in (("input_ids", arrays["pieces"]), ("token_type_ids", arrays["segments"])):
                    found[name].append(values[row][here].long())
                found["labels"].append(targets[row][here])
                found["attention_mask"].append(torch.ones(int(here.sum()), dtype=torch.long))
                followed.append(value.long())
    padding = {"labels": -100}
    batch = {
        name: torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding.get(name, 0))
        for name, rows in found.items()
    }
    return {**batch, label: torch.stack(followed)}


@pytest.mark.parametrize(
    ("family", "architecture", "label", "parameters", "settings"),
    [
        ("bert", "BertForPreTraining", "next_sentence_label", BERT, {"next": "nsp"}),
        ("albert", "AlbertForPreTraining", "sentence_order_label", ALBERT, {"next": "sop"}),
        ("bert", "BertForPreTraining", "next_sentence_label", BERT, {"next": "nsp", "layout": "sentence-pair"}),
        ("albert", "AlbertForPreTraining", "sentence_order_label", ALBERT, {"next": "sop", "layout": "sentence-pair"}),
    ],
)
def test_losses_and_gradients_equal_the_reference(
    family: str, architecture: str, label: str, parameters: dict[str, str], settings: dict[str, Any]
) -> None:
    """Over ragged pairs, one in a row or several, in float64; the gradients of every parameter too."""
    objective = told(Masked(**settings))
    pair = make_pair(FAMILIES[family], architecture, tiny_config(family, n_pieces=tiny_config("bert").n_pieces))
    example = objective.corrupt(rows_for(objective, n_rows=7, length=30))
    arrays = tensors(example)
    assert len(set(arrays["lengths"].tolist())) > 2
    theirs = pair.reference(**one_by_one(arrays, label)).loss
    nets = objective.nets(pair.ours)
    ours = total(objective, objective.loss(nets, arrays).parts, example.counts)
    assert_close(ours, theirs, 1e-10)
    ours.backward()
    theirs.backward()
    expected = {name: each.grad for name, each in pair.reference.named_parameters()}
    largest = max(float(each.abs().max()) for each in expected.values())
    found = {name: each.grad for name, each in nets.named_parameters()}
    for name, theirs_name in parameters.items():
        assert_close(found[name], expected[theirs_name], 1e-10, largest)
    ours_squared = sum(float((each**2).sum()) for each in found.values())
    assert ours_squared == pytest.approx(sum(float((each**2).sum()) for each in expected.values()), rel=1e-10)


@pytest.mark.parametrize("settings", [{"next": "nsp"}, {"next": "sop", "layout": "sentence-pair"}])
def test_padding_and_specials_are_never_targets_and_every_pair_has_a_label(settings: dict[str, Any]) -> None:
    objective = told(Masked(**settings))
    rows = rows_for(objective, n_rows=50)
    example = objective.corrupt(rows)
    real = example.arrays["weights"] > 0
    assert not rows.special[real.nonzero()[0], example.arrays["places"][real]].any()
    assert rows.next_labels is not None
    assert example.counts["next"] == (rows.next_labels >= 0).sum() >= 50
    assert objective.weights == {"masked": 1.0, "next": 1.0}


def test_the_result_has_the_outputs_of_bert() -> None:
    nets = OBJECTIVE.nets(bundle_for(OBJECTIVE))
    bundle = OBJECTIVE.result(nets)["model"]
    assert set(bundle.outputs) == {"masked", "pooled", "next"}
    assert any(name.startswith("outputs.next") for name in named_tensors(bundle))


@pytest.mark.parametrize(
    ("settings", "layout"),
    [
        ({}, Packed()),
        ({"layout": "full-sentences"}, WholeSentences()),
        ({"layout": "doc-sentences"}, WholeSentences(across_documents=False)),
        ({"layout": "segment-pair"}, SentencePairs()),
        ({"next": "nsp"}, SentencePairs()),
        ({"next": "sop", "static_copies": 2}, SentencePairs(others="swapped", same_cuts=True)),
        ({"layout": "sentence-pair"}, SentencePairs(unit="sentence")),
        ({"next": "sop", "layout": "sentence-pair"}, SentencePairs(unit="sentence", others="swapped")),
    ],
)
def test_settings_decide_the_rows(settings: dict[str, Any], layout: Any) -> None:
    needs = objective_from("masked", settings).needs
    assert needs.layout == layout
    assert ("next" in needs.outputs) == ("next" in settings)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match=r"next must be nsp .next sentence., sop .*Got 'order'"):
        Masked(next="order")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"no layout 'sentence-pairs'. Did you mean 'sentence-pair'"):
        Masked(layout="sentence-pairs")  # type: ignore[arg-type]
    with pytest.raises(
        OptionError, match=r"next=sop.*'doc-sentences' are of one segment.*segment-pair or sentence-pair"
    ):
        Masked(next="sop", layout="doc-sentences")
    with pytest.raises(OptionError, match="'causal' has no setting 'layout'"):
        objective_from("causal", {"layout": "doc-sentences"})
    for which in ("nsp", "sop"):
        bundle = new_bundle(FAMILIES["roberta"], tiny_config("roberta"), ["masked"])
        with pytest.raises(OptionError, match=r"needs the output 'next'.*The family 'roberta' has"):
            check_needs(told(Masked(next=which)), bundle, tiny_tokenizer("roberta"))  # type: ignore[arg-type]
    one = new_bundle(FAMILIES["bert"], tiny_config("bert", n_segments=1), ["masked"], tiny_tokenizer("bert"))
    with pytest.raises(OptionError, match=r"Rows of pairs have 2 segments.*the model has 1 .n_segments."):
        check_needs(told(Masked(layout="segment-pair")), one, tiny_tokenizer("bert"))
    with pytest.raises(OptionError, match=r"sees both sides of a piece, and this one .gpt2. sees only"):
        check_needs(OBJECTIVE, new_bundle(FAMILIES["gpt2"], tiny_config("gpt2"), ["causal"]), tiny_tokenizer("gpt2"))
    with pytest.raises(ValueError, match="rows that tell whether"):
        OBJECTIVE.corrupt(some_rows())
