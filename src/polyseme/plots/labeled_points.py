"""Points with names over two axes, each of which may be logarithmic: an SVG file.

A name has one or several points, which a thin line joins. Hollow points are larger, so that another one at the same
place is seen within them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.charts import Scale, round_ticks, short_number
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped
from polyseme.plots.learning_curve import svg_file, svg_text
from polyseme.plots.name_places import Box, Place, place_names

WIDTH, HEIGHT = 900, 500
_MANY, _EACH = 20, 9
"""So many names fit; each one more makes the picture higher by so many pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 30, 86, 50
_RADIUS, _HOLLOW_RADIUS = 4, 6.5
_ASIDE = 14
"""Pixels between points of one date that would cover each other."""


class LabeledPoint(NamedTuple):
    """A point with a name."""

    name: str
    x: float
    y: float
    group: str = ""
    """The group in the legend, whose points have one color."""
    hollow: bool = False


class Axis(NamedTuple):
    """The name of an axis, and how its numbers are placed and written."""

    name: str
    log: bool = False
    whole: bool = False
    """Whether its ticks are whole numbers without separators: years."""

    def place(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def text(self, value: float) -> str:
        """A number of this axis in words; of years, with the month."""
        if self.whole:
            months = round(value * 12)
            return f"{months // 12}-{months % 12 + 1:02d}"
        return short_number(float(f"{value:.4g}")).replace("e+", "e")

    def ticks(self, scale: Scale) -> list[tuple[float, str]]:
        """Places on the axis, with their labels."""
        if not self.log:
            ticks = round_ticks(scale, whole=self.whole)
            return [(place, f"{place:.0f}") for place, _ in ticks] if self.whole else ticks
        powers = range(math.ceil(scale.low), math.floor(scale.high) + 1)
        return [(power, f"1e{power}" if power >= 13 else short_number(10.0**power)) for power in powers]


def labeled_points(title: str, points: Sequence[LabeledPoint], *, across: Axis, up: Axis) -> str:
    """The picture as an SVG file."""
    wide = _scale([across.place(point.x) for point in points], _LEFT, WIDTH - _RIGHT)
    height = HEIGHT + _EACH * max(len({point.name for point in points}) - _MANY, 0)
    high = _scale([up.place(point.y) for point in points], height - _BOTTOM, _TOP)
    parts = [f"<style>{_STYLE}</style>"]
    for tick, label in up.ticks(high):
        parts.append(f'<path class="grid" d="M{_LEFT} {high(tick):.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(svg_text(_LEFT - 8, high(tick) + 4, label, anchor="end"))
    for tick, label in across.ticks(wide):
        parts.append(f'<path class="grid" d="M{wide(tick):.1f} {_TOP}V{height - _BOTTOM}"/>')
        parts.append(svg_text(wide(tick), height - _BOTTOM + 19, label, anchor="middle"))
    parts.append(svg_text(WIDTH - _RIGHT, height - 10, across.name, anchor="end"))
    parts.append(svg_text(8, _TOP - 12, up.name))
    places = _side_by_side(
        [(point.name, (wide(across.place(point.x)), high(up.place(point.y)))) for point in points],
        _ASIDE if across.whole else 0,
    )
    of_name: dict[str, list[Place]] = {}
    for point, place in zip(points, places, strict=True):
        of_name.setdefault(point.name, []).append(place)
    joined = [each for each in of_name.values() if len(set(each)) > 1]
    parts += [f'<path class="joined" d="M{_line(each)}"/>' for each in joined]
    groups = list(dict.fromkeys(point.group for point in points))
    for point, (x, y) in sorted(zip(points, places, strict=True), key=lambda each: not each[0].hollow):
        group = f" ({point.group})" if point.group else ""
        title_of_point = f"{point.name}{group}: {across.text(point.x)}, {up.text(point.y)}"
        parts.append(_dot(x, y, groups.index(point.group), point.hollow, title_of_point))
    area = Box(_LEFT, _TOP - 14, WIDTH - 4, height - _BOTTOM)
    names = place_names(of_name, _HOLLOW_RADIUS, area)
    for name in names:
        if name.leader is not None:
            parts.append(f'<path class="leader" d="M{_line(name.leader)}"/>')
        parts.append(svg_text(name.x, name.y, name.name, "small", anchor=name.anchor))
    n_hidden = len(of_name) - len(names)
    if n_hidden:
        parts.append(
            svg_text(_LEFT, height - 10, f"{n_hidden} more {'name' if n_hidden == 1 else 'names'} on hovering", "small")
        )
    return svg_file(title, [*parts, *_legend(points, groups, bool(joined))], height=height, width=WIDTH)


_STYLE = """
.grid { stroke: #dfe5ea; stroke-width: 1 } .small { font-size: 11.5px }
.joined { stroke: #8796a3; stroke-width: 1.2 } .leader { stroke: #b9c4cd; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  .grid { stroke: #2c363f } .joined { stroke: #6d7c89 } .leader { stroke: #46535f }
}
""".strip()


def _side_by_side(points: Sequence[tuple[str, Place]], aside: float) -> list[Place]:
    """Names of one date beside each other where their points, or the lines that join them, would meet."""
    reach: dict[tuple[str, float], list[float]] = {}
    for name, (x, y) in points:
        reach.setdefault((name, round(x, 1)), []).append(y)
    lanes: dict[tuple[str, float], int] = {}
    for (name, x), heights in reach.items():
        others = [
            lanes[other]
            for other, theirs in reach.items()
            if other in lanes and other[1] == x
            if min(heights) < max(theirs) + aside and min(theirs) < max(heights) + aside
        ]
        lanes[name, x] = next(lane for lane in (0, 1, -1, *range(2, len(points) + 1)) if lane not in others)
    return [(x + aside * lanes[name, round(x, 1)], y) for name, (x, y) in points]


def _dot(x: float, y: float, group: int, hollow: bool, title: str = "") -> str:
    color = group_color(group)
    # A ring is hovered over inside, too.
    fill = f'fill="none" pointer-events="all" stroke="{color}" stroke-width="1.6"' if hollow else f'fill="{color}"'
    named = f"<title>{escaped(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_HOLLOW_RADIUS if hollow else _RADIUS}" {fill}>{named}</circle>'


def _line(places: Sequence[Place]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _legend(points: Sequence[LabeledPoint], groups: Sequence[str], joined: bool) -> list[str]:
    """The groups, where there are several, and what a line joins."""
    parts, left = [], float(_LEFT)
    for number, group in enumerate(groups if len(groups) > 1 else ()):
        hollow = all(point.hollow for point in points if point.group == group)
        parts += [_dot(left + 4, 50, number, hollow), svg_text(left + 16, 54.5, group)]
        left += 16 + 7.4 * len(group) + 20
    if joined:
        parts.append(f'<path class="joined" d="M{left:.0f} 50h22"/>')
        parts.append(svg_text(left + 28, 54.5, "joins the points of one system"))
    return parts


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    spare = (high - low) * 0.07 or 0.5
    return Scale(low - spare, high + spare, start, end)
