"""The nearest vectors: what the definition says, whatever the blocks; the graph finds nearly all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polyseme.errors import ModelError
from polyseme.word_senses.nearest_neighbors import Floats, Graph, nearest, unit


def drawn(n: int, width: int, seed: int, *, n_centres: int = 0) -> Floats:
    """Random unit vectors, around some centers as those of words lie, or anywhere."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, width))
    if n_centres:
        vectors = 0.6 * vectors + rng.standard_normal((n_centres, width))[rng.integers(n_centres, size=n)]
    return unit(vectors)


def by_definition(vectors: Floats, query: Floats, top: int, allowed: NDArray[np.bool_]) -> list[int]:
    cosines = (vectors @ query).tolist()
    rows = [row for row in range(len(vectors)) if allowed[row]]
    return sorted(rows, key=lambda row: (-cosines[row], row))[:top]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 17), st.integers(0, 1000), st.data())
def test_the_nearest_are_those_of_the_definition(n: int, top: int, block: int, seed: int, data: st.DataObject) -> None:
    vectors = np.round(drawn(n, 3, seed), 1)  # so that many are equally near
    query = drawn(1, 3, seed + 1)[0]
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    found = nearest(vectors, query, top, allowed, block=block)
    expected = by_definition(vectors, query, top, allowed)
    np.testing.assert_allclose(found.cosines, (vectors @ query)[expected], atol=1e-6)
    assert set(found.rows.tolist()) <= set(np.flatnonzero(allowed).tolist())
    assert len(set(found.rows.tolist())) == len(expected)


def test_without_their_mean_cosines_are_those_of_what_is_left() -> None:
    vectors, query = drawn(50, 8, seed=1), drawn(1, 8, seed=2)[0]
    mean = vectors.mean(axis=0)
    near = nearest(vectors, query, 50, mean=mean, block=7)
    expected = unit(vectors - mean) @ unit(query - mean)
    np.testing.assert_allclose(near.cosines, expected[near.rows], atol=1e-5)
    assert (np.diff(near.cosines) <= 0).all()


def test_of_equally_near_vectors_the_earlier_goes_first() -> None:
    vectors = unit(np.ones((10, 2)))
    assert nearest(vectors, vectors[0], 4, block=3).rows.tolist() == [0, 1, 2, 3]


def test_vectors_get_the_length_1_and_those_of_zeros_stay() -> None:
    assert unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]


def test_vectors_that_have_run_over_are_refused() -> None:
    with pytest.raises(ModelError, match=r"not finite.*--dtype fp32"):
        unit(np.array([[1.0, np.inf]]))


def test_the_graph_finds_nearly_all_of_the_nearest_with_their_true_cosines() -> None:
    pytest.importorskip("usearch")
    vectors = drawn(4000, 64, seed=3, n_centres=150)
    graph = Graph.build(vectors, block=1500)
    others = np.arange(len(vectors)) % 3 > 0
    shares = []
    for query in drawn(60, 64, seed=3, n_centres=150):
        for allowed in (None, others):
            found = graph.nearest(vectors, query, 10, allowed)
            exact = nearest(vectors, query, 10, allowed)
            assert len(found.rows) == 10
            assert allowed is None or bool(allowed[found.rows].all())
            np.testing.assert_allclose(found.cosines, vectors[found.rows] @ query, atol=1e-6)
            shares.append(len(set(found.rows.tolist()) & set(exact.rows.tolist())) / 10)
    assert np.mean(shares) >= 0.97


def test_a_graph_gives_all_there_are_where_few_are_allowed() -> None:
    pytest.importorskip("usearch")
    vectors = drawn(500, 16, seed=4)
    allowed = np.zeros(500, dtype=bool)
    allowed[[7, 300]] = True
    assert set(Graph.build(vectors).nearest(vectors, vectors[7], 10, allowed).rows.tolist()) == {7, 300}
