"""The figures of a sweep against its settings, with the spread over seeds: as a picture that stands alone, in a page.

A figure is drawn against a number where a number varies and few other settings do; otherwise its points are listed one
below the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from polyseme.plots.charts import CHART_STYLE, Scale, log_ticks, reach_of, round_ticks
from polyseme.plots.colors import group_color
from polyseme.plots.figures_table import FIGURES_STYLE, figures_table
from polyseme.plots.html_page import escaped, page
from polyseme.plots.learning_curve import HEIGHT, WIDTH, svg_file, svg_grid, svg_legend, svg_path, svg_scales, svg_text

MOST_CURVES = 5
"""Of more combinations of the other settings, points are listed."""
WIDE = 10.0
"""An axis whose largest number is so many times its smallest is logarithmic."""
_ASIDE = 8.0
"""Pixels between the bars of two curves at one place."""
_LINE = 22
_TOP = 64
_BOTTOM = 26
_BELOW_TITLE = 14
_FAR = 100.0
"""A list whose largest number is so many times its smallest has a logarithmic axis."""
SWEEP_CHART_STYLE = f"{CHART_STYLE}\n.chart {{ max-width: {WIDTH}px; margin: .3rem 0 }}"
"""Charts are as wide as they were drawn, so that their text has the size of other notes."""


class PicturePoint(NamedTuple):
    """A point of the grid: its settings, and a figure of it over seeds."""

    settings: Mapping[str, Any]
    label: str
    mean: float
    spread: float
    """The standard deviation."""
    values: Sequence[float]
    """Of every seed."""
    printed: str = ""
    """The figure as it is printed in a list; empty: with the decimals that all of them have."""


class PictureFigure(NamedTuple):
    """A figure with its points."""

    name: str
    points: Sequence[PicturePoint]


class _Panel(NamedTuple):
    height: int
    parts: list[str]


def sweep_picture(title: str, settings: Sequence[str], figures: Sequence[PictureFigure]) -> str:
    """An SVG file with one panel per figure."""
    parts, top = [], _BELOW_TITLE
    for panel in [_panel(settings, figure) for figure in figures]:
        size = f'y="{top}" width="{WIDTH}" height="{panel.height}" viewBox="0 0 {WIDTH} {panel.height}"'
        parts.append(f"<svg {size}>{''.join(panel.parts)}</svg>")
        top += panel.height
    return svg_file(title, parts, height=max(top, _TOP))


def sweep_page(
    title: str,
    settings: Sequence[str],
    figures: Sequence[PictureFigure],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> str:
    """The page, self-contained and without scripts."""
    parts = [
        f"<h1>{escaped(title)}</h1>",
        figures_table(columns, rows),
        *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
        *sweep_charts(settings, figures),
    ]
    return page(title, "\n".join(parts), style=f"{FIGURES_STYLE}\n{SWEEP_CHART_STYLE}")


def sweep_charts(settings: Sequence[str], figures: Sequence[PictureFigure]) -> list[str]:
    """Each figure as an element of a page, which needs `SWEEP_CHART_STYLE`."""
    return [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {panel.height}" role="img" aria-label="{escaped(figure.name)}">'
        f"{''.join(panel.parts)}</svg>"
        for figure in figures
        for panel in [_panel(settings, figure)]
    ]


def _panel(settings: Sequence[str], figure: PictureFigure) -> _Panel:
    axis = _number_axis(settings, figure.points)
    if axis is not None:
        others = list(dict.fromkeys(_other_settings(point, axis) for point in figure.points))
        if len(others) <= MOST_CURVES:
            return _curves(figure, axis, others)
    return _list(figure)


def _number_axis(settings: Sequence[str], points: Sequence[PicturePoint]) -> str | None:
    """The first setting that is a number at every point, and not always the same."""
    for name in settings:
        values = [point.settings.get(name) for point in points]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) == len(values) and len(set(numbers)) > 1:
            return name
    return None


def _other_settings(point: PicturePoint, axis: str) -> str:
    others = {name: value for name, value in point.settings.items() if name != axis}
    return ", ".join(str(value) if name == "row" else f"{name}={value}" for name, value in others.items())


def _curves(figure: PictureFigure, axis: str, groups: Sequence[str]) -> _Panel:
    places = [float(point.settings[axis]) for point in figure.points]
    log = min(places) > 0 and max(places) / min(places) >= WIDE

    def at(place: float) -> float:
        return math.log10(place) if log else place

    spare = (at(max(places)) - at(min(places))) * 0.06
    low, high = at(min(places)) - spare, at(max(places)) + spare
    across, up = svg_scales((low, high), _heights(figure.points))
    ticks = [(at(place), f"{place:g}") for place in sorted(set(places))]
    if len(ticks) > 9:
        round_places = log_ticks(10**low, 10**high) if log else round_ticks(across)
        ticks = [(at(place), label) for place, label in round_places]
    parts = svg_grid(across, up, ticks, x=axis, y=figure.name)
    decimals = _decimals(figure.points)
    first, last = across.start, across.end
    for number, group in enumerate(groups):
        color, aside = f'stroke="{group_color(number)}"', _ASIDE * (number - (len(groups) - 1) / 2)
        across = Scale(low, high, first + aside, last + aside)
        points = [point for point in figure.points if _other_settings(point, axis) == group]
        points.sort(key=lambda point: float(point.settings[axis]))
        line = [(at(float(point.settings[axis])), point.mean) for point in points]
        parts.append(svg_path(line, across, up, color))
        for place, point in zip((place for place, _ in line), points, strict=True):
            bar = [(place, point.mean - point.spread), (place, point.mean + point.spread)]
            parts += [svg_path(bar, across, up, color)] if point.spread else []
            parts += [_dot(across(place) + 4, up(value), number, 1.8, faint=True) for value in _seeds(point)]
            parts.append(_dot(across(place), up(point.mean), number, 3.6, title=_title(point, decimals)))
    named = [(f'stroke="{group_color(number)}"', group) for number, group in enumerate(groups) if group]
    return _Panel(HEIGHT, [*parts, *svg_legend(named)])


def _list(figure: PictureFigure) -> _Panel:
    """One line per point, under each other."""
    left = 24 + min(max(7.2 * len(point.label) for point in figure.points), 330)
    bottom = _TOP + _LINE * len(figure.points)
    decimals = _decimals(figure.points)
    across, ticks = _list_axis(_heights(figure.points), left)
    parts = [svg_text(8, _TOP - 14, figure.name)]
    for tick, label in ticks:
        parts.append(f'<line class="rule" x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(svg_text(across(tick), bottom + 18, label, anchor="middle"))
    for number, point in enumerate(figure.points):
        height = _TOP + _LINE * (number + 0.5)
        label = point.label if len(point.label) <= 46 else f"{point.label[:45]}…"
        parts.append(svg_text(left - 10, height + 4, label, anchor="end"))
        ends = across(point.mean - point.spread), across(point.mean + point.spread)
        if point.spread:
            parts.append(f'<path stroke="{group_color(0)}" d="M{ends[0]:.1f} {height:.1f}H{ends[1]:.1f}"/>')
        parts += [_dot(across(value), height + 5, 0, 1.8, faint=True) for value in _seeds(point)]
        parts.append(_dot(across(point.mean), height, 0, 3.6, title=_title(point, decimals)))
        parts.append(svg_text(WIDTH - 74, height + 4, point.printed or f"{point.mean:.{decimals}f}"))
    return _Panel(bottom + _BOTTOM, parts)


def _list_axis(values: Sequence[float], left: float) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """Where numbers lie in a list, and the round ones among them."""
    if is_wide(values):
        logs = Scale(*reach_of([math.log10(value) for value in values]), left, WIDTH - 84)
        return lambda value: logs(math.log10(value)), log_ticks(10**logs.low, 10**logs.high)
    plain = Scale(*reach_of(values), left, WIDTH - 84)
    return plain.__call__, round_ticks(plain)


def is_wide(values: Sequence[float]) -> bool:
    """Whether numbers are so far apart that a list of them needs a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) >= _FAR


def _heights(points: Sequence[PicturePoint]) -> list[float]:
    return [
        height
        for point in points
        for height in (point.mean - point.spread, point.mean + point.spread, *point.values)
        if math.isfinite(height)
    ]


def _seeds(point: PicturePoint) -> list[float]:
    """The values of single seeds, where there are several."""
    return [value for value in point.values if math.isfinite(value)] if len(point.values) > 1 else []


def _decimals(points: Sequence[PicturePoint]) -> int:
    """The decimals that all numbers of a figure have."""
    return 1 if any(abs(point.mean) >= 20 for point in points) else 3


def _title(point: PicturePoint, decimals: int) -> str:
    spread = f" ± {point.spread:.{decimals}f}" if point.spread else ""
    return f"{point.label}: {point.printed or f'{point.mean:.{decimals}f}'}{spread}"


def _dot(at: float, height: float, group: int, radius: float, *, faint: bool = False, title: str = "") -> str:
    seen = ' opacity="0.45"' if faint else ""
    named = f"<title>{escaped(title)}</title>" if title else ""
    return f'<circle cx="{at:.1f}" cy="{height:.1f}" r="{radius}" fill="{group_color(group)}"{seen}>{named}</circle>'
