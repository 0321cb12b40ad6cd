"""Learning curves as a figure: a score against how much was read, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyseme.errors import OptionError
from polyseme.plots.charts import Curve, log_ticks
from polyseme.plots.colors import group_color
from polyseme.plots.similarity_heatmaps import FAINT, INK, FigurePage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Sizes in inches; of type, in points.
_MARGIN = 0.35
_WIDTH, _HEIGHT = 5.6, 3.4
_TOP, _LEFT, _BOTTOM = 0.95, 0.75, 0.75
_LEGEND = 0.75
"""Beside the names of a legend: the gap to the axes, and the strokes."""
_SIZE = 9.0


def curves_figure(
    curves: Sequence[Curve], *, title: str, x: str, y: str, note: str = "", baseline: float | None = None
) -> Figure:
    """The curves over a logarithmic axis, named beside it; `figure_bytes` renders it.

    A curve that belongs to the group of another is drawn thin.
    """
    drawn = [each for each in curves if each.points]
    if not drawn or min(point[0] for each in drawn for point in each.points) <= 0:
        raise OptionError("A figure of curves over a logarithmic axis needs points with numbers above 0.")
    page = FigurePage()
    names = max(page.measure(each.name, size=_SIZE) for each in drawn)
    width = max(
        _LEFT + _WIDTH + _LEGEND + names + _MARGIN,
        2 * _MARGIN + page.measure(title, "bold", 13),
        2 * _MARGIN + page.measure(note, size=_SIZE),
    )
    page.resize(width, _TOP + _HEIGHT + _BOTTOM)
    axes = page.axes(_LEFT, _TOP, _WIDTH, _HEIGHT)
    axes.set_xscale("log")
    for number, each in enumerate(drawn):
        is_main = each.group in ("", each.name)
        axes.plot(
            [point[0] for point in each.points],
            [point[1] for point in each.points],
            color=group_color(number),
            linewidth=2.2 if is_main else 1.0,
            marker="o",
            markersize=4 if is_main else 2.5,
            label=each.name,
            zorder=3 if is_main else 2,
        )
    if baseline is not None:
        axes.axhline(baseline, color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
    reach = [point[0] for each in drawn for point in each.points]
    ticks = log_ticks(min(reach), max(reach))
    axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks], fontsize=_SIZE, color=FAINT)
    axes.minorticks_off()
    axes.tick_params(labelsize=_SIZE, labelcolor=FAINT, length=0)
    axes.grid(axis="y", color="#dfe5ea", linewidth=0.8)
    axes.set_xlabel(x, fontsize=_SIZE, color=FAINT)
    axes.set_ylabel(y, fontsize=_SIZE, color=FAINT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    if len(drawn) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), frameon=False, fontsize=_SIZE, labelcolor=INK)
    page.write(_MARGIN, 0.4, title, size=13, weight="bold")
    page.write(_MARGIN, 0.68, note, size=_SIZE, color=FAINT)
    return page.figure
