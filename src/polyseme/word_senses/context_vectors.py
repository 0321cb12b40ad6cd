"""The vector of a use for grouping: that of its word, with the mean of those around it.

A word's own vector says more about the word than about its sense. The words around it share the topic of the use, and
half of the vector is theirs. Near words tell more than the whole text.

Shapes: N words of a text, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.word_senses.nearest_neighbors import Floats, unit

REACH = 5
"""Words on each side whose vectors count."""


def context_positions(positions: Sequence[int], n_words: int, reach: int) -> list[int]:
    """The positions themselves and those within reach, in order.

    >>> context_positions([1, 7], 9, 2)
    [0, 1, 2, 3, 5, 6, 7, 8]
    """
    near = {at for each in positions for at in range(max(each - reach, 0), min(each + reach + 1, n_words))}
    return sorted(near)


def with_context(
    vectors: NDArray[Any], positions: Sequence[int], reach: int, rows: Sequence[int] | None = None
) -> Floats:
    """The uses at some positions of a text, each with the mean of the words within reach: [positions, D].

    `vectors` [N, D] are those of all words, or of those whose positions are `rows`.
    """
    units = unit(vectors)
    row_of = {at: row for row, at in enumerate(range(len(units)) if rows is None else rows)}
    mixed = []
    for at in positions:
        around = [row_of[each] for each in range(at - reach, at + reach + 1) if each != at and each in row_of]
        own = units[row_of[at]]
        mixed.append(own + unit(units[around].mean(axis=0)) if around else own)
    return unit(np.stack(mixed))
