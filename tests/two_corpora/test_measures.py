"""APD, PRT and JSD against langchange's numbers and against their definitions; the test and its adjustment."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import false_discovery_control

from polyseme.two_corpora.measures import DrawMeasures, WordUsesVectors, divergence
from polyseme.two_corpora.significance import (
    LEVEL,
    Exchange,
    adjusted,
    bootstrapped,
    interval,
    observed,
    p_value,
    permutations_needed,
    permuted,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "two_corpora" / "langchange.json").read_text())["cases"]


def drawn(
    seed: int, n_first: int, n_second: int, width: int, n_senses: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As in the golden folder's README: vectors of unequal lengths, and a sense of each use."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((n_first, width)) * rng.uniform(0.5, 2, (n_first, 1)) + 0.5
    second = rng.standard_normal((n_second, width)) + rng.standard_normal(width)
    return first, second, rng.integers(0, n_senses, n_first), rng.integers(0, max(n_senses - 1, 1), n_second)


def measured(first: np.ndarray, second: np.ndarray, senses: np.ndarray | None = None) -> DrawMeasures:
    corpus = np.repeat([0, 1], [len(first), len(second)])
    groups = np.arange(len(corpus))
    uses = WordUsesVectors(np.concatenate([first, second]), groups, senses)
    return observed(uses, Exchange(corpus, groups))


@pytest.mark.parametrize("golden", GOLDEN, ids=[str(each["case"]) for each in GOLDEN])
def test_the_measures_are_those_of_langchange(golden: dict[str, float]) -> None:
    first, second, senses_first, senses_second = drawn(*golden["case"])  # type: ignore[misc]
    values = measured(first, second, np.concatenate([senses_first, senses_second]))
    assert values.apd[0] == pytest.approx(golden["apd"], rel=1e-9)
    assert values.prt[0] == pytest.approx(golden["prt"], rel=1e-9)
    assert math.sqrt(values.jsd[0] * math.log(2)) == pytest.approx(golden["jsd"], rel=1e-9)  # a distance, in nats


def test_the_difference_is_the_distance_between_minus_that_within_of_different_groups() -> None:
    rng = np.random.default_rng(0)
    vectors, corpus = rng.standard_normal((9, 4)), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    groups = np.array([0, 0, 1, 2, 5, 6, 6, 7, 8])
    distances = cdist(vectors, vectors, "cosine")

    def mean(pairs: list[tuple[int, int]]) -> float:
        return float(np.mean([distances[pair] for pair in pairs]))

    within = [
        mean([(a, b) for a, b in itertools.permutations(np.flatnonzero(corpus == side), 2) if groups[a] != groups[b]])
        for side in (0, 1)
    ]
    between = mean(list(itertools.product(range(4), range(4, 9))))
    values = observed(WordUsesVectors(vectors, groups), Exchange(corpus, groups))
    assert values.difference[0] == pytest.approx(between - np.mean(within))


def test_the_divergence_is_zero_for_equal_shares_and_one_for_disjoint_ones() -> None:
    shares = np.array([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    assert divergence(shares, shares).tolist() == [0.0, 0.0]
    assert divergence(shares, shares[::-1]).tolist() == pytest.approx([1.0, 1.0])


def test_groups_are_exchanged_as_a_whole() -> None:
    corpus, groups = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([3, 3, 8, 9, 9, 4, 5])
    exchange = Exchange(corpus, groups)
    assert exchange.n_groups == (2, 3)
    seen = set()
    for first in exchange.permutations(200, np.random.default_rng(0)):
        for row in first:
            by_group = {group: set(row[groups == group]) for group in groups}
            assert all(len(values) == 1 for values in by_group.values())
            assert sum(next(iter(values)) for values in by_group.values()) == 2
            seen.add(tuple(row))
    assert len(seen) == math.comb(5, 3)
    for first, second in exchange.bootstraps(50, np.random.default_rng(0)):
        assert not first[:, corpus == 1].any()
        assert not second[:, corpus == 0].any()
        assert (first[:, 0] == first[:, 1]).all()
        assert (first[:, 0] + first[:, 2] == 2).all()


def simulated(rng: np.random.Generator, shift: float, *, topic: float = 0.0) -> tuple[float, float]:
    """p of a word with 2 uses in each of 2 × 12 documents, which have topics; by documents, and by single uses."""
    groups = np.repeat(np.arange(24), 2)
    corpus = (groups >= 12).astype(np.int64)
    topics = topic * rng.standard_normal((24, 8))
    vectors = 2 + topics[groups] + rng.standard_normal((48, 8)) + shift * corpus[:, None] * np.eye(8)[0]
    ps = []
    for units in (groups, np.arange(48)):
        uses, exchange = WordUsesVectors(vectors, units), Exchange(corpus, units)
        draws = permuted(uses, exchange, 199, rng)
        ps.append(p_value(float(observed(uses, exchange).difference[0]), draws.difference))
    return ps[0], ps[1]


def test_p_is_uniform_without_a_difference_if_documents_are_exchanged_and_not_if_uses_are() -> None:
    rng = np.random.default_rng(0)
    ps = np.array([simulated(rng, 0.0, topic=1.0) for _ in range(300)])
    by_documents, by_uses = (ps < LEVEL).mean(axis=0)
    assert by_documents < 0.09  # 0.05 and three standard errors
    assert by_uses > 0.15


def test_a_difference_is_found() -> None:
    rng = np.random.default_rng(0)
    assert max(simulated(rng, 4.0)[0] for _ in range(5)) < 0.01


def test_intervals_are_around_the_value_and_cover_it() -> None:
    rng = np.random.default_rng(0)
    groups = np.arange(60)
    corpus = (groups >= 30).astype(np.int64)
    uses, exchange = WordUsesVectors(rng.standard_normal((60, 5)) + 1, groups), Exchange(corpus, groups)
    value = float(observed(uses, exchange).apd[0])
    low, high = interval(value, bootstrapped(uses, exchange, 400, rng).apd)
    assert 0 < low < value < high < 2 * value
    assert interval(0.01, np.linspace(0, 1, 50))[0] == 0.0
    assert interval(0.01, np.linspace(0, 1, 50), floor=None)[0] < 0.0


def test_the_adjustment_is_that_of_scipy() -> None:
    ps = np.random.default_rng(0).uniform(size=50) ** 3
    np.testing.assert_allclose(adjusted(ps.tolist()), false_discovery_control(ps))
    assert adjusted([]) == []


def test_the_lowest_p_can_survive_the_adjustment() -> None:
    for n_tests, n_lowest in ((20, 1), (2000, 1), (2000, 7), (5000, 4000)):
        lowest = 1 / (1 + permutations_needed(n_tests, n_lowest))
        assert adjusted([lowest] * n_lowest + [1.0] * (n_tests - n_lowest))[0] < LEVEL
