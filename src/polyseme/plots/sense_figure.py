"""What a picture of a word's senses shows: its uses, the sense of each, where each lies, and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.plots.colors import group_color
from polyseme.plots.similarity_heatmaps import DOTS_PER_INCH, FAINT, INK, TEXT_SIZE, Measure
from polyseme.plots.word_uses import Keyword, Use

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


# MERGED: The senses of a word as a figure: a map of its uses, and examples of each sense beside it.


# Sizes in inches; of type, in points.
_MARGIN = 0.35
_MAP = 5.6
_GAP = 0.35
_INDENT = 0.24
_LINE = 0.24
_SMALL = 9.5
_WORD_SIZE = 17.0
_MARKERS = "os^DvPX*h"


def senses_figure(shown: SenseMap, *, n_examples: int = 4) -> Figure:
    """The map on the left, the senses with examples on the right; `figure_bytes` makes a picture of it."""
    figure: Figure = require("matplotlib.figure", extra="plots").Figure(facecolor="white", dpi=DOTS_PER_INCH)
    measure = Measure(figure)
    examples = [[shown.uses[use].keyword(CONTEXT) for use in its[:n_examples]] for its in shown.examples]
    every = [keyword for its in examples for keyword in its]
    column = _MARGIN + _MAP + _GAP + _INDENT + max(measure(before, size=_SMALL) for before, _, _ in every)
    rest = max(measure(word, "bold", _SMALL) + measure(after, size=_SMALL) for _, word, after in every)
    width = max(column + rest, _MARGIN + _MAP + _GAP + 3.0) + _MARGIN
    how = _wrapped(shown.how, width - 2 * _MARGIN, measure)
    top = 0.98 + _LINE * len(how)
    n_lines = sum(len(its) + 2 for its in examples)
    page = _Page(figure, width, top + max(_MAP, _LINE * n_lines) + _MARGIN)
    page.write(_MARGIN, 0.42, shown.word, size=_WORD_SIZE, weight="bold")
    page.write(_MARGIN, 0.76, f"{shown.headline} of {shown.source}; {shown.map} of their vectors{shown.left_out()}")
    for number, line in enumerate(how):
        page.write(_MARGIN, 1.02 + _LINE * number, line, size=_SMALL, color=FAINT)
    _draw_points(page.axes(_MARGIN, top, _MAP, _MAP), shown)
    _write_senses(page, shown, examples, top + 0.12, column, measure)
    return figure


@dataclass(frozen=True)
class _Page:
    """A figure on which things are placed in inches from the left and from the top."""

    figure: Figure
    width: float
    height: float

    def __post_init__(self) -> None:
        self.figure.set_size_inches(self.width, self.height)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        place = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place, xticks=[], yticks=[])

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = TEXT_SIZE,
        color: str = INK,
        weight: str = "normal",
        align: Literal["left", "right"] = "left",
    ) -> None:
        """A line of text, placed by its middle."""
        self.figure.text(
            x / self.width, 1 - y / self.height, text, fontsize=size, color=color, fontweight=weight,
            ha=align, va="center_baseline", parse_math=False,
        )  # fmt: skip

    def mark(self, x: float, y: float, sense: int) -> None:
        """The mark of a sense, as its points have it."""
        line: Any = require("matplotlib.lines", extra="plots").Line2D
        place = ([x / self.width], [1 - y / self.height])
        self.figure.add_artist(line(*place, **_look(sense), markersize=7, transform=self.figure.transFigure))


def _look(sense: int) -> dict[str, Any]:
    return {
        "marker": _MARKERS[(sense - 1) % len(_MARKERS)],
        "color": group_color(sense - 1),
        "linestyle": "none",
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def _draw_points(axes: Axes, shown: SenseMap) -> None:
    drawn = np.array(shown.drawn())
    senses, points = np.array(shown.senses)[drawn], np.asarray(shown.points)[drawn]
    size = float(np.clip(95 / np.sqrt(len(drawn)), 2.5, 8.0))
    for sense in range(1, shown.n_senses + 1):
        x, y = points[senses == sense].T
        axes.plot(x, y, **_look(sense), markersize=size, alpha=0.75)
    for sense, its in enumerate(shown.examples, start=1):
        axes.annotate(
            str(sense), tuple(np.asarray(shown.points)[its[0]]), fontsize=13, fontweight="bold", color=INK,
            ha="center", va="center",
            bbox={"boxstyle": "circle", "fc": "white", "ec": group_color(sense - 1), "lw": 1.8, "alpha": 0.92},
        )  # fmt: skip
    axes.margins(0.06)
    for side in axes.spines.values():
        side.set_color("#dfe5ea")


def _write_senses(
    page: _Page, shown: SenseMap, examples: list[list[Keyword]], top: float, column: float, measure: Measure
) -> None:
    """Each sense with its mark, how many uses it has, and examples with their words in bold in one column."""
    left = _MARGIN + _MAP + _GAP
    blank = measure(" ", size=_SMALL)
    for sense, its in enumerate(examples, start=1):
        page.mark(left + 0.08, top, sense)
        page.write(left + _INDENT, top, f"{sense}   {shown.share(sense)}", weight="bold")
        for before, word, after in its:
            top += _LINE
            page.write(column - blank * before[-1:].isspace(), top, before.rstrip(), size=_SMALL, align="right")
            page.write(column, top, word, size=_SMALL, weight="bold")
            end = column + measure(word, "bold", _SMALL)
            page.write(end + blank * after[:1].isspace(), top, after.lstrip(), size=_SMALL)
        top += 2 * _LINE


def _wrapped(text: str, width: float, measure: Measure) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and measure(longer, size=_SMALL) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
