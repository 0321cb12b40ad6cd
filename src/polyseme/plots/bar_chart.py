"""Shares as bars, one below the other, in groups: how often a model was right, by paradigm."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped
from polyseme.plots.similarity_heatmaps import DOTS_PER_INCH, FAINT, INK, Measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Sizes in inches; of type, in points.
_MARGIN = 0.35
_LINE = 0.22
_WIDTH = 5.0
_TOP = 0.95
_SIZE = 9.0

PAGE_STYLE = """
.bars td { border: 0; padding: .08rem .4rem; white-space: nowrap; vertical-align: middle }
.bars { table-layout: auto; width: auto }
.bars td.bar { width: 24rem } .bars td.bar div { position: relative; background: var(--soft); height: .95rem }
.bars td.bar i { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 0 2px 2px 0 }
.bars td.bar b { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--ink); opacity: .55 }
.bars td.bar u { position: absolute; top: .45rem; height: 1px; background: var(--ink) }
""".strip()


class Bar(NamedTuple):
    """A share from 0 to 1 under a name, and between what it may lie."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    group: str = ""
    """Bars of one group have one color and stand together."""


def bars_figure(bars: Sequence[Bar], *, title: str, note: str = "", chance: float | None = None) -> Figure:
    """The bars as a figure, with a line where chance would be; `figure_bytes` makes a picture of it."""
    if not bars:
        raise OptionError("A figure of bars needs at least one. Got none.")
    figure: Figure = require("matplotlib.figure", extra="plots").Figure(facecolor="white", dpi=DOTS_PER_INCH)
    measure = Measure(figure)
    left = _MARGIN + max(measure(bar.name, size=_SIZE) for bar in bars) + 0.12
    groups = [list(its) for _, its in itertools.groupby(bars, key=lambda bar: bar.group)]
    headed = len(groups) > 1
    n_lines = len(bars) + (2 * len(groups) - 1 if headed else 0)
    # 0.7 for the numbers
    width = max(
        left + _WIDTH + 0.7 + _MARGIN, 2 * _MARGIN + measure(title, "bold", 13), 2 * _MARGIN + measure(note, size=_SIZE)
    )
    height = _TOP + _LINE * n_lines + 0.55
    figure.set_size_inches(width, height)
    axes = figure.add_axes(
        (left / width, 0.5 / height, _WIDTH / width, _LINE * n_lines / height), xlim=(0, 1), ylim=(n_lines, 0)
    )
    line = 0.0
    for number, its in enumerate(groups):
        color = group_color(number)
        if headed:
            axes.text(
                0,
                line + 0.55,
                its[0].group,
                fontsize=_SIZE,
                fontweight="bold",
                color=INK,
                va="center",
                parse_math=False,
            )
            line += 1
        for bar in its:
            axes.barh(line + 0.5, bar.value, height=0.72, color=color)
            if bar.low is not None and bar.high is not None:
                axes.plot([bar.low, bar.high], [line + 0.5] * 2, color=INK, linewidth=0.9, solid_capstyle="butt")
            axes.text(
                -0.012, line + 0.55, bar.name, fontsize=_SIZE, color=INK, ha="right", va="center", parse_math=False
            )
            axes.text(1.015, line + 0.55, f"{100 * bar.value:.1f}", fontsize=_SIZE, color=INK, va="center")
            line += 1
        line += 1
    if chance is not None:
        axes.axvline(chance, color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_yticks([])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"], fontsize=_SIZE, color=FAINT)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.text(
        _MARGIN / width,
        1 - 0.4 / height,
        title,
        fontsize=13,
        fontweight="bold",
        color=INK,
        va="center",
        parse_math=False,
    )
    figure.text(_MARGIN / width, 1 - 0.68 / height, note, fontsize=_SIZE, color=FAINT, va="center", parse_math=False)
    return figure


def bars_table(bars: Sequence[Bar], *, chance: float | None = None) -> str:
    """The same as part of a page, whose style needs `PAGE_STYLE`."""
    rows: list[str] = []
    line = "" if chance is None else f'<b style="left:{100 * chance:.1f}%"></b>'
    groups = [list(its) for _, its in itertools.groupby(bars, key=lambda bar: bar.group)]
    for number, its in enumerate(groups):
        if len(groups) > 1:
            rows.append(f'<tr><td colspan="3"><h2>{escaped(its[0].group)}</h2></td></tr>')
        for bar in its:
            reach = ""
            if bar.low is not None and bar.high is not None:
                reach = f'<u style="left:{100 * bar.low:.1f}%;width:{100 * (bar.high - bar.low):.1f}%"></u>'
            rows.append(
                f'<tr><td>{escaped(bar.name)}</td><td class="bar"><div><i style="width:{100 * bar.value:.1f}%;'
                f'background:{group_color(number)}"></i>{line}{reach}</div></td><td>{100 * bar.value:.1f}</td></tr>'
            )
    return f'<table class="bars">{"".join(rows)}</table>'
