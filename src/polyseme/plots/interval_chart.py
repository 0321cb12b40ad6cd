"""Numbers with their intervals and a bound for each, one below the other: SVG in a page, without scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.charts import Scale, reach_of, round_ticks
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped
from polyseme.plots.learning_curve import WIDTH, svg_text

_LEFT, _RIGHT = 24, 24
_HEIGHT, _LINE, _GROUND = 84, 40, 60


class Interval(NamedTuple):
    """A number, how far its interval reaches to both sides, and the bound that it is compared with."""

    name: str
    value: float
    reach: float
    bound: float


def interval_charts(intervals: Sequence[Interval]) -> list[str]:
    """Each number on an axis of its own; the page needs `CHART_STYLE`. Intervals without an end are left out."""
    return [_chart(each) for each in intervals if math.isfinite(each.value) and math.isfinite(each.reach)]


def _chart(interval: Interval) -> str:
    name, value, reach, bound = interval
    across = Scale(*reach_of([value - reach, value + reach, bound]), _LEFT, WIDTH - _RIGHT)
    color, ends = group_color(0), (across(value - reach), across(value + reach))
    parts = [svg_text(_LEFT, 16, name)]
    parts += [f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{_GROUND}" y2="{_GROUND}"/>']
    parts += [svg_text(across(tick), _GROUND + 17, label, anchor="middle") for tick, label in round_ticks(across)]
    parts.append(f'<path class="level median" d="M{across(bound):.1f} {_LINE - 14}V{_GROUND}"/>')
    parts.append(f'<path stroke="{color}" d="M{ends[0]:.1f} {_LINE}H{ends[1]:.1f}"/>')
    parts += [f'<path stroke="{color}" d="M{end:.1f} {_LINE - 5}V{_LINE + 5}"/>' for end in ends]
    label = f"{name}: {value:+.4g} ± {reach:.2g}"
    parts.append(
        f'<circle cx="{across(value):.1f}" cy="{_LINE}" r="4.5" fill="{color}"><title>{escaped(label)}</title></circle>'
    )
    start = f'<svg class="chart" viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-label="{escaped(label)}">'
    return f"{start}{''.join(parts)}</svg>"
