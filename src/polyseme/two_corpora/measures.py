"""How far the uses of a word in one corpus are from those in another: APD, PRT and JSD.

- APD, average pairwise distance: the mean cosine distance between a use in one corpus and a use in the other.
- PRT, prototype distance: the cosine distance between the mean vectors of the two corpora.
- JSD, Jensen–Shannon divergence between the shares of the senses in the two corpora, in bits: 0 to 1.

Each is a function of a weight per use and corpus, so that one call measures all draws of a permutation test (weights 0
and 1) or of a bootstrap (how often a use was drawn).

Shapes: N uses of both corpora, D width, K senses, P draws.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
MEASURES = ("apd", "prt", "jsd")


class DrawMeasures(NamedTuple):
    """The measures of P draws, [P] each."""

    apd: Numbers
    difference: Numbers
    """APD minus the mean distance within the corpora, between uses of different groups of texts."""
    prt: Numbers
    jsd: Numbers


class WordUsesVectors:
    """The uses of a word in both corpora: vectors [N, D], groups of texts that belong together [N], senses [N]."""

    def __init__(self, vectors: NDArray[Any], groups: NDArray[np.int64], senses: NDArray[np.int64] | None = None):
        self.vectors = _in_their_span(np.asarray(vectors, dtype=np.float64))
        self.groups = groups
        self.senses = senses

    @cached_property
    def _pairs(self) -> Numbers:
        """1 for pairs of uses of different groups: [N, N]. Uses of different corpora always are."""
        pairs: Numbers = (self.groups[:, None] != self.groups).astype(np.float64)
        return pairs

    @cached_property
    def _distances(self) -> Numbers:
        """Cosine distances between uses of different groups, 0 elsewhere: [N, N]."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        unit = self.vectors / np.where(lengths > 0, lengths, 1)
        distances: Numbers = (1 - unit @ unit.T) * self._pairs
        return distances

    @cached_property
    def _one_hot(self) -> Numbers:
        """[N, K]"""
        if self.senses is None:
            return np.ones((len(self.vectors), 1))
        one_hot: Numbers = np.eye(int(self.senses.max()) + 1)[self.senses]
        return one_hot

    def measure(self, first: Numbers, second: Numbers | None = None) -> DrawMeasures:
        """All measures for weights of the uses in the first and in the second corpus: [P, N] each.

        Without the second, its uses are all that are not in the first.
        """
        distances, pairs, sums, counts = (
            self._weigh(first, second, values) for values in (self._distances, self._pairs, self.vectors, self._one_hot)
        )
        second = 1 - first if second is None else second
        between = _share(distances[0] * second, pairs[0] * second)
        within = (_share(distances[0] * first, pairs[0] * first) + _share(distances[1] * second, pairs[1] * second)) / 2
        shares = [each / each.sum(axis=1, keepdims=True) for each in counts]
        return DrawMeasures(between, between - within, _cosine_distances(*sums), divergence(*shares))

    @staticmethod
    def _weigh(first: Numbers, second: Numbers | None, values: Numbers) -> tuple[Numbers, Numbers]:
        """The products of both weights with some values; that of uses not in the first is what is left of the sum."""
        product = first @ values
        return product, values.sum(axis=0) - product if second is None else second @ values


def _in_their_span(vectors: Numbers) -> Numbers:
    """The vectors in coordinates of the space that they span, if there are fewer of them than their width.

    Lengths, angles and sums stay what they are.
    """
    if len(vectors) >= vectors.shape[1]:
        return vectors
    _, upper = np.linalg.qr(vectors.T)
    coordinates: Numbers = upper.T
    return coordinates


def _share(values: Numbers, numbers: Numbers) -> Numbers:
    """Sums of values over sums of numbers, row by row: [P]; NaN where there are none."""
    totals = numbers.sum(axis=1)
    share: Numbers = np.divide(values.sum(axis=1), totals, out=np.full(len(totals), np.nan), where=totals > 0)
    return share


def divergence(first: Numbers, second: Numbers) -> Numbers:
    """The Jensen–Shannon divergence of shares [P, K] and [P, K], in bits: [P].

    >>> divergence(np.array([[0.5, 0.5], [1, 0]]), np.array([[0.5, 0.5], [0, 1]])).tolist()
    [0.0, 1.0]
    """
    mean = (first + second) / 2
    result: Numbers = np.maximum(_entropy(mean) - (_entropy(first) + _entropy(second)) / 2, 0.0)
    return result


def _entropy(shares: Numbers) -> Numbers:
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    entropy: Numbers = -(shares * logs).sum(axis=1)
    return entropy


def _cosine_distances(first: Numbers, second: Numbers) -> Numbers:
    """Row by row: [P]."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    distances: Numbers = 1 - (first * second).sum(axis=1) / np.where(lengths > 0, lengths, 1)
    return distances
