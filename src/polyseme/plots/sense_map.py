"""What a picture of a word's senses shows: its uses, the sense of each, where each lies, and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.plots.uses import Use

MOST_POINTS = 5000
"""Points that are drawn; of more uses, every so-and-so-many-th, and the picture says so."""
CONTEXT = 44
"""Characters on each side of the word in examples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SenseMap:
    """What is drawn: uses of a word, the sense of each, counted from 1, and where each lies."""

    word: str
    headline: str
    """How many senses there are in how many uses."""
    how: str
    """How the number of senses was found."""
    map: str
    """How the points were laid out, as it is written under them."""
    source: str
    uses: Sequence[Use]
    senses: Sequence[int]
    points: NDArray[Any]
    """[n, 2]"""
    examples: Sequence[Sequence[int]]
    """Of each sense some uses, by number, counted from 0; the most typical first."""

    def __post_init__(self) -> None:
        if not len(self.uses) == len(self.senses) == len(self.points) or not self.uses:
            raise OptionError(
                f"A map of senses needs as many uses as senses and points, and at least one. Got {len(self.uses)}, "
                f"{len(self.senses)} and {len(self.points)}."
            )

    @property
    def n_senses(self) -> int:
        return len(self.examples)

    def drawn(self) -> list[int]:
        """The uses whose points are drawn."""
        step = -(-len(self.uses) // MOST_POINTS)
        return list(range(0, len(self.uses), step))

    def share(self, sense: int) -> str:
        """How many uses a sense has, and which part of all."""
        count = sum(each == sense for each in self.senses)
        return f"{count:,} use{'' if count == 1 else 's'}, {100 * count / len(self.senses):.0f}%"

    def left_out(self) -> str:
        """What is to be said where not every point is drawn."""
        n_drawn = len(self.drawn())
        return "" if n_drawn == len(self.uses) else f", of which {n_drawn:,} are drawn"
