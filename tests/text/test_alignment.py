from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polyseme.text.alignment import align, insert_missing

places = st.lists(st.integers(0, 30), max_size=24, unique=True).map(
    lambda ends: np.array(sorted(ends)[: len(ends) // 2 * 2], dtype=np.int64).reshape(-1, 2)
)
"""Stretches of a text that are in order, not empty, and do not overlap."""


@given(spans=places, offsets=places)
def test_a_word_has_the_pieces_that_share_a_character_with_it(spans: np.ndarray, offsets: np.ndarray) -> None:
    for (start, end), (first, last) in zip(offsets, align(spans, offsets), strict=True):
        touching = [k for k, span in enumerate(spans) if span[0] < end and span[1] > start]
        assert list(range(first, last + 1)) == touching


@given(spans=places, offsets=places)
def test_words_without_pieces_get_one_at_their_place(spans: np.ndarray, offsets: np.ndarray) -> None:
    before = align(spans, offsets)
    ids, new_spans, words = insert_missing(np.arange(len(spans)), spans, before, offsets, -1)
    assert ids[ids >= 0].tolist() == list(range(len(spans)))
    assert np.array_equal(new_spans[ids >= 0], spans)
    for offset, (old_first, old_last), (first, last) in zip(offsets, before, words, strict=True):
        own = ids[first : last + 1]
        if old_first > old_last:
            assert own.tolist() == [-1]
            assert np.array_equal(new_spans[first], offset)
        else:
            assert own[own >= 0].tolist() == list(range(old_first, old_last + 1))


def test_swapped_spans_stay_with_their_word() -> None:
    spans = np.array([[0, 2], [3, 4], [2, 3], [5, 6]])
    assert align(spans, np.array([[0, 4], [5, 6]])).tolist() == [[0, 2], [3, 3]]
