"""Charts: shares as bars in groups, as a figure or in a page; curves over steps and dots on a line, as SVG in a page.

Charts in pages follow the page's colors, dark or light. Names are escaped; numbers that are not finite are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyseme.errors import OptionError
from polyseme.plots.colors import group_color, signed_color, to_hex
from polyseme.plots.html_page import escaped
from polyseme.plots.similarity_heatmaps import FAINT, INK, FigurePage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Sizes in inches; of type, in points.
_MARGIN = 0.35
_LINE = 0.22
_BARS_WIDTH = 5.0
_BARS_TOP = 0.95
_SIZE = 9.0

BARS_STYLE = """
.bars td { border: 0; padding: .08rem .4rem; white-space: nowrap; vertical-align: middle }
.bars { table-layout: auto; width: auto }
.bars td.bar { width: 24rem } .bars td.bar div { position: relative; background: var(--soft); height: .95rem }
.bars td.bar i { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 0 2px 2px 0 }
.bars td.bar b { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--ink); opacity: .55 }
.bars td.name { max-width: 14rem; overflow: hidden; text-overflow: ellipsis; text-align: left }
.bars td.bar u { position: absolute; top: .45rem; height: 1px; background: var(--ink) }
""".strip()

# Sizes of SVG charts, in pixels.
_WIDTH, _HEIGHT = 520, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 26, 38
_FEW = 12
"""Curves with at most so many points have them marked."""
_DOTS_HEIGHT = 74
CHART_STYLE = """
.chart { width: 100%; max-width: 34rem; height: auto; display: block; overflow: visible }
.chart text { font: 12px system-ui, sans-serif; fill: var(--faint); font-variant-numeric: tabular-nums }
.chart .rule { stroke: var(--line); stroke-width: 1 } .chart .axis { stroke: var(--faint); stroke-width: 1 }
.chart path { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
.chart .thin { stroke-width: 1.1; opacity: .75 } .chart .level { stroke-width: 1.3; stroke-dasharray: 5 4 }
.chart .median { stroke: var(--ink); stroke-width: 2 }
.chart .hollow { fill: var(--paper); stroke-width: 1.6 } .chart .known { fill: var(--ink) }
.legend-of { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0; margin: .2rem 0;
  font-size: .85rem } .legend-of i { display: inline-block; width: .9em; height: .25em; border-radius: 2px;
  margin-right: .4em; vertical-align: middle }
""".strip()


class Bar(NamedTuple):
    """A share from 0 to 1 with a name and an interval."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    group: str = ""
    """Bars of one group have one color and are adjacent."""


def bars_figure(bars: Sequence[Bar], *, title: str, note: str = "", baseline: float | None = None) -> Figure:
    """The bars as a figure, with a line at the baseline; `figure_bytes` renders it."""
    if not bars:
        raise OptionError("A figure of bars needs at least one. Got none.")
    page = FigurePage()
    left = _MARGIN + max(page.measure(bar.name, size=_SIZE) for bar in bars) + 0.12
    groups = _groups(bars)
    headed = len(groups) > 1
    n_lines = len(bars) + (2 * len(groups) - 1 if headed else 0)
    # 0.7 for the numbers
    width = max(
        left + _BARS_WIDTH + 0.7 + _MARGIN,
        2 * _MARGIN + page.measure(title, "bold", 13),
        2 * _MARGIN + page.measure(note, size=_SIZE),
    )
    page.resize(width, _BARS_TOP + _LINE * n_lines + 0.55)
    axes = page.axes(left, _BARS_TOP + 0.05, _BARS_WIDTH, _LINE * n_lines, xlim=(0, 1), ylim=(n_lines, 0))
    style: dict[str, Any] = {"fontsize": _SIZE, "color": INK, "va": "center", "parse_math": False}
    line = 0.0
    for number, group in enumerate(groups):
        color = group_color(number)
        if headed:
            axes.text(0, line + 0.55, group[0].group, fontweight="bold", **style)
            line += 1
        for bar in group:
            axes.barh(line + 0.5, bar.value, height=0.72, color=color)
            if bar.low is not None and bar.high is not None:
                axes.plot([bar.low, bar.high], [line + 0.5] * 2, color=INK, linewidth=0.9, solid_capstyle="butt")
            axes.text(-0.012, line + 0.55, bar.name, ha="right", **style)
            axes.text(1.015, line + 0.55, f"{100 * bar.value:.1f}", **style)
            line += 1
        line += 1
    if baseline is not None:
        axes.axvline(baseline, color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_yticks([])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100%"], fontsize=_SIZE, color=FAINT)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    page.write(_MARGIN, 0.4, title, size=13, weight="bold")
    page.write(_MARGIN, 0.68, note, size=_SIZE, color=FAINT)
    return page.figure


def _groups(bars: Sequence[Bar]) -> list[list[Bar]]:
    return [list(group) for _, group in itertools.groupby(bars, key=lambda bar: bar.group)]


def bars_table(bars: Sequence[Bar], *, baseline: float | None = None) -> str:
    """The same as a table in a page; the page needs `BARS_STYLE`."""
    rows: list[str] = []
    line = "" if baseline is None else f'<b style="left:{100 * baseline:.1f}%"></b>'
    groups = _groups(bars)
    for number, group in enumerate(groups):
        if len(groups) > 1:
            rows.append(f'<tr><td colspan="3"><h2>{escaped(group[0].group)}</h2></td></tr>')
        for bar in group:
            interval = ""
            if bar.low is not None and bar.high is not None:
                interval = f'<u style="left:{100 * bar.low:.1f}%;width:{100 * (bar.high - bar.low):.1f}%"></u>'
            rows.append(
                f'<tr><td>{escaped(bar.name)}</td><td class="bar"><div><i style="width:{100 * bar.value:.1f}%;'
                f'background:{group_color(number)}"></i>{line}{interval}</div></td><td>{100 * bar.value:.1f}</td></tr>'
            )
    return f'<table class="bars">{"".join(rows)}</table>'


# --- SVG --------------------------------------------------------------------------------------------------------------


def signed_bars_table(bars: Sequence[tuple[str, float]]) -> str:
    """Numbers of both signs as bars to the left and the right of zero, in a page that has `BARS_STYLE`."""
    largest = max((abs(value) for _, value in bars if math.isfinite(value)), default=1.0) or 1.0
    rows = []
    for name, value in bars:
        if not math.isfinite(value):
            rows.append(f"<tr>{_name(name)}<td></td><td></td></tr>")
            continue
        width = 50 * abs(value) / largest
        color = to_hex(signed_color(1.0 if value > 0 else -1.0))
        style = f"left:{50 if value > 0 else 50 - width:.1f}%;width:{width:.1f}%;background:{color};border-radius:0"
        rows.append(
            f'<tr>{_name(name)}<td class="bar"><div><i style="{style}"></i>'
            f'<b style="left:50%"></b></div></td><td>{f"{value:+.3f}".replace("-", "−")}</td></tr>'
        )
    return f'<table class="bars">{"".join(rows)}</table>'


def _name(name: str) -> str:
    """The name of a bar, which is shown in part where it is long."""
    return f'<td class="name" dir="auto" title="{escaped(name)}">{escaped(name)}</td>'


class Curve(NamedTuple):
    """Points in the order of their first number."""

    name: str
    points: Sequence[tuple[float, float]]
    group: str = ""
    """Curves of one group have one color, and the legend names the group; empty: each curve has its own."""
    errors: Sequence[float] = ()
    """Half the length of each point's error bar; empty: there are none."""
    dashed: bool = False
    """Whether it is a level to compare with, without points of its own."""


class Dot(NamedTuple):
    """A number with a name; hollow ones are set apart."""

    name: str
    value: float
    hollow: bool = False


def lines_chart(curves: Sequence[Curve], *, x: str, y: str, log: bool = False) -> str:
    """Curves over one pair of axes, with a legend if there are several; empty without points.

    With `log` the axis across is logarithmic, and points at 0 or below are left out.
    """
    drawn = [each._replace(points=[*_drawable(each.points, log)]) for each in curves]
    drawn = [each for each in drawn if each.points]
    if not drawn:
        return ""
    across = reach_of([first for each in drawn for first, _ in each.points])
    up = reach_of([value for each in drawn for value in _heights(each)])
    place_x = Scale(*across, _LEFT, _WIDTH - _RIGHT)
    place_y = Scale(*up, _HEIGHT - _BOTTOM, _TOP)
    groups = list(dict.fromkeys(each.group or each.name for each in drawn))
    thin = "thin" if len(drawn) > len(groups) else ""
    whole = all(float(point[0]).is_integer() for each in drawn for point in each.points)
    ticks = _log_places(place_x) if log else round_ticks(place_x, whole=whole)
    parts = [_grid(place_x, place_y, x, y, ticks)]
    for each in drawn:
        color = group_color(groups.index(each.group or each.name))
        places = [(place_x(first), place_y(second)) for first, second in each.points]
        line = "L".join(f"{at:.1f} {height:.1f}" for at, height in places)
        style = "level" if each.dashed else thin
        parts.append(f'<path class="{style}" d="M{line}" stroke="{color}"><title>{escaped(each.name)}</title></path>')
        shown = [] if each.dashed else places if len(places) <= _FEW else places[-1:]
        if len(each.errors) == len(places):
            parts += [
                f'<path class="thin" d="M{at:.1f} {place_y(value - error):.1f}V{place_y(value + error):.1f}" '
                f'stroke="{color}"></path>'
                for (at, _), (_, value), error in zip(places, each.points, each.errors, strict=True)
            ]
        parts += [f'<circle cx="{at:.1f}" cy="{height:.1f}" r="2.3" fill="{color}"></circle>' for at, height in shown]
    legend = "".join(
        f'<li><i style="background:{group_color(number)}"></i>{escaped(name)}</li>'
        for number, name in enumerate(groups)
    )
    return _svg(_HEIGHT, f"{y} over {x}", parts) + (f'<ul class="legend-of">{legend}</ul>' if len(groups) > 1 else "")


def dots_chart(dots: Sequence[Dot], *, median: float | None, label: str) -> str:
    """Numbers as dots on one line, stacked where they would touch, and a stroke at the median."""
    drawn = [dot for dot in dots if math.isfinite(dot.value)]
    if not drawn:
        return ""
    place = Scale(*reach_of([dot.value for dot in drawn]), _LEFT, _WIDTH - _RIGHT)
    ground = _DOTS_HEIGHT - 24
    parts = [f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{ground}" y2="{ground}"></line>']
    parts += [
        f'<text x="{place(tick):.1f}" y="{ground + 17}" text-anchor="middle">{label_text}</text>'
        for tick, label_text in round_ticks(place)
    ]
    if median is not None and math.isfinite(median):
        at = place(median)
        parts.append(f'<line class="median" x1="{at:.1f}" x2="{at:.1f}" y1="6" y2="{ground}"></line>')
    taken: list[tuple[float, int]] = []
    for dot in sorted(drawn, key=lambda dot: dot.value):
        at, level = place(dot.value), 0
        while any(abs(at - other) < 10 and level == other_level for other, other_level in taken):
            level += 1
        taken.append((at, level))
        attributes = f'class="hollow" stroke="{group_color(1)}"' if dot.hollow else f'fill="{group_color(0)}"'
        parts.append(
            f'<circle cx="{at:.1f}" cy="{max(ground - 8 - 11 * level, 5)}" r="5" {attributes}>'
            f"<title>{escaped(dot.name)}</title></circle>"
        )
    return _svg(_DOTS_HEIGHT, label, parts)


def _heights(curve: Curve) -> Iterator[float]:
    """How far up and down a curve reaches, with its error bars."""
    errors = curve.errors if len(curve.errors) == len(curve.points) else [0.0] * len(curve.points)
    for (_, value), error in zip(curve.points, errors, strict=True):
        yield from (value - error, value + error)


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    start = f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escaped(label)}">'
    return f"{start}{''.join(parts)}</svg>"


def _drawable(points: Sequence[tuple[float, float]], log: bool) -> Iterator[tuple[float, float]]:
    """The points that a chart can show, with the logarithm of the first number where the axis is of that."""
    for across, up in points:
        if math.isfinite(across) and math.isfinite(up) and (across > 0 or not log):
            yield (math.log10(across) if log else across), up


def _grid(place_x: Scale, place_y: Scale, x: str, y: str, ticks: Sequence[tuple[float, str]]) -> str:
    parts = []
    for tick, label_text in round_ticks(place_y):
        at = place_y(tick)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"></line>')
        parts.append(f'<text x="{_LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{label_text}</text>')
    for tick, label_text in ticks:
        at = place_x(tick)
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{label_text}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 3}" text-anchor="end">{escaped(x)}</text>')
    parts.append(f'<text x="{_LEFT}" y="12">{escaped(y)}</text>')
    return "".join(parts)


def reach_of(values: Sequence[float]) -> tuple[float, float]:
    """The range of the values with a margin; around a single value some interval."""
    low, high = min(values), max(values)
    spare = (high - low) * 0.05 or abs(high) * 0.01 or 1.0
    return (low - spare if low else low), high + spare


class Scale(NamedTuple):
    """From numbers between `low` and `high` to places between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def round_ticks(scale: Scale, *, whole: bool = False) -> list[tuple[float, str]]:
    """Round numbers, about five of them, 1, 2 or 5 times a power of ten apart, and how they are written."""
    low, high, _, _ = scale
    rough = (high - low) / 5
    power = float(10 ** math.floor(math.log10(rough)))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.7 * rough)
    step = max(step, 1.0) if whole else step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    places = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [(place, f"{place:,.{digits}f}".replace("-", "−")) for place in places]


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers for a logarithmic axis from `low` to `high`, at most about eight, and how they are written.

    >>> log_ticks(8e5, 2e7)
    [(1000000, '1M'), (2000000, '2M'), (5000000, '5M'), (10000000, '10M'), (20000000, '20M')]
    """
    powers = range(math.floor(math.log10(low) - 1e-9), math.ceil(math.log10(high) + 1e-9) + 1)
    for factors in ((1, 2, 5), (1,)):
        places = [factor * 10**power for power in powers for factor in factors]
        ticks = [place for place in places if low * (1 - 1e-9) <= place <= high * (1 + 1e-9)]
        if len(ticks) <= 8:
            break
    return [(place, short_number(place)) for place in ticks]


def _log_places(scale: Scale) -> list[tuple[float, str]]:
    """The same as places on a scale of logarithms."""
    return [(math.log10(place), label) for place, label in log_ticks(10**scale.low, 10**scale.high)]


def short_number(number: float) -> str:
    """A round number in few characters: 10M, 500k, 20."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"
