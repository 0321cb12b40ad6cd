"""The senses of a word as a figure: a map of its uses, and examples of each sense beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyseme.extras import require
from polyseme.plots.palette import group_colour
from polyseme.plots.sense_map import CONTEXT, SenseMap
from polyseme.plots.similarity import DOTS_PER_INCH, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Sizes in inches.
_WIDTH = 12.0
_MAP = 5.6
_MARGIN = 0.35
_LINE = 0.235
_WRAP = 150
"""Characters of a line across the page."""
_MARKERS = "os^DvPX*h"


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
    return f"{shown.headline} of {shown.source}; {shown.map} of their vectors{shown.left_out()}"


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
            bbox={"boxstyle": "circle", "fc": "white", "ec": group_colour(sense - 1), "lw": 1.8, "alpha": 0.92},
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
            before, word, after = shown.uses[example].keyword(CONTEXT)
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
