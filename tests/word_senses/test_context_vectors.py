"""The vector of a use with the words around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.word_senses.context_vectors import context_positions, with_context
from polyseme.word_senses.nearest_neighbors import unit


def drawn(n: int) -> Any:
    return np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)


@given(st.integers(1, 12), st.integers(0, 5), st.data())
def test_half_of_it_is_the_mean_of_the_words_within_reach(n: int, reach: int, data: st.DataObject) -> None:
    vectors, at = drawn(n), data.draw(st.integers(0, n - 1))
    units = unit(vectors)
    around = [units[each] for each in range(n) if each != at and abs(each - at) <= reach]
    expected = units[at] + unit(np.mean(around, axis=0)) if around else units[at]
    np.testing.assert_allclose(with_context(vectors, [at], reach)[0], unit(expected), atol=1e-5)


@given(st.lists(st.integers(0, 19), min_size=1, max_size=4, unique=True), st.integers(0, 6))
def test_the_positions_within_reach_are_enough(positions: list[int], reach: int) -> None:
    vectors = drawn(20)
    rows = context_positions(positions, 20, reach)
    assert set(positions) <= set(rows)
    np.testing.assert_allclose(
        with_context(vectors[rows], positions, reach, rows), with_context(vectors, positions, reach), atol=1e-6
    )


def test_uses_of_one_form_are_told_apart_by_what_is_around_them() -> None:
    """The word has one vector, and its neighbors are of two kinds."""
    word, kinds = np.ones(6), np.eye(6)[:2]
    texts = [np.stack([word, kinds[number % 2], word, kinds[number % 2]]) for number in range(4)]
    alone, mixed = (np.concatenate([with_context(text, [2], reach) for text in texts]) for reach in (0, 1))
    assert (alone @ alone.T).min() == pytest.approx(1, abs=1e-6)
    cosines = mixed @ mixed.T
    assert cosines[0, 2] == pytest.approx(1, abs=1e-6)
    assert cosines[0, 1] < 0.9
