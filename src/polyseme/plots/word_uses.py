"""Uses of a word: sentences that contain it, and the similarity of its vectors in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.printable import visible

IN_CONTEXT = "in context"
ALONE = "layer 0: the word alone, no context"


class Keyword(NamedTuple):
    """A word between the text before and after it, as in a concordance."""

    before: str
    word: str
    after: str


@dataclass(frozen=True)
class Use:
    """A word in a text: `text[start:end]`."""

    text: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= len(self.text):
            raise OptionError(
                f"A use is a stretch of its text. Got [{self.start}, {self.end}) of {len(self.text)} characters."
            )

    def keyword(self, context: int) -> Keyword:
        """The word with at most `context` characters on each side, cut between words and marked `…` where cut."""
        before = _one_line(self.text[: self.start])
        after = _one_line(self.text[self.end :])
        if len(before) > context:
            end = before[len(before) - context :]
            before = "…" + end[max(end.find(" ", 0, -1), 0) :]
        if len(after) > context:
            start = after[:context]
            after = start[: start.rfind(" ", 1) + 1 or context] + "…"
        return Keyword(before, _one_line(self.text[self.start : self.end]), after)


@dataclass(frozen=True, kw_only=True, eq=False)
class WordUses:
    """Several uses of one word, with the cosine of each pair of vectors: in context, and of the token layer."""

    word: str
    uses: Sequence[Use]
    in_context: NDArray[Any]
    """[n, n]"""
    alone: NDArray[Any]
    """[n, n]: at layer 0, before any context."""

    def __post_init__(self) -> None:
        n_uses = len(self.uses)
        for name, cosines in (("in_context", self.in_context), ("alone", self.alone)):
            if np.shape(cosines) != (n_uses, n_uses) or not n_uses:
                raise OptionError(
                    f"The {name!r} cosines of {self.word!r} need one row and one column per use, there must be uses. "
                    f"Got shape {np.shape(cosines)} for {n_uses} uses."
                )


def lowest(words: Sequence[WordUses]) -> float:
    """The lower end of a color scale for all these words: the lowest cosine, rounded down to a tenth; it ends at 1."""
    return scale_start(float(np.nanmin(cosines)) for uses in words for cosines in (uses.in_context, uses.alone))


def scale_start(cosines: Iterable[float]) -> float:
    """The lower end of a color scale for these cosines."""
    return min(math.floor(min(cosines) * 10 + 1e-6) / 10, 0.9)


def format_cosine(cosine: float) -> str:
    """A cosine with two decimals, without a minus sign if it rounds to zero."""
    return f"{round(float(cosine), 2) + 0.0:.2f}"


def printable_keyword(keyword: Keyword) -> Keyword:
    """A keyword for terminals, which would obey some characters."""
    return Keyword(*(visible(each, one_line=True) for each in keyword))


def _one_line(text: str) -> str:
    """The text with each run of blanks and line ends as one blank."""
    inner = " ".join(text.split())
    return f"{' ' * text[:1].isspace()}{inner}{' ' * (text[-1:].isspace() and bool(inner))}"
