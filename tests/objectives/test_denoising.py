"""BART's five ways to spoil a text, each against its definition, and together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from objectives.rows import some_of, some_rows, told
from polyseme.corpus.random_keys import row_keys
from polyseme.errors import OptionError
from polyseme.objectives.denoising import (
    Denoising,
    Text,
    delete_pieces,
    infill_spans,
    mask_pieces,
    permute_sentences,
    poisson,
    rotate_texts,
    span_lengths,
)

MASK = -7
N, LENGTH = 400, 60
KEYS = row_keys(5, 0, np.arange(N))
NUMBERED = Text(np.broadcast_to(np.arange(LENGTH), (N, LENGTH)).copy(), np.full(N, LENGTH))
"""Rows whose pieces say where they stood."""


def rows_of(text: Text) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(text.pieces, text.lengths, strict=True)]


def test_masks_stand_where_pieces_stood() -> None:
    found = mask_pieces(NUMBERED, 0.15, MASK, KEYS)
    assert (found.lengths == LENGTH).all()
    assert ((found.pieces == MASK).sum(axis=1) == 9).all()
    assert (np.where(found.pieces == MASK, NUMBERED.pieces, found.pieces) == NUMBERED.pieces).all()
    assert (found.pieces == MASK).mean(axis=0) == pytest.approx(0.15, abs=0.08)


def test_deleted_pieces_are_gone_and_the_others_in_order() -> None:
    found = delete_pieces(NUMBERED, 0.2, KEYS)
    for row in rows_of(found):
        assert len(row) == 48
        assert row == sorted(row)
    kept = np.bincount(np.concatenate(rows_of(found)), minlength=LENGTH) / N
    assert kept == pytest.approx(0.8, abs=0.09)


def test_sentences_are_whole_in_any_order() -> None:
    sentences = np.zeros((N, LENGTH), np.bool_)
    sentences[:, [10, 25, 40]] = True
    parts = [list(range(*edges)) for edges in itertools.pairwise([0, 10, 25, 40, 60])]
    orders = {tuple(itertools.chain(*order)): number for number, order in enumerate(itertools.permutations(parts))}
    found = [orders[tuple(row)] for row in rows_of(permute_sentences(NUMBERED, sentences, KEYS))]
    counts = np.bincount(found, minlength=24)
    assert counts.min() > 3
    assert counts.max() < 40


def test_a_rotated_text_begins_anywhere() -> None:
    found = rows_of(rotate_texts(NUMBERED, KEYS))
    for row in found:
        assert row == [(row[0] + place) % LENGTH for place in range(LENGTH)]
    assert len({row[0] for row in found}) > 50


def test_infilling_has_one_mask_for_each_span() -> None:
    """The pieces that are gone are what the Poisson lengths come to; masks stand between those that stay."""
    found = infill_spans(NUMBERED, 0.3, 3.0, MASK, KEYS)
    lengths = span_lengths(np.full(N, 18), 3.0, KEYS)
    inserted = 0
    for row, spans in zip(rows_of(found), lengths, strict=True):
        spans = spans[spans >= 0].tolist()
        kept = [piece for piece in row if piece != MASK]
        assert kept == sorted(kept)
        assert LENGTH - len(kept) == 18 == sum(spans)
        assert row.count(MASK) == len(spans)
        at, sizes = 0, []  # how many pieces each run of masks stands for
        for is_mask, run in itertools.groupby([*row, LENGTH], lambda piece: piece == MASK):
            its = list(run)
            if not is_mask:
                sizes.append(its[0] - at)
                at = its[-1] + 1
        assert sum(sizes) == 18
        inserted += spans.count(0)
    assert inserted > N / 4
    gone = 1 - np.bincount([piece for row in rows_of(found) for piece in row if piece >= 0], minlength=LENGTH) / N
    assert gone[5:-5] == pytest.approx(0.3, abs=0.11)


def test_span_lengths_are_poisson_and_come_to_what_is_wanted() -> None:
    lengths = span_lengths(np.full(N, 300), 3.0, KEYS)
    assert (np.maximum(lengths, 0).sum(axis=1) == 300).all()
    first = lengths[:, :40].ravel()
    shares = np.bincount(first, minlength=6)[:6] / len(first)
    expected = [np.exp(-3) * 3**k / f for k, f in zip(range(6), (1, 1, 2, 6, 24, 120), strict=True)]
    assert shares == pytest.approx(expected, abs=0.01)
    assert poisson(np.random.default_rng(0).random(20_000), 0.4).mean() == pytest.approx(0.4, abs=0.02)
    for wanted in (0, 1, 2):
        few = span_lengths(np.full(N, wanted), 3.0, KEYS)
        assert ((few >= 0).sum(axis=1) <= wanted).all()
        assert (np.maximum(few, 0).sum(axis=1) == wanted).all()


@pytest.mark.parametrize("n_pieces", [1, 3, 18, 300])
def test_short_spans_come_to_what_is_wanted_too(n_pieces: int) -> None:
    """Few and short ones may be drawn, and a text still never grows."""
    keys = row_keys(7, 0, np.arange(20_000))
    lengths = span_lengths(np.full(len(keys), n_pieces), 1.0, keys)
    assert (np.maximum(lengths, 0).sum(axis=1) == n_pieces).all()
    assert ((lengths >= 0).sum(axis=1) <= n_pieces).all()


@pytest.mark.parametrize("mean_length", [0.5, 1e9, float("nan")])
def test_lengths_that_no_span_can_have_are_refused(mean_length: float) -> None:
    with pytest.raises(OptionError, match="The mean_length of spans must be from 1"):
        Denoising(mean_length=mean_length)


WAYS = {
    "permute": {"permute": True},
    "rotate": {"rotate": True},
    "infill": {"infill_rate": 0.3},
    "mask": {"mask_rate": 0.2},
    "delete": {"delete_rate": 0.2},
}
NOTHING = {"permute": False, "infill_rate": 0.0}


@pytest.mark.parametrize("ways", [way for n in (1, 2, 5) for way in itertools.combinations(WAYS, n)], ids="+".join)
def test_any_combination(ways: tuple[str, ...]) -> None:
    """The target is the row; the source is framed, of that length, and made of the row's pieces and masks."""
    settings = dict(NOTHING)
    for way in ways:
        settings |= WAYS[way]
    objective = told(Denoising(**settings))  # type: ignore[arg-type]
    specials = objective.vocabulary.specials
    rows = some_rows("bart", n_rows=12, length=40)
    example = objective.corrupt(rows)
    arrays = example.arrays
    assert np.array_equal(arrays["targets"], rows.pieces)
    assert arrays["pieces"].shape == rows.pieces.shape
    assert example.counts == {"denoising": rows.pieces.size}
    changed = 0
    for row, pieces, length in zip(rows.pieces, arrays["pieces"], arrays["lengths"], strict=True):
        assert (pieces[length:] == specials["pad"]).all()
        assert (pieces[0], pieces[length - 1]) == (specials["start"], specials["end"])
        text = pieces[1 : length - 1]
        ordinary = text[text != specials["mask"]]
        left = np.bincount(row[1:-1], minlength=objective.vocabulary.n_pieces)
        left -= np.bincount(ordinary, minlength=len(left))
        assert left.min() >= 0
        if "infill" not in ways and "delete" not in ways:
            assert length == 40
        assert (specials["mask"] in text) == ("infill" in ways or "mask" in ways)
        changed += not np.array_equal(pieces, row)
    assert changed >= 11


def test_a_row_is_spoilt_alike_in_any_batch() -> None:
    objective = told(Denoising(rotate=True, mask_rate=0.1, delete_rate=0.1))
    rows = some_rows("bart", n_rows=8)
    together = objective.corrupt(rows).arrays
    for which in ([3], [7, 0]):
        for name, array in objective.corrupt(some_of(rows, which)).arrays.items():
            assert np.array_equal(array, together[name][which])
    other = objective.corrupt(some_rows("bart", n_rows=8, epoch=1)).arrays
    assert not np.array_equal(other["pieces"], together["pieces"])


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(OptionError, match="Nothing would be done to the text"):
        Denoising(**NOTHING)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="The infill_rate of a text"):
        Denoising(infill_rate=1.0)
