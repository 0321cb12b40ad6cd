"""The learning curve of a run as a picture that stands alone: an SVG file that needs no other library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from polyseme.plots.charts import Scale, reach_of, round_ticks, short_number
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped

Points = Sequence[tuple[float, float]]

# Sizes in pixels.
WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 24, 84, 48
_MOST_POINTS = 300
"""Of a curve; more are averaged in groups."""
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #55636f; font-variant-numeric: tabular-nums }
.title { font-size: 16px; font-weight: 650; fill: #1b2733 }
.paper { fill: #fff } .rule { stroke: #dfe5ea }
path { fill: none; stroke-width: 1.8; stroke-linejoin: round }
.faint { opacity: .7; stroke-width: 1.3 } .dashed { stroke: #55636f; stroke-width: 1.3; stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #a3b0bc } .title { fill: #e6ebf0 } .paper { fill: #161c22 } .rule { stroke: #2c363f }
  .dashed { stroke: #a3b0bc }
}
""".strip()


def learning_curve(training: Points, held_out: Points, *, unigram_entropy: float | None, title: str) -> str:
    """Loss in nats against pieces read: in training, on held-out text, and of knowing frequencies only (dashed)."""
    training, held_out = _thin_out(_finite(training)), _finite(held_out)
    every = [*training, *held_out]
    heights = [height for _, height in every] + ([] if unigram_entropy is None else [unigram_entropy])
    right = max((at for at, _ in every), default=1.0)
    across, up = svg_scales((0.0, max(right, 1.0)), heights)
    ticks = [(tick, short_number(tick)) for tick, _ in round_ticks(across, whole=True)]
    parts = svg_grid(across, up, ticks, x="pieces read", y="nats")
    legend: list[tuple[str, str]] = []
    if unigram_entropy is not None:
        height = up(unigram_entropy)
        parts.append(f'<path class="dashed" d="M{_LEFT} {height:.1f}L{WIDTH - _RIGHT} {height:.1f}"/>')
    if training:
        parts.append(svg_path(training, across, up, f'class="faint" stroke="{group_color(0)}"'))
        legend.append((f'class="faint" stroke="{group_color(0)}"', "training"))
    if held_out:
        color = group_color(1)
        parts.append(svg_path(held_out, across, up, f'stroke="{color}"'))
        parts += [f'<circle cx="{across(at):.1f}" cy="{up(y):.1f}" r="2.6" fill="{color}"/>' for at, y in held_out]
        legend.append((f'stroke="{color}"', f"held-out ({held_out[-1][1]:.2f})"))
    if unigram_entropy is not None:
        legend.append(('class="dashed"', f"unigram entropy ({unigram_entropy:.2f})"))
    return svg_file(title, [*parts, *svg_legend(legend)])


def svg_file(title: str, parts: Sequence[str], *, height: int = HEIGHT, width: int = WIDTH) -> str:
    """A picture with a title above its parts."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            f"<title>{escaped(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            svg_text(_LEFT, 30, title, "title"),
            *parts,
            "</svg>",
            "",
        ]
    )


def _finite(points: Points) -> list[tuple[float, float]]:
    return [(at, height) for at, height in points if math.isfinite(at) and math.isfinite(height)]


def _thin_out(points: Points) -> list[tuple[float, float]]:
    """Means of so many points each that few are left."""
    size = math.ceil(len(points) / _MOST_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(fmean(at for at, _ in group), fmean(height for _, height in group)) for group in groups]


def svg_path(points: Points, across: Scale, up: Scale, attributes: str) -> str:
    """A line through points."""
    line = "L".join(f"{across(at):.1f} {up(height):.1f}" for at, height in points)
    return f'<path {attributes} d="M{line}"/>'


def svg_scales(across: tuple[float, float], heights: Sequence[float]) -> tuple[Scale, Scale]:
    """Where numbers lie in a picture: between two numbers across, and in the range of the heights."""
    return Scale(*across, _LEFT, WIDTH - _RIGHT), Scale(*reach_of(heights or [0.0]), HEIGHT - _BOTTOM, _TOP)


def svg_grid(across: Scale, up: Scale, ticks: Sequence[tuple[float, str]], *, x: str, y: str) -> list[str]:
    """Rules at round heights, labels at the ticks, and the names of both axes."""
    parts = []
    for tick, label in round_ticks(up):
        height = f"{up(tick):.1f}"
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(svg_text(_LEFT - 8, up(tick) + 4, label, anchor="end"))
    parts += [svg_text(across(tick), HEIGHT - _BOTTOM + 19, label, anchor="middle") for tick, label in ticks]
    parts.append(svg_text(WIDTH - _RIGHT, HEIGHT - 8, x, anchor="end"))
    parts.append(svg_text(_LEFT - 8, _TOP - 12, y, anchor="end") if len(y) < 6 else svg_text(8, _TOP - 12, y))
    return parts


def svg_legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    """Strokes with their names, in one line under the title."""
    parts, left = [], float(_LEFT)
    for attributes, name in entries:
        parts.append(f'<path {attributes} d="M{left:.0f} 50h22"/>')
        parts.append(svg_text(left + 28, 54.5, name))
        left += 28 + 7.2 * len(name) + 18
    return parts


def svg_text(at: float, height: float, text: str, css_class: str = "", *, anchor: str = "start") -> str:
    """A text that begins, ends or has its middle at a place."""
    named = f' class="{css_class}"' if css_class else ""
    return f'<text{named} x="{at:.1f}" y="{height:.1f}" text-anchor="{anchor}">{escaped(text)}</text>'
