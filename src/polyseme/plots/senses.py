"""The senses of a word as a picture: a map of its uses, and examples of each sense beside it.

`senses_figure` draws with matplotlib (PNG, SVG); `senses_page` is a page of its own, on which the sentence of each
point can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.plots.page import concordance, data, escaped, page
from polyseme.plots.palette import group_colour
from polyseme.plots.similarity import DOTS_PER_INCH, FAINT, INK
from polyseme.plots.uses import Use

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 5000
"""Points that are drawn; of more uses, every so-and-so-many-th, and the picture says so."""
_MARKERS = "os^DvPX*h"
_CONTEXT = 44
"""Characters on each side of the word in examples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SenseMap:
    """What is drawn: uses of a word, the sense of each, counted from 1, and where each lies."""

    word: str
    how: str
    """How the number of senses was found."""
    map: str
    """How the points were laid out: pca, tsne, umap."""
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

    @property
    def headline(self) -> str:
        n_uses = len(self.uses)
        return f"{self.n_senses} sense{'' if self.n_senses == 1 else 's'} in {n_uses:,} use{'' if n_uses == 1 else 's'}"

    def drawn(self) -> list[int]:
        """The uses whose points are drawn."""
        step = -(-len(self.uses) // MOST_POINTS)
        return list(range(0, len(self.uses), step))

    def share(self, sense: int) -> str:
        """How many uses a sense has, and which part of all."""
        count = sum(each == sense for each in self.senses)
        return f"{count:,} use{'' if count == 1 else 's'}, {100 * count / len(self.senses):.0f}%"


# --- with matplotlib -------------------------------------------------------------------------------------------------

_WIDTH = 12.0
_MAP = 5.6
_MARGIN = 0.35
_LINE = 0.235
_WRAP = 150


def senses_figure(shown: SenseMap, *, n_examples: int = 4) -> Figure:
    """The map on the left, the senses with examples on the right; `figure_bytes` makes a picture of it."""
    figure: Figure = require("matplotlib.figure", extra="plots").Figure(facecolor="white", dpi=DOTS_PER_INCH)
    lines = _text_lines(shown, n_examples)
    how = _wrapped(shown.how, _WRAP)
    top = 0.95 + _LINE * len(how)
    height = max(_MAP, _LINE * len(lines)) + top + _MARGIN
    figure.set_size_inches(_WIDTH, height)
    _write(figure, height, _MARGIN, 0.42, f"{shown.word}", size=17, weight="bold")
    _write(figure, height, _MARGIN, 0.74, _caption(shown), size=10.5, colour=FAINT)
    for number, line in enumerate(how):
        _write(figure, height, _MARGIN, 1.0 + _LINE * number, line, size=9, colour=FAINT)
    axes = figure.add_axes(
        (_MARGIN / _WIDTH, 1 - (top + _MAP) / height, _MAP / _WIDTH, _MAP / height), frameon=True, xticks=[], yticks=[]
    )
    _draw_points(axes, shown)
    left = _MARGIN + _MAP + 0.35
    for number, (marker, text, colour, bold) in enumerate(lines):
        at = top + 0.15 + _LINE * number
        _write(figure, height, left + 0.22, at, text, size=9.5, colour=colour, weight="bold" if bold else "normal")
        if marker is not None:
            _draw_marker(figure, height, left + 0.08, at, marker)
    return figure


def _caption(shown: SenseMap) -> str:
    return f"{shown.headline} of {shown.source}; {shown.map} of their vectors{_left_out(shown)}"


def _left_out(shown: SenseMap) -> str:
    n_drawn = len(shown.drawn())
    return "" if n_drawn == len(shown.uses) else f", of which {n_drawn:,} are drawn"


def _draw_points(axes: Axes, shown: SenseMap) -> None:
    drawn = np.array(shown.drawn())
    senses = np.array(shown.senses)[drawn]
    points = np.asarray(shown.points)[drawn]
    size = float(np.clip(9000 / len(drawn), 6, 60))
    for sense in range(1, shown.n_senses + 1):
        its = points[senses == sense]
        axes.scatter(
            its[:, 0], its[:, 1], s=size, marker=_MARKERS[(sense - 1) % len(_MARKERS)], color=group_colour(sense - 1),
            alpha=0.75, linewidths=0.4, edgecolors="white",
        )  # fmt: skip
    for sense, examples in enumerate(shown.examples, start=1):
        x, y = np.asarray(shown.points)[examples[0]]
        axes.annotate(
            str(sense), (x, y), fontsize=13, fontweight="bold", color=INK, ha="center", va="center",
            bbox={"boxstyle": "circle,pad=0.25", "fc": "white", "ec": group_colour(sense - 1), "lw": 1.8, "alpha": 0.92},
        )  # fmt: skip
    axes.margins(0.06)
    for side in axes.spines.values():
        side.set_color("#dfe5ea")


def _text_lines(shown: SenseMap, n_examples: int) -> list[tuple[int | None, str, str, bool]]:
    """What stands beside the map: the sense whose mark goes before a line, the line, its colour, whether it is bold."""
    lines: list[tuple[int | None, str, str, bool]] = []
    for sense, examples in enumerate(shown.examples, start=1):
        lines.append((sense, f"{sense}   {shown.share(sense)}", INK, True))
        for example in examples[:n_examples]:
            before, word, after = shown.uses[example].keyword(_CONTEXT)
            lines.append((None, f"{before}{word}{after}", INK, False))
        lines.append((None, "", INK, False))
    return lines


def _draw_marker(figure: Figure, height: float, x: float, y: float, sense: int) -> None:
    line: Any = require("matplotlib.lines", extra="plots").Line2D
    figure.add_artist(
        line(
            [x / _WIDTH], [1 - y / height], marker=_MARKERS[(sense - 1) % len(_MARKERS)], markersize=7,
            color=group_colour(sense - 1), linestyle="none", transform=figure.transFigure,
        )
    )  # fmt: skip


def _write(
    figure: Figure,
    height: float,
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    colour: str = INK,
    weight: str = "normal",
) -> None:
    """A line of text, placed in inches from the left and from the top, by its middle."""
    figure.text(
        x / _WIDTH, 1 - y / height, text, fontsize=size, color=colour, fontweight=weight, va="center_baseline",
        parse_math=False,
    )  # fmt: skip


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]


# --- as a page -------------------------------------------------------------------------------------------------------

_SIDE = 640
_STYLE = """
.map { position: relative; margin: 1rem 0 } .map svg { width: 100%; max-width: 44rem; height: auto;
  background: var(--soft); border: 1px solid var(--line); border-radius: 6px; display: block }
.map circle { stroke: var(--paper); stroke-width: .8; opacity: .8 } .map circle.at { stroke: var(--ink);
  stroke-width: 2.5; opacity: 1 } .dim circle { opacity: .1 } .dim circle.shown { opacity: .9 }
#said { min-height: 3.2em; padding: .4rem .7rem; border-left: 4px solid var(--line); background: var(--soft);
  max-width: 44rem } .layout { display: grid; grid-template-columns: minmax(0, 44rem) minmax(0, 1fr); gap: 2rem }
@media (max-width: 60rem) { .layout { grid-template-columns: minmax(0, 1fr) } }
h2 { cursor: default } h2 i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
""".strip()
_SCRIPT = """
"use strict";
const shown = JSON.parse(document.getElementById("data").textContent);
const said = document.getElementById("said"), map = document.getElementById("map");
const points = Array.from(map.querySelectorAll("circle"));
function say(point) {
  points.forEach(each => each.classList.toggle("at", each === point));
  const [sense, before, word, after, id] = shown[Number(point.dataset.use)];
  const bold = document.createElement("b");
  bold.textContent = word;
  const foot = document.createElement("div");
  foot.className = "faint";
  foot.textContent = "sense " + sense + ", text " + id;
  said.replaceChildren(before, bold, after, foot);
  said.style.borderColor = point.getAttribute("fill");
}
points.forEach(point => ["mouseenter", "focus", "click"].forEach(kind => point.addEventListener(kind, () => say(point))));
document.querySelectorAll("h2[data-sense]").forEach(head => {
  head.addEventListener("mouseenter", () => {
    map.classList.add("dim");
    points.forEach(each => each.classList.toggle("shown", each.dataset.sense === head.dataset.sense));
  });
  head.addEventListener("mouseleave", () => map.classList.remove("dim"));
});
""".strip()


def senses_page(shown: SenseMap, ids: Sequence[str], *, n_examples: int = 5) -> str:
    """The map as a page: a point says its sentence when it is pointed at, a sense's heading shows its points."""
    drawn = shown.drawn()
    places = _on_page(np.asarray(shown.points)[drawn])
    radius = float(np.clip(120 / np.sqrt(len(drawn)), 3.0, 7.0))
    circles = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{group_colour(shown.senses[use] - 1)}" '
        f'data-use="{number}" data-sense="{shown.senses[use]}"></circle>'
        for number, (use, (x, y)) in enumerate(zip(drawn, places, strict=True))
    ]
    spoken = [[shown.senses[use], *_whole(shown.uses[use]), ids[use]] for use in drawn]
    sections = [
        f'<h2 data-sense="{sense}"><i style="background:{group_colour(sense - 1)}"></i>Sense {sense} '
        f'<span class="faint">{shown.share(sense)}</span></h2>'
        + concordance([(ids[use], shown.uses[use].keyword(_CONTEXT)) for use in examples[:n_examples]])
        for sense, examples in enumerate(shown.examples, start=1)
    ]
    body = "\n".join(
        [
            f"<h1>{escaped(shown.word)}</h1>",
            f"<p><b>{escaped(shown.headline)}</b> of {escaped(shown.source)}</p>",
            f'<p class="faint">{escaped(shown.how)}</p>',
            '<div class="layout"><div>',
            f'<div class="map"><svg id="map" viewBox="0 0 {_SIDE} {_SIDE}" role="img" '
            f'aria-label="Map of the uses">{"".join(circles)}</svg></div>',
            '<div id="said" dir="auto" aria-live="polite"><span class="faint">Point at a use to read it.</span></div>',
            f'<p class="faint">{escaped(shown.map)} of the vectors{escaped(_left_out(shown))}.</p>',
            f"</div><div>{''.join(sections)}</div></div>",
            data(spoken),
        ]
    )
    return page(f"{shown.word}: {shown.headline}", body, style=_STYLE, script=_SCRIPT)


def _on_page(points: NDArray[Any]) -> NDArray[Any]:
    """Points in the page's square, with a margin, both directions on one scale."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max()) or 1.0
    scaled: NDArray[Any] = (points - (low + high) / 2) / size * (_SIDE - 60) * np.array([1, -1]) + _SIDE / 2
    return scaled


def _whole(use: Use) -> tuple[str, str, str]:
    """The sentence of a use: long texts around the word."""
    return use.keyword(240)
