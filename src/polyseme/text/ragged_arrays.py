"""Lists of different lengths, one after another in one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def places_within(sizes: Ints) -> Ints:
    """The places in each of some lists of these sizes.

    >>> places_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def numbers_in(ranges: Ints) -> tuple[Ints, Ints]:
    """The numbers in some ranges [N, 2], and before them the range that each is in.

    >>> [each.tolist() for each in numbers_in(np.array([[3, 5], [0, 1]]))]
    [[0, 0, 1], [3, 4, 0]]
    """
    sizes = ranges[:, 1] - ranges[:, 0]
    of = np.repeat(np.arange(len(ranges)), sizes)
    return of, ranges[of, 0] + places_within(sizes)


def concatenate(arrays: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Arrays one after another, and where each begins, with the end of all."""
    ends = np.cumsum([0, *map(len, arrays)])
    return (np.concatenate(arrays) if len(arrays) else np.zeros(0, np.int64)), ends
