"""Scores against the number of training items, as a picture that stands alone; for pages there is `lines_chart`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.charts import log_ticks
from polyseme.plots.colors import group_color
from polyseme.plots.learning_curve import svg_file, svg_grid, svg_legend, svg_path, svg_scales


class ScorePoint(NamedTuple):
    """The score with a number of training items over all seeds: the median, the lowest, the highest."""

    n_items: int
    median: float
    low: float
    high: float


class ScoreCurve(NamedTuple):
    """The points of one model, by rising number of items."""

    name: str
    points: Sequence[ScorePoint]


def share_curve(curves: Sequence[ScoreCurve], *, title: str, y: str, baseline: float | None = None) -> str:
    """Medians over a logarithmic axis with a stroke from the lowest to the highest; what knows no text is dashed."""
    points = [point for curve in curves for point in curve.points]
    low, high = min(each.n_items for each in points), max(each.n_items for each in points)
    heights = [height for each in points for height in (each.low, each.high)]
    heights += [] if baseline is None else [baseline]
    room = 1.15 if high > low else 2.0
    across, up = svg_scales((math.log10(low / room), math.log10(high * room)), heights)
    ticks = [(math.log10(place), label) for place, label in log_ticks(low / room, high * room)]
    parts = svg_grid(across, up, ticks, x="training items", y=y)
    legend: list[tuple[str, str]] = []
    for number, curve in enumerate(curves):
        color = group_color(number)
        places = [(math.log10(each.n_items), each) for each in curve.points]
        parts.append(svg_path([(at, each.median) for at, each in places], across, up, f'stroke="{color}"'))
        for at, each in places:
            parts.append(f'<circle cx="{across(at):.1f}" cy="{up(each.median):.1f}" r="3.2" fill="{color}"/>')
            if each.high > each.low:
                parts.append(svg_path([(at, each.low), (at, each.high)], across, up, f'stroke="{color}"'))
        legend.append((f'stroke="{color}"', curve.name))
    if baseline is not None:
        line = [(across.low, baseline), (across.high, baseline)]
        parts.append(svg_path(line, across, up, 'class="dashed"'))
        legend.append(('class="dashed"', "baseline"))
    return svg_file(title, [*parts, *svg_legend(legend)])
