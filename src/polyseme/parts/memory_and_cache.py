"""Memory: what an encoder passes from one call to the next.

A memory is a record of tensors, rows first, lengths among them, and no Python numbers, so that picking rows (beams),
writing rows (streams), detaching (truncated back-propagation) and saving (checkpoints) are written once, here, for all
kinds. One that is passed in is spent: the next call takes the one that is returned.

Shapes: R rows, M remembered pieces, S slots, H heads, d head width, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

SomeMemory = TypeVar("SomeMemory", bound="Memory")


@dataclass
class Memory:
    """The base: `lengths` [R] says how many pieces of each row are remembered.

    Fields of subclasses are tensors with rows first, tuples of such, memories, or None.
    """

    lengths: Tensor

    def select(self: SomeMemory, rows: Tensor) -> SomeMemory:
        """The memory of these rows, in this order; a row may be picked more than once."""
        selected: SomeMemory = _zip_map(lambda mine: mine.index_select(0, rows), self)
        return selected

    def put(self: SomeMemory, rows: Tensor, memory: SomeMemory) -> SomeMemory:
        """The same memory with `memory` at these rows."""
        written: SomeMemory = _zip_map(lambda mine, theirs: mine.index_copy(0, rows, theirs), self, memory)
        return written

    def begun_anew(self: SomeMemory, rows: Tensor, new: SomeMemory) -> SomeMemory:
        """The same memory, but with that of `new` in the rows that say so, [R] booleans."""

        def chosen(mine: Tensor, theirs: Tensor) -> Tensor:
            return torch.where(rows.view(-1, *[1] * (mine.dim() - 1)), theirs.to(mine.dtype), mine)

        begun: SomeMemory = _zip_map(chosen, self, new)
        return begun

    def detach(self: SomeMemory) -> SomeMemory:
        """The same memory, cut off from the graph that made it."""
        detached: SomeMemory = _zip_map(lambda mine: mine.detach(), self)
        return detached

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by a name of its own, for a checkpoint."""
        named: dict[str, Tensor] = {}
        _collect("", self, named)
        return named

    def with_tensors(self: SomeMemory, tensors: Mapping[str, Tensor]) -> SomeMemory:
        """A memory of this one's shape that holds `tensors`, as `tensors()` named them."""
        names = iter(self.tensors())
        restored: SomeMemory = _zip_map(lambda mine: tensors[next(names)], self)
        return restored


@dataclass
class Cache(Memory):
    """Keys and values after projection, in slots: piece t of a row stays in slot t.

    A slot past a row's length holds nothing that is ever seen; it is overwritten by the next piece.
    """

    keys: tuple[Tensor, ...]
    """One [R, H, S, d] a layer."""
    values: tuple[Tensor, ...]
    source_keys: tuple[Tensor, ...] = ()
    """The source's keys a layer, from the first call on, where there is cross-attention."""
    source_values: tuple[Tensor, ...] = ()
    source_lengths: Tensor | None = None


@dataclass
class Segments(Memory):
    """What each layer read of the pieces before, ahead of projection; pieces are at the right end."""

    states: tuple[Tensor, ...]
    """One [R, M, D] a layer."""


def write_slots(held: Tensor, new: Tensor, slots: Tensor) -> Tensor:
    """Put `new` [R, H, T, d] into `slots` [R, T] of `held` [R, H, S, d], in place."""
    index = slots[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[3])
    return held.scatter_(2, index, new)


def keep_last(earlier: Tensor, current: Tensor, lengths: Tensor | None, keep: int) -> Tensor:
    """The last `keep` pieces of [earlier; current], at the right end, whatever padding `current` has.

    `earlier` [R, M, D] has its pieces at the right end, `current` [R, T, D] at the left, `lengths` [R] of them real.
    """
    both = torch.cat([earlier, current], dim=1)
    if lengths is None:
        return both[:, both.shape[1] - keep :]
    first = earlier.shape[1] + lengths - keep  # [R]
    places = first[:, None] + torch.arange(keep, device=both.device)  # [R, keep]
    return both.gather(1, places.clamp(min=0)[:, :, None].expand(-1, -1, both.shape[2]))


def _zip_map(function: Callable[..., Tensor], first: Any, *others: Any) -> Any:
    """`function` over every tensor of like-shaped memories."""
    if isinstance(first, Memory):
        changed = {
            field.name: _zip_map(
                function, getattr(first, field.name), *(getattr(other, field.name) for other in others)
            )
            for field in dataclasses.fields(first)
        }
        return type(first)(**changed)
    if isinstance(first, tuple):
        return tuple(_zip_map(function, *items) for items in zip(first, *others, strict=True))
    return None if first is None else function(first, *others)


def _collect(name: str, part: Any, named: dict[str, Tensor]) -> None:
    if isinstance(part, Memory):
        for field in dataclasses.fields(part):
            _collect(f"{name}.{field.name}".lstrip("."), getattr(part, field.name), named)
    elif isinstance(part, tuple):
        for index, item in enumerate(part):
            _collect(f"{name}.{index}", item, named)
    elif part is not None:
        named[name] = part
