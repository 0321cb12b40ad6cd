"""Small charts as SVG inside a page: lines over steps, and dots on a line.

They follow the page's colors, dark or light. Whatever names come in are escaped; numbers that are not finite are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped

_WIDTH, _HEIGHT = 520, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 26, 38
_FEW = 12
"""Points of a curve that are also drawn as points."""
_DOTS_WIDTH, _DOTS_HEIGHT = 520, 74
CHART_STYLE = """
.chart { width: 100%; max-width: 34rem; height: auto; display: block; overflow: visible }
.chart text { font: 12px system-ui, sans-serif; fill: var(--faint); font-variant-numeric: tabular-nums }
.chart .rule { stroke: var(--line); stroke-width: 1 } .chart .axis { stroke: var(--faint); stroke-width: 1 }
.chart path { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
.chart .thin { stroke-width: 1.1; opacity: .75 } .chart .median { stroke: var(--ink); stroke-width: 2 }
.chart .hollow { fill: var(--paper); stroke-width: 1.6 } .chart .known { fill: var(--ink) }
.legend-of { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0; margin: .2rem 0;
  font-size: .85rem } .legend-of i { display: inline-block; width: .9em; height: .25em; border-radius: 2px;
  margin-right: .4em; vertical-align: middle }
""".strip()


class Curve(NamedTuple):
    """Points in the order of their first number."""

    name: str
    points: Sequence[tuple[float, float]]
    group: str = ""
    """Curves of one group have one color, and the legend names the group; empty: each curve has its own."""


class Dot(NamedTuple):
    """A number under a name; a hollow one counts apart."""

    name: str
    value: float
    hollow: bool = False


def lines_chart(curves: Sequence[Curve], *, x: str, y: str) -> str:
    """Curves over one pair of axes, with a legend where there are several; nothing where there are no points."""
    kept = [
        Curve(each.name, [point for point in each.points if all(map(math.isfinite, point))], each.group)
        for each in curves
    ]
    kept = [each for each in kept if each.points]
    if not kept:
        return ""
    across, up = (_reach([point[side] for each in kept for point in each.points]) for side in (0, 1))
    place_x = _scale(across, _LEFT, _WIDTH - _RIGHT)
    place_y = _scale(up, _HEIGHT - _BOTTOM, _TOP)
    groups = list(dict.fromkeys(each.group or each.name for each in kept))
    thin = "thin" if len(kept) > len(groups) else ""
    whole = all(float(point[0]).is_integer() for each in kept for point in each.points)
    parts = [_grid(across, up, x, y, whole=whole)]
    for each in kept:
        color = group_color(groups.index(each.group or each.name))
        places = [(place_x(first), place_y(second)) for first, second in each.points]
        line = "L".join(f"{at:.1f} {height:.1f}" for at, height in places)
        parts.append(f'<path class="{thin}" d="M{line}" stroke="{color}"><title>{escaped(each.name)}</title></path>')
        shown = places if len(places) <= _FEW else places[-1:]
        parts += [f'<circle cx="{at:.1f}" cy="{height:.1f}" r="2.3" fill="{color}"></circle>' for at, height in shown]
    legend = "".join(
        f'<li><i style="background:{group_color(number)}"></i>{escaped(name)}</li>'
        for number, name in enumerate(groups)
    )
    picture = (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escaped(f"{y} over {x}")}">'
        f"{''.join(parts)}</svg>"
    )
    return picture + (f'<ul class="legend-of">{legend}</ul>' if len(groups) > 1 else "")


def dots_chart(dots: Sequence[Dot], *, median: float | None, label: str) -> str:
    """Numbers as dots on one line, one above the other where they would touch, and a stroke at the median."""
    kept = [dot for dot in dots if math.isfinite(dot.value)]
    if not kept:
        return ""
    reach = _reach([dot.value for dot in kept])
    place = _scale(reach, _LEFT, _DOTS_WIDTH - _RIGHT)
    ground = _DOTS_HEIGHT - 24
    parts = [f'<line class="axis" x1="{_LEFT}" x2="{_DOTS_WIDTH - _RIGHT}" y1="{ground}" y2="{ground}"></line>']
    parts += [
        f'<text x="{place(tick):.1f}" y="{ground + 17}" text-anchor="middle">{said}</text>'
        for tick, said in _ticks(reach)
    ]
    if median is not None and math.isfinite(median):
        at = place(median)
        parts.append(f'<line class="median" x1="{at:.1f}" x2="{at:.1f}" y1="6" y2="{ground}"></line>')
    taken: list[tuple[float, int]] = []
    for dot in sorted(kept, key=lambda each: each.value):
        at, level = place(dot.value), 0
        while any(abs(at - other) < 10 and level == its for other, its in taken):
            level += 1
        taken.append((at, level))
        look = (
            f'class="hollow" stroke="{group_color(1)}"' if dot.hollow else f'fill="{group_color(0)}"'
        )  # fmt: skip
        parts.append(
            f'<circle cx="{at:.1f}" cy="{max(ground - 8 - 11 * level, 5)}" r="5" {look}>'
            f"<title>{escaped(dot.name)}</title></circle>"
        )
    return (
        f'<svg class="chart" viewBox="0 0 {_DOTS_WIDTH} {_DOTS_HEIGHT}" role="img" aria-label="{escaped(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _grid(across: tuple[float, float], up: tuple[float, float], x: str, y: str, *, whole: bool) -> str:
    place_x, place_y = _scale(across, _LEFT, _WIDTH - _RIGHT), _scale(up, _HEIGHT - _BOTTOM, _TOP)
    parts = []
    for tick, said in _ticks(up):
        at = place_y(tick)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"></line>')
        parts.append(f'<text x="{_LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{said}</text>')
    for tick, said in _ticks(across, whole=whole):
        at = place_x(tick)
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{said}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 3}" text-anchor="end">{escaped(x)}</text>')
    parts.append(f'<text x="{_LEFT}" y="12">{escaped(y)}</text>')
    return "".join(parts)


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest, a little beyond; of one number, something around it."""
    low, high = min(values), max(values)
    spare = (high - low) * 0.05 or abs(high) * 0.01 or 1.0
    return (low - spare if low else low), high + spare


def _scale(reach: tuple[float, float], start: float, end: float) -> _Scale:
    return _Scale(*reach, start, end)


class _Scale(NamedTuple):
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _ticks(reach: tuple[float, float], *, whole: bool = False) -> list[tuple[float, str]]:
    """Round numbers, about five of them, 1, 2 or 5 times a power of ten apart, and how they are written."""
    low, high = reach
    rough = (high - low) / 5
    power = float(10 ** math.floor(math.log10(rough)))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.7 * rough)
    step = max(step, 1.0) if whole else step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    places = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [(place, f"{place:,.{digits}f}".replace("-", "−")) for place in places]
