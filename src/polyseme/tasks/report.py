"""What an evaluation found: figures in lines, the widest first, for a table, a file or a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyseme.cost import Cost


@dataclass(frozen=True)
class Line:
    """The figures of a group, or of all."""

    level: str
    """What the group is: all, set, field, paradigm, …"""
    name: str
    n: int
    """How many items it has."""
    figures: Mapping[str, float | None]
    parent: str = ""
    """The group one level up, where there is one."""
    depth: int = 0
    """How far down it is: all is 0."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a metric makes of answers."""

    columns: Mapping[str, str]
    """The name of each figure, and what it is."""
    lines: Sequence[Line]
    shares: bool = True
    """Whether the first figure is a share from 0 to 1, which a bar can show."""
    chance: float | None = None
    """What that share would be by chance."""
    items: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """A record an item."""

    def __getitem__(self, name: str) -> Mapping[str, float | None]:
        """The figures of a group by its name; `all` for all."""
        for line in self.lines:
            if line.name == name:
                return line.figures
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True)
class Report(Figures):
    """The figures of an evaluation, with what they are of and how they came about."""

    evaluation: str
    model: str
    how: str
    """In words, how the model was asked."""
    notes: Sequence[str] = ()
    cost: Cost | None = None
