"""How many senses the uses of a word have, honestly: one, unless they fall apart more easily than chance would have it.

1. Uses that are all but the same (set phrases, lists, one sentence copied again and again) count once: they would
   otherwise be found to be a sense of their own. Two uses are all but the same if they lie closer than `SAME` of the
   distance at which uses of different words typically lie.
2. How easily the rest falls into 2, 3, … groups is measured (`parting`), and so it is for clouds of as many points that
   have the same mean and the same spread in every direction, and no groups: multivariate normal ones.
3. There is one sense unless the uses fall in two at least `LEAST` times as easily as the clouds do. Otherwise there are
   as many as after which that ease drops most: into so many groups the uses fall readily, into more they do not.

Step 3 is a threshold, not a test of significance: uses of one sense are no normal cloud either (they have topics), so
that with enough of them a test would find senses in everything. `SAME` and `LEAST` were chosen on the training half of
CoarseWSD-20 with MiniLM, and what they are worth was measured on words that had no say in them:
`experiments/coarse_wsd.py`, docs/senses.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyseme.vectors.nearest import Floats
from polyseme.vectors.parting import centred, costs_of_parting

SAME = 0.08
LEAST = 1.75
FEWEST = 20
"""Uses, near copies counted once, below which nothing is said of the number of senses."""
MOST_SENSES = 9
CLOUDS = 8
SMALLEST_COST = 0.01
"""Added to costs before they are divided, so that a difference between next to nothing and nothing does not count."""


@dataclass(frozen=True)
class Count:
    """How many senses there are, and how that was found."""

    n_senses: int
    ease: tuple[float, ...]
    """How many times as easily as a cloud without senses the uses fall into 2, 3, … groups; empty if not measured."""
    n_distinct: int
    """Uses that were looked at, near copies counted once."""

    def sentence(self) -> str:
        """In words.

        >>> Count(2, (3.2, 1.1, 1.0), 80).sentence()
        'The uses fall into 2 groups 3.2 times as easily as a cloud without senses would (1.75 times is asked for), \
and into 3 only 1.1 times.'
        """
        if not self.ease:
            return (
                f"Uses to tell senses apart by, near copies counted once: {self.n_distinct}. That is too few; at least "
                f"{FEWEST} are needed."
            )
        if self.n_senses == 1:
            return (
                f"The uses fall into 2 groups only {self.ease[0]:.2f} times as easily as a cloud without senses would; "
                f"{LEAST} times is asked for."
            )
        eases = [f"{ease:.1f} times" for ease in self.ease]
        more = [f"into {number} {ease}" for number, ease in enumerate(eases[1 : self.n_senses - 1], start=3)]
        after = [f"into {self.n_senses + 1} only {ease}" for ease in eases[self.n_senses - 1 :][:1]]
        rest = "".join(f", and {each}" for each in [*more, *after])
        return (
            f"The uses fall into 2 groups {eases[0]} as easily as a cloud without senses would ({LEAST} times is asked "
            f"for){rest}."
        )


def count_senses(vectors: Floats, rng: np.random.Generator, *, least: float = LEAST) -> Count:
    """How many senses the uses have whose vectors (of length 1) these are, near copies put aside: [N, D]."""
    if len(vectors) < FEWEST:
        return Count(1, (), len(vectors))
    ease = tuple(_ease(vectors, rng).tolist())
    return Count(number_by(ease, least), ease, len(vectors))


def number_by(ease: Sequence[float], least: float = LEAST) -> int:
    """One, unless two groups come easily enough; then as many as after which the ease drops most.

    >>> number_by([1.4, 1.9, 1.2]), number_by([3.0, 2.9, 1.2, 1.1]), number_by([3.0, 1.8, 1.7, 1.1])
    (1, 3, 2)
    """
    if not ease or ease[0] < least:
        return 1
    drops = [before / after if before >= least else 0.0 for before, after in pairwise(ease)]
    return 2 + drops.index(max(drops)) if drops else 2


def distinct_rows(vectors: Floats, scale: float = 1.0, *, same: float = SAME) -> NDArray[np.int64]:
    """The rows that are no near copies of an earlier one.

    `scale` is the distance (1 − cosine) at which uses of different words typically lie in the same text.
    """
    closest = same * scale
    kept: list[int] = []
    room = np.empty_like(vectors)
    for row, vector in enumerate(vectors):
        if not kept or float((room[: len(kept)] @ vector).max()) <= 1 - closest:
            room[len(kept)] = vector
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _ease(vectors: Floats, rng: np.random.Generator) -> NDArray[np.float64]:
    """What the clouds pay for being parted, by what the uses pay: for 2, 3, … groups."""
    most = min(MOST_SENSES, len(vectors) // 3)
    spread = vectors - vectors.mean(axis=0)
    clouds = [
        costs_of_parting(centred(rng.standard_normal((len(vectors), len(vectors))) @ spread), most)
        for _ in range(CLOUDS)
    ]
    found: NDArray[np.float64] = (np.mean(clouds, axis=0) + SMALLEST_COST) / (
        costs_of_parting(centred(vectors), most) + SMALLEST_COST
    )
    return found
