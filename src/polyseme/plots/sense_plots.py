"""The senses of a word and the neighbors of a use, drawn: a map of uses with examples, and a page of neighbors.

The page of senses is in `senses_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import concordance, escaped, page
from polyseme.plots.similarity_heatmaps import FAINT, INK, FigurePage
from polyseme.plots.word_uses import Keyword, Use

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 5000
"""Points that are drawn at most; of more uses every n-th is drawn, and the plot states the number."""
CONTEXT = 44
"""Characters on each side of the word in examples."""
N_EXAMPLES = 4
"""Of each sense, in the figure."""
NEIGHBOR_CONTEXT = 60
"""Characters on each side of a word."""

# Sizes in inches; of type, in points.
_MARGIN = 0.35
_MAP = 5.6
_GAP = 0.35
_INDENT = 0.24
_LINE = 0.24
_SMALL = 9.5
_WORD_SIZE = 17.0
_MARKERS = "os^DvPX*h"

SIDE = 640
"""The side of the map on a page, in its own units."""
_LISTS_STYLE = """
.lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 0 2.5rem }
.use { font-size: 1.2rem }
""".strip()


class SenseLabel(NamedTuple):
    """What a sense is called, and lines that describe it."""

    name: str
    id: str
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class SenseMap:
    """The content of a map: uses of a word, the sense of each, counted from 1, and their coordinates."""

    word: str
    headline: str
    """The number of senses and of uses."""
    explanation: str
    """The evidence for the number of senses."""
    map: str
    """The name of the projection, written under the points."""
    source: str
    uses: Sequence[Use]
    senses: Sequence[int]
    points: NDArray[Any]
    """[n, 2]"""
    examples: Sequence[Sequence[int]]
    """For each sense the indices of its most typical uses, best first."""
    members: Sequence[Sequence[int]] = ()
    """For each sense the indices of all its uses, in the order of a page; empty: the examples."""
    labels: Sequence[SenseLabel] = ()
    """For each sense what it is called; empty: senses have their numbers alone."""
    notes: Sequence[str] = ()

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
        """The number of uses of a sense, and its share of all uses."""
        count = sum(other == sense for other in self.senses)
        return f"{count:,} use{'' if count == 1 else 's'}, {100 * count / len(self.senses):.0f}%"

    def label(self, sense: int) -> SenseLabel:
        """What a sense is called; counted from 1."""
        return self.labels[sense - 1] if self.labels else SenseLabel("", "", ())

    def left_out(self) -> str:
        """The note for a map on which not every point is drawn."""
        n_drawn = len(self.drawn())
        return "" if n_drawn == len(self.uses) else f", of which {n_drawn:,} are drawn"


# --- figure -----------------------------------------------------------------------------------------------------------


def senses_figure(shown: SenseMap) -> Figure:
    """The map on the left, the senses with examples on the right; `figure_bytes` renders it."""
    page = FigurePage()
    examples = [[shown.uses[use].keyword(CONTEXT) for use in members[:N_EXAMPLES]] for members in shown.examples]
    every = [keyword for keywords in examples for keyword in keywords]
    names = max(page.measure(shown.label(sense).name, "bold") for sense in range(1, shown.n_senses + 1))
    column = _MARGIN + _MAP + _GAP + _INDENT + max(page.measure(before, size=_SMALL) for before, _, _ in every)
    rest = max(page.measure(word, "bold", _SMALL) + page.measure(after, size=_SMALL) for _, word, after in every)
    width = max(column + rest, _MARGIN + _MAP + _GAP + 3.0 + names) + _MARGIN
    explanation = _wrap(shown.explanation, width - 2 * _MARGIN, page)
    top = 0.98 + _LINE * len(explanation)
    n_lines = sum(len(keywords) + 2 for keywords in examples)
    page.resize(width, top + max(_MAP, _LINE * n_lines) + _MARGIN)
    page.write(_MARGIN, 0.42, shown.word, size=_WORD_SIZE, weight="bold")
    page.write(_MARGIN, 0.76, f"{shown.headline} of {shown.source}; {shown.map} of their vectors{shown.left_out()}")
    for number, line in enumerate(explanation):
        page.write(_MARGIN, 1.02 + _LINE * number, line, size=_SMALL, color=FAINT)
    _draw_points(page.axes(_MARGIN, top, _MAP, _MAP, xticks=[], yticks=[]), shown)
    _write_senses(page, shown, examples, top + 0.12, column)
    return page.figure


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
    for sense, members in enumerate(shown.examples, start=1):
        if not members:
            continue
        axes.annotate(
            str(sense), tuple(np.asarray(shown.points)[members[0]]), fontsize=13, fontweight="bold", color=INK,
            ha="center", va="center",
            bbox={"boxstyle": "circle", "fc": "white", "ec": group_color(sense - 1), "lw": 1.8, "alpha": 0.92},
        )  # fmt: skip
    axes.margins(0.06)
    for side in axes.spines.values():
        side.set_color("#dfe5ea")


def _write_senses(page: FigurePage, shown: SenseMap, examples: list[list[Keyword]], top: float, column: float) -> None:
    """Each sense with its marker, its number of uses, and examples with their words aligned in bold."""
    left = _MARGIN + _MAP + _GAP
    figure, line = page.figure, require("matplotlib.lines", extra="plots").Line2D
    for sense, keywords in enumerate(examples, start=1):
        place = ([(left + 0.08) / page.width], [1 - top / page.height])
        figure.add_artist(line(*place, **_look(sense), markersize=7, transform=figure.transFigure))
        name = shown.label(sense).name
        heading = f"{sense}   {name}{', ' if name else ''}{shown.share(sense)}"
        page.write(left + _INDENT, top, heading, weight="bold")
        for keyword in keywords:
            top += _LINE
            page.write_keyword(column, top, keyword, _SMALL)
        top += 2 * _LINE


def _wrap(text: str, width: float, page: FigurePage) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and page.measure(longer, size=_SMALL) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# --- pages ------------------------------------------------------------------------------------------------------------


def on_page(points: NDArray[Any]) -> NDArray[Any]:
    """Points in the square of the page, with a margin, both axes on one scale."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max()) or 1.0
    scaled: NDArray[Any] = (points - (low + high) / 2) / size * (SIDE - 60) * np.array([1, -1]) + SIDE / 2
    return scaled


class UseList(NamedTuple):
    """A heading and uses, each behind a label: its cosine and its id."""

    heading: str
    uses: Sequence[tuple[str, Use]]


def similar_page(use: Use, lists: Sequence[UseList], notes: Sequence[str]) -> str:
    """A page with a use, lists of its neighbors, and notes."""
    before, word, after = use.keyword(NEIGHBOR_CONTEXT * 4)
    sections = [
        f"<section><h2>{escaped(each.heading)}</h2>"
        + (
            concordance([(label, near.keyword(NEIGHBOR_CONTEXT)) for label, near in each.uses])
            if each.uses
            else '<p class="faint">None.</p>'
        )
        + "</section>"
        for each in lists
    ]
    body = "\n".join(
        [
            f"<h1>{escaped(word)}</h1>",
            f'<p class="use" dir="auto">{escaped(before)}<b>{escaped(word)}</b>{escaped(after)}</p>',
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
            f'<div class="lists">{"".join(sections)}</div>',
        ]
    )
    return page(f"Uses near {word}", body, style=_LISTS_STYLE)
