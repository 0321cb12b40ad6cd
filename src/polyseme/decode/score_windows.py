"""Windows for a causal encoder that guesses every piece once: they move on by a stride.

The first window guesses as much as it can read. Each one after it begins `stride` pieces further on and guesses the
pieces that the one before did not reach, so that each of them has at least the window less the stride before it. The
last window ends with the text, and may begin earlier, which gives its pieces more to go by.
"""

from __future__ import annotations

from typing import NamedTuple

from polyseme.errors import OptionError


class Stride(NamedTuple):
    """The pieces `[start, end)` that are read, of which the piece after each one from `first` - 1 on is guessed.

    What is guessed is `[first, end]`, both counted: the last of them is not read.
    """

    start: int
    end: int
    first: int


def strides(n_read: int, room: int | None, stride: int | None = None) -> list[Stride]:
    """The windows over `n_read` pieces, of at most `room` each; without a stride they overlap by half.

    >>> strides(10, 4, 3)
    [Stride(start=0, end=4, first=1), Stride(start=3, end=7, first=5), Stride(start=6, end=10, first=8)]
    """
    if room is not None:
        stride = max(room // 2, 1) if stride is None else stride
        check_stride(stride, room)
    if room is None or stride is None or n_read <= room:
        return [Stride(0, n_read, 1)]
    starts = [*range(0, n_read - room, stride), n_read - room]
    found = [Stride(0, room, 1)]
    for start in starts[1:]:
        found.append(Stride(start, start + room, found[-1].end + 1))
    return found


def check_stride(stride: int, room: int) -> None:
    """Refuse a stride that would skip pieces, or go nowhere."""
    if not 1 <= stride <= room:
        raise OptionError(
            f"The stride must be between 1 and the {room:,} pieces that the model reads at once. Got {stride} instead."
        )
