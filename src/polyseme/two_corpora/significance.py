"""Whether two corpora differ by more than chance: a permutation test, a bootstrap, and many tests at once.

The unit of both is a group of texts that belong together (a document, or one text where texts are independent). Uses in
one document resemble each other, so that uses must not be exchanged one by one: the test would find differences between
any two sets of documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme.two_corpora.measures import DrawMeasures, Numbers, WordUsesVectors

MIN_GROUPS = 5
"""Groups of texts with the word that the test needs in each corpus: of fewer there are too few permutations."""
PERMUTATIONS = 1000
BOOTSTRAPS = 1000
LEVEL = 0.05
"""The level of the test, and one minus the coverage of the intervals."""
_AT_ONCE = 1000
_SAME = 1e-9
"""Differences that are rounding errors."""


@dataclass(frozen=True)
class Measure:
    """How far two corpora are from each other by one measure."""

    value: float | None
    """None: there are too few groups of texts to measure it."""
    expected: float | None
    """The mean over permutations: the value without a difference between the corpora. None: not tested."""
    p: float | None
    """The share of permutations with a value at least as high; None: not tested."""
    low: float | None
    """Of the bootstrap interval (95%)."""
    high: float | None


class Exchange:
    """Uses of a word with their corpus, 0 or 1, and draws of other assignments of the groups of texts."""

    def __init__(self, corpus: NDArray[np.int64], groups: NDArray[np.int64]) -> None:
        _, first, self._group_of_use = np.unique(groups, return_index=True, return_inverse=True)
        self._is_second = corpus[first].astype(bool)
        self._corpus = corpus.astype(np.float64)

    @property
    def n_groups(self) -> tuple[int, int]:
        """Groups in each corpus."""
        n_second = int(self._is_second.sum())
        return len(self._is_second) - n_second, n_second

    def observed(self) -> Numbers:
        """The weights of the first corpus as it is: [1, N]."""
        weights: Numbers = (1 - self._corpus)[None]
        return weights

    def permutations(self, n_draws: int, rng: np.random.Generator) -> Iterator[Numbers]:
        """Weights of the first corpus where groups are assigned at random, as many to each corpus as there are."""
        for n_rows in _portions(n_draws):
            first = rng.permuted(np.tile(~self._is_second, (n_rows, 1)), axis=1)[:, self._group_of_use]
            yield first.astype(np.float64)

    def bootstraps(self, n_draws: int, rng: np.random.Generator) -> Iterator[tuple[Numbers, Numbers]]:
        """Weights where the groups of each corpus are drawn with replacement."""
        for n_rows in _portions(n_draws):
            yield self._resample(~self._is_second, n_rows, rng), self._resample(self._is_second, n_rows, rng)

    def _resample(self, members: NDArray[np.bool_], n_rows: int, rng: np.random.Generator) -> Numbers:
        counts = np.zeros((n_rows, len(members)))
        n_members = int(members.sum())
        counts[:, members] = rng.multinomial(n_members, np.full(n_members, 1 / n_members), size=n_rows)
        weights: Numbers = counts[:, self._group_of_use]
        return weights


def _portions(n_draws: int) -> Iterator[int]:
    for start in range(0, n_draws, _AT_ONCE):
        yield min(_AT_ONCE, n_draws - start)


def observed(uses: WordUsesVectors, exchange: Exchange) -> DrawMeasures:
    """The measures of the corpora as they are: [1] each."""
    return uses.measure(exchange.observed())


def permuted(uses: WordUsesVectors, exchange: Exchange, n_draws: int, rng: np.random.Generator) -> DrawMeasures:
    """The measures of `n_draws` permutations."""
    return _join_measures([uses.measure(weights) for weights in exchange.permutations(n_draws, rng)])


def bootstrapped(uses: WordUsesVectors, exchange: Exchange, n_draws: int, rng: np.random.Generator) -> DrawMeasures:
    """The measures of `n_draws` bootstrap samples."""
    return _join_measures([uses.measure(*weights) for weights in exchange.bootstraps(n_draws, rng)])


def _join_measures(parts: Sequence[DrawMeasures]) -> DrawMeasures:
    return DrawMeasures(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def p_value(value: float, draws: Numbers) -> float:
    """The share of draws at least as high as the value, which itself counts as one of them.

    >>> p_value(3.0, np.array([1.0, 2.0, 3.0]))
    0.5
    """
    return float((1 + (draws >= value - _SAME).sum()) / (1 + len(draws)))


def interval(value: float, draws: Numbers, *, floor: float | None = 0.0) -> tuple[float, float]:
    """The bootstrap interval: percentiles of the draws, moved so that their mean is the value.

    Resampled corpora are less like each other than the corpora are, since each repeats some of its texts; without the
    move, intervals of PRT and JSD would lie above the value. `floor` is the lowest value that is possible.
    """
    draws = draws[np.isfinite(draws)]
    low, high = (np.quantile(draws, [LEVEL / 2, 1 - LEVEL / 2]) - draws.mean() + value).tolist()
    return (low if floor is None else max(low, floor)), high


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Benjamini–Hochberg: for each p the smallest false discovery rate at which it is among the discoveries.

    >>> [round(each, 3) for each in adjusted([0.01, 0.04, 0.03, 0.9])]
    [0.04, 0.053, 0.053, 0.9]
    """
    n_tests = len(p_values)
    order = np.argsort(p_values)[::-1]
    raised = np.asarray(p_values, dtype=np.float64)[order] * n_tests / np.arange(n_tests, 0, -1)
    result = np.empty(n_tests)
    result[order] = np.minimum(np.minimum.accumulate(raised), 1.0)
    return [float(each) for each in result]


def permutations_needed(n_tests: int, n_lowest: int) -> int:
    """Permutations with which the lowest p can survive the adjustment if `n_lowest` tests have it.

    >>> permutations_needed(2000, 4), permutations_needed(2000, 1000)
    (40000, 1000)
    """
    return max(PERMUTATIONS, math.ceil(4 * n_tests / (LEVEL * max(n_lowest, 1)) / _AT_ONCE) * _AT_ONCE)
