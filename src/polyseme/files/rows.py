"""What every reader of users' files yields: rows, each with its place, so that a message can say where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_SHOWN = 60
"""How many characters of what stands in a file are shown in a message."""


def shown(text: str) -> str:
    r"""What stands in a file as a message shows it: on one line, and no more than can be taken in.

    >>> shown("two\nlines")
    'two lines'
    """
    text = " ".join(text[: _SHOWN + 1].split())
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


class Place(NamedTuple):
    """Where a row stands, as messages say it: `reviews.txt, line 3`."""

    name: str
    line: int
    """Counted from 1; of a row that takes several lines, the first."""
    unit: str = "line"
    """What is counted: lines, or rows where a file has no lines."""

    def __str__(self) -> str:
        return f"{self.name}, {self.unit} {self.line}"


@dataclass(frozen=True, slots=True)
class Row:
    """One text of a user, or the words of one, with an id and what came beside it."""

    content: str | Sequence[str]
    """A text still to be split into words, or the words themselves."""
    id: str
    place: Place
    fields: Mapping[str, Any] = field(default_factory=dict)
