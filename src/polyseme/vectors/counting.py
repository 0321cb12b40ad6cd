"""How many senses the uses of a word have, honestly: one, unless they fall apart more easily than chance would have it.

1. Uses that are all but the same (set phrases, lists, one sentence copied again and again) count once: they would
   otherwise be found to be a sense of their own. Two uses are all but the same if they lie closer than `SAME` of the
   distance at which uses of different words typically lie.
2. How easily the rest falls into 2, 3, … groups is measured (`parting`), and so it is for clouds of as many points that
   have the same mean and the same spread in every direction, and no groups: multivariate normal ones.
3. Another sense is counted as long as the uses fall into one group more at least `LEAST` times as easily as the clouds
   do.

Step 3 is a threshold, not a test of significance: uses of one sense are no normal cloud either (they have topics), so
that with enough of them a test would find senses in everything. The two figures were chosen on the training half of
CoarseWSD-20 with MiniLM, and what they are worth was measured on words that had no say in them:
`experiments/coarse_wsd.py`, docs/senses.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from polyseme.vectors.nearest import Floats
from polyseme.vectors.parting import centred, costs_of_parting

SAME = 0.08
LEAST = 1.65
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
        'The uses fall into 2 groups 3.2 times as easily as a cloud without senses would, and into 3 only 1.1 times; \
1.65 is asked for.'
        """
        if not self.ease:
            return (
                f"{self.n_distinct} uses, near copies counted once, are too few to tell senses apart; at least "
                f"{FEWEST} are needed."
            )
        if self.n_senses == 1:
            return (
                f"The uses fall into 2 groups only {self.ease[0]:.1f} times as easily as a cloud without senses would; "
                f"{LEAST} is asked for."
            )
        last = self.ease[self.n_senses - 2]
        more = self.ease[self.n_senses - 1 :][:1]
        told = f", and into {self.n_senses + 1} only {more[0]:.1f} times" if more else ""
        return (
            f"The uses fall into {self.n_senses} groups {last:.1f} times as easily as a cloud without senses would"
            f"{told}; {LEAST} is asked for."
        )


def count_senses(vectors: Floats, rng: np.random.Generator, *, least: float = LEAST) -> Count:
    """How many senses the uses have whose vectors (of length 1) these are, near copies put aside: [N, D]."""
    if len(vectors) < FEWEST:
        return Count(1, (), len(vectors))
    ease = tuple(_ease(vectors, rng).tolist())
    return Count(number_by(ease, least), ease, len(vectors))


def number_by(ease: Sequence[float], least: float = LEAST) -> int:
    """One sense, and one more for each group that comes easily enough before the first that does not.

    >>> number_by([3.0, 2.1, 1.2, 1.9])
    3
    """
    return 1 + len(list(takewhile(lambda each: each >= least, ease)))


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
