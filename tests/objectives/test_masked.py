"""Masking: rates and shares as asked for, what is static and what is not, and the loss of the reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from objectives.rows import bundle_for, some_of, some_rows, tensors, told
from polyseme.convert.families import FAMILIES
from polyseme.errors import ModelError, OptionError
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective_table import objective_from
from polyseme.types import Example
from references import assert_close, make_pair
from tiny_models import tiny_config, tiny_tokenizer

MANY = some_rows(n_rows=3000, length=32)
UNITS = ["piece", "word", "span"]
BERT = tiny_tokenizer("bert")
MASK = BERT.specials["mask"]


def chosen_in(example: Example) -> tuple[Any, Any]:
    """The rows and places that are targets."""
    real = example.arrays["weights"] > 0
    return np.nonzero(real)[0], example.arrays["places"][real]


# --- rates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rate", [0.15, 0.4, 1.0])
def test_the_rate_is_as_asked_for_and_no_special_piece_is_chosen(rate: float, unit: str) -> None:
    example = told(Masked(mask_rate=rate, unit=unit)).corrupt(MANY)
    at, places = chosen_in(example)
    assert not MANY.special[at, places].any()
    assert example.counts == {"masked": len(places)}
    wanted = np.rint(rate * (~MANY.special).sum(axis=1)).sum()  # a row has a whole number of targets
    assert (1.0 if unit == "piece" else 0.97) * wanted <= len(places) <= wanted  # words that do not fit are passed over
    assert (example.arrays["targets"][example.arrays["weights"] > 0] == MANY.pieces[at, places]).all()
    assert example.arrays["weights"].shape == (3000, round(32 * rate))
    assert set(np.unique(example.arrays["weights"])) <= {0.0, 1.0}
    for row in range(50):
        its = places[at == row]
        assert (np.diff(its) > 0).all()


@pytest.mark.parametrize("unit", UNITS)
def test_the_rate_falls_over_a_run_in_slots_of_one_number(unit: str) -> None:
    objective = told(Masked(mask_rate=0.4, final_mask_rate=0.15, unit=unit))
    n_allowed = (~MANY.special).sum(axis=1)
    for progress, rate in ((0.0, 0.4), (0.5, (0.4 + 0.15) / 2), (1.0, 0.15)):
        example = objective.corrupt(dataclasses.replace(MANY, progress=progress))
        wanted = np.rint(rate * n_allowed).sum()
        assert (1.0 if unit == "piece" else 0.95) * wanted <= example.counts["masked"] <= wanted
        assert example.arrays["places"].shape == (3000, round(32 * 0.4))
    assert objective.corrupt(MANY).counts["masked"] == example.counts["masked"]  # evaluated with the last rate


@pytest.mark.parametrize(("mask_share", "random_share"), [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.5, 0.3), (0.0, 0.0)])
@pytest.mark.parametrize("unit", UNITS)
def test_shares_of_masks_random_pieces_and_pieces_that_stay(unit: str, mask_share: float, random_share: float) -> None:
    example = told(Masked(mask_share=mask_share, random_share=random_share, unit=unit)).corrupt(MANY)
    at, places = chosen_in(example)
    before, after = MANY.pieces[at, places], example.arrays["pieces"][at, places]
    n = len(places)
    n_apart = n / 4 if unit == "span" else n  # pieces of a span are treated together
    bound = 5 * np.sqrt(0.25 / n_apart) + 1 / (BERT.n_pieces - 5)
    masked = after == MASK
    changed = (after != before) & ~masked
    assert abs(masked.mean() - mask_share) < bound
    assert abs(changed.mean() - random_share) < bound
    assert mask_share or not masked.any()
    assert random_share or not changed.any()
    assert not np.isin(after[changed], list(BERT.specials.values())).any()
    untouched = np.ones(MANY.pieces.shape, dtype=np.bool_)
    untouched[at, places] = False
    assert (example.arrays["pieces"] == MANY.pieces)[untouched].all()


def test_random_pieces_are_drawn_from_all_ordinary_ones_alike() -> None:
    example = told(Masked(mask_rate=0.5, mask_share=0.0, random_share=1.0)).corrupt(MANY)
    at, places = chosen_in(example)
    drawn = np.bincount(example.arrays["pieces"][at, places], minlength=BERT.n_pieces)
    specials = sorted(BERT.specials.values())
    assert not drawn[specials].any()
    drawn = np.delete(drawn, specials)
    expected = drawn.sum() / len(drawn)
    statistic = ((drawn - expected) ** 2 / expected).sum()
    freedom = len(drawn) - 1
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def test_the_pieces_of_a_span_are_treated_alike() -> None:
    example = told(Masked(unit="span", random_share=0.0, mask_share=0.5)).corrupt(MANY)
    at, places = chosen_in(example)
    masked = example.arrays["pieces"][at, places] == MASK
    inside = (at[1:] == at[:-1]) & (places[1:] == places[:-1] + 1) & ~MANY.starts[at[1:], places[1:]]
    inside &= ~MANY.special[at[1:], places[1:] - 1]  # a word goes on, so this is one span
    assert inside.sum() > 1000
    assert (masked[1:] == masked[:-1])[inside].all()
    words = told(Masked(unit="word", random_share=0.0, mask_share=0.5)).corrupt(MANY)
    at, places = chosen_in(words)
    masked = words.arrays["pieces"][at, places] == MASK
    inside = (at[1:] == at[:-1]) & (places[1:] == places[:-1] + 1) & ~MANY.starts[at[1:], places[1:]]
    assert 0.4 < (masked[1:] == masked[:-1])[inside].mean() < 0.6


# --- rows and keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [None, 3])
@pytest.mark.parametrize("unit", UNITS)
def test_a_row_is_corrupted_alike_in_any_company(unit: str, copies: int | None) -> None:
    rows = some_rows(n_rows=9)
    objective = told(Masked(unit=unit, static_copies=copies))
    together = objective.corrupt(rows)
    order = [4, 0, 8, 4]
    apart = objective.corrupt(some_of(rows, order))
    for name, array in together.arrays.items():
        assert (apart.arrays[name] == array[order]).all(), name
        assert apart.arrays[name].dtype == array.dtype


def test_dynamic_masks_differ_from_epoch_to_epoch() -> None:
    examples = [told(Masked()).corrupt(some_rows(epoch=epoch)).arrays["places"] for epoch in range(2)]
    assert (examples[0] != examples[1]).any(axis=1).all()


def test_static_masks_come_in_so_many_ways() -> None:
    objective = told(Masked(static_copies=3))
    seen: dict[int, set[bytes]] = {row: set() for row in range(6)}
    for epoch in range(60):
        rows = some_rows(epoch=epoch)
        example = objective.corrupt(rows)
        for row, ways in seen.items():
            ways.add(b"".join(example.arrays[name][row].tobytes() for name in ("pieces", "places")))
    assert {len(ways) for ways in seen.values()} == {3}
    first = [told(Masked(static_copies=1)).corrupt(some_rows(epoch=epoch)).arrays for epoch in (0, 7)]
    assert (first[0]["pieces"] == first[1]["pieces"]).all()
    assert len({tuple(places) for places in first[0]["places"].tolist()}) == 6
    assert objective.needs.layout.same_cuts
    assert not Masked().needs.layout.same_cuts


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mask_rate": 0.0}, "The mask_rate.* over 0 and up to 1. Got 0.0"),
        ({"mask_rate": 1.5}, "Got 1.5"),
        ({"final_mask_rate": 0.0}, "Got 0.0"),
        ({"mask_share": 0.8, "random_share": 0.3}, "Got mask_share 0.8 and random_share 0.3"),
        ({"random_share": -0.1}, "must be 0 to 1"),
        ({"unit": "sentence"}, "must be piece, word or span. Got 'sentence'"),
        ({"span_shape": 0.0}, "span_shape over 0"),
        ({"longest_span": 0}, "longest_span of at least 1"),
        ({"static_copies": 0}, "static_copies must be at least 1"),
        ({"rte": 0.2}, "'masked' has no setting 'rte'. Did you mean 'mask_rate'"),
        ({"mask_rate": "high"}, r"'mask_rate' of the objective 'masked' must be a number. Got 'high' \(str\)"),
        ({"known_vocabulary": None}, "has no setting 'known_vocabulary'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        objective_from("masked", settings)


def test_an_objective_must_know_its_vocabulary() -> None:
    with pytest.raises(OptionError, match=r"does not know its vocabulary yet\. Call for_tokenizer"):
        Masked().corrupt(some_rows())
    with pytest.raises(ModelError, match="no mask piece"):
        told(Masked(), "gpt2").corrupt(some_rows("gpt2"))


# --- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
def test_the_loss_equals_the_reference(unit: str) -> None:
    """Over corrupted rows, with the labels as the reference takes them, in float64; gradients too."""
    pair = make_pair(FAMILIES["bert"], "BertForMaskedLM", tiny_config("bert"))
    objective = told(Masked(unit=unit))
    example = objective.corrupt(some_rows())
    arrays = tensors(example)
    labels = torch.full(arrays["pieces"].shape, -100)
    real = arrays["weights"] > 0
    rows = torch.arange(len(labels))[:, None].expand_as(real)
    labels[rows[real], arrays["places"][real].long()] = arrays["targets"][real].long()
    theirs = pair.reference(input_ids=arrays["pieces"].long(), labels=labels).loss
    found = objective.loss(objective.nets(pair.ours), arrays)
    assert found.memory is None
    ours = found.parts["masked"] / example.counts["masked"]
    assert_close(ours, theirs, 1e-10)
    ours.backward()
    theirs.backward()
    table = pair.ours.encoder.piece_table()
    assert table is not None
    assert_close(table.grad, pair.reference.bert.embeddings.word_embeddings.weight.grad, 1e-10)


def test_only_targets_reach_the_vocabulary() -> None:
    objective = told(Masked())
    nets = objective.nets(bundle_for(objective))
    seen: list[int] = []
    nets.output.dense.register_forward_hook(lambda *args: seen.append(args[-1].shape[0]))
    nets(tensors(objective.corrupt(some_rows(n_rows=6, length=24))))
    assert seen == [6 * 4]
