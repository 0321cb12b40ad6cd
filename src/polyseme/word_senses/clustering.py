"""Spectral clustering of the uses of a word, and the number of its senses.

Each vector is linked to its nearest neighbors. A group is a set of vectors with many links inside and few to others.
The eigenvectors of the graph's normalized Laplacian separate such groups, and its eigenvalues measure the cost of the
cut: the second smallest is near 0 if the graph falls into two parts, the third if it falls into three. Groups may have
any shape and size, since the uses of one sense are seldom a round cluster.

A word has one sense unless its uses fall into groups more easily than random clouds of the same spread do.

Shapes: N vectors, D width, K groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.word_senses.nearest_neighbors import Floats, unit

N_LINKS = 8
"""Neighbors that each vector is linked to."""
ROUNDS = 100
TRIES = 8
SAME_DISTANCE = 0.08
"""The distance of near copies, of vectors of the word alone, as a share of that between uses of different words."""
SAME_DISTANCE_IN_CONTEXT = 0.04
MIN_EASE = 1.75
"""How much more easily than a cloud uses must fall into 2 groups, where vectors are those of the word alone."""
MIN_EASE_IN_CONTEXT = 2.1
"""The same, where they have the words around it: these bring topics, which separate uses of one sense, too."""
MIN_USES = 20
"""Uses, without near copies, that are needed to estimate the number of senses."""
MAX_SENSES = 9
CLOUDS = 8
SMALLEST_COST = 0.01
"""Added to costs before they are divided, so that differences between costs near 0 do not count."""

HINT = "To see the uses in groups all the same, set their number with --n-senses (n_senses=…)."
"""What to do where one sense is found."""

Labels = NDArray[np.int64]


def center_vectors(vectors: NDArray[Any]) -> Floats:
    """The vectors minus their mean, at length 1: their common part does not distinguish them."""
    return unit(vectors - vectors.mean(axis=0))


def cut_costs(vectors: Floats, most: int) -> NDArray[Any]:
    """The cost of cutting the graph into 2, 3, … `most` groups: from 0 to about 1. [most − 1]"""
    values = np.linalg.eigvalsh(_links(vectors))
    return 1.0 - values[::-1][1:most]


def cluster(vectors: Floats, n_groups: int, rng: np.random.Generator) -> Labels:
    """Each vector's group, the largest group first. [N]"""
    if n_groups == 1:
        return np.zeros(len(vectors), dtype=np.int64)
    _, directions = np.linalg.eigh(_links(vectors))
    return order_by_size(k_means(unit(directions[:, -n_groups:]), n_groups, rng))


def k_means(points: NDArray[Any], n_groups: int, rng: np.random.Generator) -> Labels:
    """Groups around means, the best of several starts; every group has at least one point. [N]"""
    results = [_k_means_once(points, n_groups, rng) for _ in range(TRIES)]
    return min(results, key=lambda result: result[0])[1]


def order_by_size(labels: Labels) -> Labels:
    """The same groups with the largest as 0; of equally large ones the one that comes first.

    >>> order_by_size(np.array([5, 7, 7, 2]))
    array([1, 0, 0, 2])
    """
    names, first, counts = np.unique(labels, return_index=True, return_counts=True)
    order = names[np.lexsort((first, -counts))]
    ranked: Labels = np.argmax(labels[:, None] == order, axis=1).astype(np.int64)
    return ranked


def _links(vectors: Floats) -> NDArray[np.float64]:
    """The links between neighbors, normalized by the degrees of both ends; mutual ones count twice. [N, N]"""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    n_links = min(N_LINKS, max(len(vectors) // 3, 1))  # otherwise few vectors would all be linked
    near = np.argpartition(-cosines, n_links - 1, axis=1)[:, :n_links]
    links = np.zeros(cosines.shape)
    np.put_along_axis(links, near, 0.5, axis=1)
    links += links.T
    degrees = links.sum(axis=1)
    scaled: NDArray[np.float64] = links / np.sqrt(degrees[:, None] * degrees)
    return scaled


def _k_means_once(points: NDArray[Any], n_groups: int, rng: np.random.Generator) -> tuple[float, Labels]:
    means = _spread_out(points, n_groups, rng)
    labels = np.full(len(points), -1)
    for _ in range(ROUNDS):
        distances = _squared_distances(points, means)
        new = distances.argmin(axis=1)
        for empty in set(range(n_groups)) - set(new.tolist()):
            # It takes the point farthest from its mean, among groups of more than one point.
            far = np.where(np.bincount(new, minlength=n_groups)[new] > 1, distances[np.arange(len(points)), new], -1)
            new[far.argmax()] = empty
        if (new == labels).all():
            break
        labels = new
        means = np.stack([points[labels == group].mean(axis=0) for group in range(n_groups)])
    return float(_squared_distances(points, means)[np.arange(len(points)), labels].sum()), labels


def _spread_out(points: NDArray[Any], n_groups: int, rng: np.random.Generator) -> NDArray[Any]:
    """Initial means: each is drawn with a probability proportional to its squared distance from those before."""
    chosen = [int(rng.integers(len(points)))]
    while len(chosen) < n_groups:
        nearest = _squared_distances(points, points[chosen]).min(axis=1)
        total = nearest.sum()
        chosen.append(int(rng.choice(len(points), p=nearest / total if total > 0 else None)))
    return points[chosen]


def _squared_distances(points: NDArray[Any], means: NDArray[Any]) -> NDArray[Any]:
    """[N, K]"""
    distances: NDArray[Any] = ((points[:, None] - means) ** 2).sum(axis=-1)
    return distances


@dataclass(frozen=True)
class Count:
    """The number of senses, and the evidence for it."""

    n_senses: int
    ease: tuple[float, ...]
    """How much more easily than a cloud without senses the uses fall into 2, 3, … groups; empty if not measured."""
    n_distinct: int
    """Uses that were compared, without near copies."""
    min_ease: float = MIN_EASE
    """The ease of 2 groups that is required."""

    def sentence(self) -> str:
        """The evidence in words.

        >>> Count(2, (3.2, 1.1, 1.0), 80).sentence()
        'The uses fall into 2 groups 3.2 times as easily as a cloud without senses would (1.75 times is required), \
and into 3 groups only 1.1 times.'
        """
        if not self.ease:
            return (
                f"Uses to tell senses apart by, near copies counted once: {self.n_distinct}. That is too few; at least "
                f"{MIN_USES} are needed. {HINT}"
            )
        if self.n_senses == 1:
            return (
                f"The uses fall into 2 groups only {self.ease[0]:.2f} times as easily as a cloud without senses would; "
                f"{self.min_ease:g} times is required. {HINT}"
            )
        eases = [f"{ease:.1f} times" for ease in self.ease]
        more = [f"into {number} groups {ease}" for number, ease in enumerate(eases[1 : self.n_senses - 1], start=3)]
        after = [f"into {self.n_senses + 1} groups only {ease}" for ease in eases[self.n_senses - 1 :][:1]]
        rest = "".join(f", and {clause}" for clause in [*more, *after])
        return (
            f"The uses fall into 2 groups {eases[0]} as easily as a cloud without senses would "
            f"({self.min_ease:g} times is required){rest}."
        )


def count_senses(vectors: Floats, rng: np.random.Generator, *, min_ease: float = MIN_EASE) -> Count:
    """The number of senses of uses with these vectors (of length 1, without near copies): [N, D]."""
    if len(vectors) < MIN_USES:
        return Count(1, (), len(vectors))
    ease = tuple(_ease(vectors, rng).tolist())
    return Count(number_by(ease, min_ease), ease, len(vectors), min_ease)


def number_by(ease: Sequence[float], min_ease: float = MIN_EASE) -> int:
    """1, unless the ease of two groups is high enough; then the number after which the ease drops most.

    >>> number_by([1.4, 1.9, 1.2]), number_by([3.0, 2.9, 1.2, 1.1]), number_by([3.0, 1.8, 1.7, 1.1])
    (1, 3, 2)
    """
    if not ease or ease[0] < min_ease:
        return 1
    drops = [before / after if before >= min_ease else 0.0 for before, after in pairwise(ease)]
    return 2 + drops.index(max(drops)) if drops else 2


def distinct_rows(vectors: Floats, scale: float = 1.0, *, same: float = SAME_DISTANCE) -> NDArray[np.int64]:
    """The rows that are not near copies of an earlier one.

    `scale` is the typical distance (1 − cosine) between uses of different words in the same text.
    """
    closest = same * scale
    selected: list[int] = []
    room = np.empty_like(vectors)
    for row, vector in enumerate(vectors):
        if not selected or float((room[: len(selected)] @ vector).max()) <= 1 - closest:
            room[len(selected)] = vector
            selected.append(row)
    return np.array(selected, dtype=np.int64)


def _ease(vectors: Floats, rng: np.random.Generator) -> NDArray[np.float64]:
    """The cut costs of random clouds divided by those of the uses, for 2, 3, … groups."""
    most = min(MAX_SENSES, len(vectors) // 3)
    spread = vectors - vectors.mean(axis=0)
    clouds = [
        cut_costs(center_vectors(rng.standard_normal((len(vectors), len(vectors))) @ spread), most)
        for _ in range(CLOUDS)
    ]
    ease: NDArray[np.float64] = (np.mean(clouds, axis=0) + SMALLEST_COST) / (
        cut_costs(center_vectors(vectors), most) + SMALLEST_COST
    )
    return ease
