from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.config import Direction
from polyseme.errors import OptionError
from polyseme.text.windows import Window, cut

DIRECTIONS: tuple[Direction, ...] = ("both", "causal", "two-way", "any-order", "none")


def best_window(piece: int, n: int, windows: list[Window], direction: Direction) -> int:
    """By the definition: where the nearer edge is farthest away, or the left context longest; ties to the earlier."""

    def room(window: Window) -> float:
        left = piece - window.start
        if direction == "causal":
            return left
        to_left = float("inf") if window.start == 0 else left
        to_right = float("inf") if window.end == n else window.end - 1 - piece
        return min(to_left, to_right)

    inside = [k for k, window in enumerate(windows) if window.start <= piece < window.end]
    return max(inside, key=lambda k: (room(windows[k]), -k))


@given(st.integers(0, 120), st.integers(1, 40), st.sampled_from(DIRECTIONS))
def test_every_piece_is_taken_from_its_best_window(n: int, capacity: int, direction: Direction) -> None:
    windows = cut(n, capacity, direction)
    taken = [k for k, window in enumerate(windows) for _ in range(window.keep_start, window.keep_end)]
    assert taken == [best_window(piece, n, windows, direction) for piece in range(n)]


@given(st.integers(1, 300), st.integers(1, 60), st.sampled_from(DIRECTIONS))
def test_windows_overlap_by_half_and_end_with_the_document(n: int, capacity: int, direction: Direction) -> None:
    windows = cut(n, capacity, direction)
    assert windows[0].start == 0
    assert windows[-1].end == n
    assert all(window.end - window.start == min(n, capacity) for window in windows)
    steps = [right.start - left.start for left, right in pairwise(windows)]
    assert all(step == (capacity + 1) // 2 for step in steps[:-1])
    assert all(0 < step <= (capacity + 1) // 2 for step in steps[-1:])


@given(st.integers(1, 120), st.integers(1, 40), st.sampled_from(DIRECTIONS))
def test_stitching_gives_every_piece_once(n: int, capacity: int, direction: Direction) -> None:
    windows = cut(n, capacity, direction)
    document = np.arange(2 * n).reshape(n, 2)
    stitched = np.concatenate([document[window.start : window.end][window.keep] for window in windows])
    assert np.array_equal(stitched, document)


def test_what_fits_is_one_window() -> None:
    assert cut(5, 5) == cut(5, 9) == cut(5, None) == [Window(0, 5, 0, 5)]
    assert cut(0, 5) == []


def test_no_room_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one piece"):
        cut(3, 0)
