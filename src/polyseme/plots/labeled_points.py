"""Points with names over two axes, each of which may be logarithmic: an SVG file.

A name is placed where it covers neither a point nor another name. If there is no such place, it is shown on hovering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from polyseme.plots.charts import Scale, round_ticks, short_number
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped
from polyseme.plots.learning_curve import WIDTH, svg_file, svg_text

HEIGHT = 460
_MANY, _EACH = 20, 9
"""So many names fit; each one more makes the picture higher by so many pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 30, 86, 50
_LETTER, _LINE = 6.6, 13
"""Approximate width of a letter and height of a line, in pixels."""
_RADIUS = 4


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
    groups = list(dict.fromkeys(point.group for point in points))
    parts = []
    for tick, label in up.ticks(high):
        parts.append(f'<path class="grid" d="M{_LEFT} {high(tick):.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(svg_text(_LEFT - 8, high(tick) + 4, label, anchor="end"))
    for tick, label in across.ticks(wide):
        parts.append(f'<path class="grid" d="M{wide(tick):.1f} {_TOP}V{height - _BOTTOM}"/>')
        parts.append(svg_text(wide(tick), height - _BOTTOM + 19, label, anchor="middle"))
    parts.append(svg_text(WIDTH - _RIGHT, height - 10, across.name, anchor="end"))
    parts.append(svg_text(8, _TOP - 12, up.name))
    places = [(wide(across.place(point.x)), high(up.place(point.y))) for point in points]
    for point, (x, y) in zip(points, places, strict=True):
        color = group_color(groups.index(point.group))
        fill = f'fill="none" stroke="{color}" stroke-width="1.6"' if point.hollow else f'fill="{color}"'
        label = f"{point.name}: {point.x:.4g}, {point.y:.4g}"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" {fill}><title>{escaped(label)}</title></circle>')
    parts += _names([point.name for point in points], places, height - _BOTTOM)
    if len(groups) > 1:
        left = float(_LEFT)
        for number, group in enumerate(groups):
            hollow = all(point.hollow for point in points if point.group == group)
            color = group_color(number)
            fill = f'fill="none" stroke="{color}" stroke-width="1.6"' if hollow else f'fill="{color}"'
            parts.append(f'<circle cx="{left + 4:.0f}" cy="50" r="{_RADIUS}" {fill}/>')
            parts.append(svg_text(left + 14, 54.5, group))
            left += 14 + 7.4 * len(group) + 20
    return svg_file(title, [f"<style>{_STYLE}</style>", *parts], height=height)


_STYLE = """
.grid { stroke: #dfe5ea; stroke-width: 1 } .small { font-size: 11.5px }
@media (prefers-color-scheme: dark) { .grid { stroke: #2c363f } }
""".strip()


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    spare = (high - low) * 0.07 or 0.5
    return Scale(low - spare, high + spare, start, end)


Box = tuple[float, float, float, float]


def _names(names: Sequence[str], places: Sequence[tuple[float, float]], bottom: float) -> list[str]:
    """Names beside their points: to the right where there is room, else to the left, above or below."""
    taken: list[Box] = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places]
    parts, shown = [], set()
    for name, (x, y) in sorted(zip(names, places, strict=True), key=lambda each: each[1]):
        if name in shown:
            continue
        width = _LETTER * len(name)
        candidates = (
            (x + 8, y + 4, "start", x + 7),
            (x - 8, y + 4, "end", x - 8 - width),
            (x, y - 9, "middle", x - width / 2),
            (x, y + 18, "middle", x - width / 2),
            (x + 6, y - 8, "start", x + 6),
            (x + 6, y + 16, "start", x + 6),
            (x - 6, y - 8, "end", x - 6 - width),
            (x - 6, y + 16, "end", x - 6 - width),
        )
        for at, base, anchor, left in candidates:
            box = (left, base - _LINE + 2, left + width, base + 3)
            inside = box[0] > _LEFT and box[2] < WIDTH - 4 and box[1] > _TOP - 14 and box[3] < bottom
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                shown.add(name)
                parts.append(svg_text(at, base, name, "small", anchor=anchor))
                break
    return parts


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
