"""Who sees whom, found out by changing one piece at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TOUCHED = 1e-9
"""A state that depends on a piece moves by far more than this in float64, and one that does not by far less."""


def who_sees_whom(states_of: Callable[[Tensor], Tensor], pieces: Tensor, n_pieces: int) -> Tensor:
    """[Tq, T], true where a state changes with a piece.

    `states_of` takes rows of pieces [R, T] to states [R, Tq, D]; `pieces` is one such row, of `n_pieces` kinds. Pieces
    that are spelled, [R, T, C], are changed in all their characters.
    """
    (row,) = pieces
    changed = row.repeat(len(row) + 1, *[1] * row.dim())
    for place in range(len(row)):
        changed[place + 1, place] = (row[place] + 1) % n_pieces
    with torch.no_grad():
        states = states_of(changed)
    moved = (states[1:] - states[:1]).abs().amax(dim=-1)  # [T, Tq]
    return (moved > TOUCHED * states.abs().max()).T


def drawing(seen: Tensor) -> list[str]:
    """A line a query, x where it sees a key."""
    return ["".join("x" if each else "." for each in line) for line in seen.tolist()]
