"""Windows: a document too long for its encoder is cut into overlapping windows, whose results are stitched together.

Windows overlap by half; the last one ends where the document ends, so it may overlap more. The states of a piece are
taken from the window whose nearer edge is farthest from it, where it has most context. The ends of the document do not
count as edges. With a causal encoder a piece is taken from the window in which it has the longest left context. Ties go
to the earlier window.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from polyseme.config import Direction
from polyseme.errors import OptionError


class Window(NamedTuple):
    """The pieces `[start, end)` of a document, of which those in `[keep_start, keep_end)` are taken from it."""

    start: int
    end: int
    keep_start: int
    keep_end: int

    @property
    def keep(self) -> slice:
        """The pieces that are taken, as a slice of the window."""
        return slice(self.keep_start - self.start, self.keep_end - self.start)


def cut(n_pieces: int, capacity: int | None, direction: Direction = "both") -> list[Window]:
    """The windows of a document of `n_pieces`, each of at most `capacity` pieces, specials not counted.

    Each piece of the document is kept by one window, in order. A capacity of None means no limit.

    >>> cut(10, 4)
    [Window(start=0, end=4, keep_start=0, keep_end=3), Window(start=2, end=6, keep_start=3, keep_end=5), \
Window(start=4, end=8, keep_start=5, keep_end=7), Window(start=6, end=10, keep_start=7, keep_end=10)]
    """
    if capacity is not None and capacity < 1:
        raise OptionError(f"A window must have room for at least one piece besides the specials. Got {capacity}.")
    if n_pieces == 0:
        return []
    if capacity is None or n_pieces <= capacity:
        return [Window(0, n_pieces, 0, n_pieces)]
    last = n_pieces - capacity
    starts = [*range(0, last, (capacity + 1) // 2), last]
    borders = [0, *(_border(left + capacity, right, direction) for left, right in pairwise(starts)), n_pieces]
    return [Window(start, start + capacity, *keep) for start, keep in zip(starts, pairwise(borders), strict=True)]


def _border(end: int, next_start: int, direction: Direction) -> int:
    """The first piece that is taken from the later one of two neighboring windows.

    In their overlap `[next_start, end)` a piece is `end - 1 - piece` from the edge of the earlier window and
    `piece - next_start` from that of the later one; its other edges are farther away.
    """
    return end if direction == "causal" else (next_start + end + 1) // 2
