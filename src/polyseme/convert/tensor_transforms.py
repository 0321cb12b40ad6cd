"""Changes of tensors between two checkpoints' layouts; each is exact and has an inverse, but for sums.

A change takes the tensors of one rule in their order and gives the tensors of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from polyseme.errors import ModelError


class Change(Protocol):
    """A bit-exact change with an inverse."""

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]: ...

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]: ...


@dataclass(frozen=True)
class Each:
    """Each tensor by itself, by a function that is its own inverse unless there is a second one."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor] | None = None

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [self.to_ours(tensor) for tensor in tensors]

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [(self.to_theirs or self.to_ours)(tensor) for tensor in tensors]


SAME = Each(lambda tensor: tensor)
"""Nothing changes but the name."""
TRANSPOSE = Each(lambda tensor: tensor.T.contiguous())
"""[in, out] ↔ [out, in]"""


def reshape(theirs: tuple[int, ...], ours: tuple[int, ...]) -> Each:
    """Another shape for the same numbers in the same order."""
    return Each(lambda tensor: tensor.reshape(ours), lambda tensor: tensor.reshape(theirs))


@dataclass(frozen=True)
class Stack:
    """Several tensors of one shape ↔ one, along the first axis: q, k, v ↔ the fused projection."""

    n: int

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [torch.cat(list(tensors))]

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [part.contiguous() for part in tensors[0].chunk(self.n)]


@dataclass(frozen=True)
class Copies:
    """One tensor that is kept under several names ↔ the tensor."""

    n: int

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if any(tensor.shape != tensors[0].shape or not torch.equal(tensor, tensors[0]) for tensor in tensors[1:]):
            raise ModelError(
                f"The checkpoint has {self.n} names for one table of pieces, and what it keeps under them differs. "
                "polyseme has one table for all stacks, and cannot load it."
            )
        return [tensors[0]]

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensors[0], *(tensors[0].clone() for _ in range(self.n - 1))]


@dataclass(frozen=True)
class Sum:
    """Two tensors of which only the sum counts (the biases of torch's LSTM) ↔ the sum; it goes back beside zeros."""

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensors[0] + tensors[1]]

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensors[0], torch.zeros_like(tensors[0])]


SUM = Sum()


@dataclass(frozen=True)
class Chain:
    """One change after another."""

    changes: tuple[Change, ...]

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        current = list(tensors)
        for change in self.changes:
            current = change.forward(current)
        return current

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        current = list(tensors)
        for change in reversed(self.changes):
            current = change.backward(current)
        return current
