"""A model as a picture: grids of which states depend on which pieces, and its positions as heat maps; an SVG file, or
a page with the description of the model.

Cells of one shade are one path, so that a table of thousands of numbers stays a small file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.plots.colors import group_color, signed_color, to_hex
from polyseme.plots.html_page import escaped, page
from polyseme.plots.learning_curve import svg_file, svg_text

WIDTH = 760
_LEFT, _RIGHT, _TOP = 56, 20, 60
_N_SHADES = 41
_MOST_COLUMNS = 256
"""Of a heat map; of more, every second, third … is drawn."""
_HIGH = 260
"""Pixels that a heat map is high, about."""
_GRID = 150
"""Pixels that a grid of pieces takes at most, across and down."""
_FEW = 16
"""Pieces up to which grids have names at their sides."""
_NAME = 9
"""Letters of a piece's name that are shown."""
_STYLE = """
.small { font-size: 11px } .part { font-size: 14px; font-weight: 600; fill: #1b2733 }
.cells path { stroke-width: 1; stroke-linejoin: miter } .frame { fill: none; stroke: #b9c4cd }
.empty { fill: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  .part { fill: #e6ebf0 } .frame { stroke: #46535f } .empty { fill: #1e262d }
}
""".strip()


_PAGE_STYLE = """
.picture svg { max-width: 100%; height: auto; margin-top: -1rem } .picture .title { display: none }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem 1.2rem; max-width: 60rem }
dt { color: var(--faint) } dd { margin: 0 }
""".strip()


class PieceGrid(NamedTuple):
    """Which states (rows) depend on which pieces (columns)."""

    title: str
    pieces: Sequence[str]
    depends: NDArray[np.bool_]


class HeatMap(NamedTuple):
    """A table of numbers of both signs; columns are counted from 0."""

    title: str
    values: NDArray[np.float64]
    first: int
    """The number of the first row."""
    rows: str
    columns: str


def model_picture(title: str, grids: Sequence[PieceGrid], maps: Sequence[HeatMap], notes: Sequence[str]) -> str:
    """The picture: grids beside each other, heat maps below them, each with its title, and notes at the end."""
    parts, y = [f"<style>{_STYLE}</style>"], float(_TOP)
    if grids:
        parts.append(
            svg_text(_LEFT, y, "Who sees whom: one row per state, marked at the pieces that it depends on", "part")
        )
        drawn, y = _grids(grids, y + 14)
        parts += drawn
    for heat_map in maps:
        drawn, y = _heat_map(heat_map, y + 26)
        parts += drawn
    for note in notes:
        y += 20
        parts.append(svg_text(_LEFT, y, note, "small"))
    return svg_file(title, parts, height=round(y + 24), width=WIDTH)


def model_page(title: str, description: Sequence[tuple[str, str]], picture: str) -> str:
    """The page: names and values, and the picture below them; nothing is fetched."""
    rows = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in description)
    body = f'<h1>{escaped(title)}</h1>\n<dl>{rows}</dl>\n<div class="picture">{picture}</div>'
    return page(title, body, style=_PAGE_STYLE)


# --- grids of pieces --------------------------------------------------------------------------------------------------


def _grids(grids: Sequence[PieceGrid], y: float) -> tuple[list[str], float]:
    """As many beside each other as there is room for."""
    n_pieces = max(len(grid.pieces) for grid in grids)
    named = n_pieces <= _FEW
    names_wide = 6.4 * max((len(_shorten(piece)) for grid in grids for piece in grid.pieces), default=0) if named else 0
    names_high = 0.75 * names_wide + 8 if named else 0
    cell = _GRID / n_pieces
    wide, high = names_wide + 12 + _GRID + 16, names_high + 24 + _GRID + 14
    across = max(1, int((WIDTH - _LEFT - _RIGHT + 16) // wide))
    parts = []
    for number, grid in enumerate(grids):
        x = _LEFT + wide * (number % across) + names_wide + 6
        top = y + high * (number // across) + 20 + names_high
        parts.append(svg_text(x, top - names_high - 6, grid.title))
        if named:
            for place, piece in enumerate(map(_shorten, grid.pieces)):
                middle = (place + 0.5) * cell
                parts.append(svg_text(x - 5, top + middle + 4, piece, "small", anchor="end"))
                at = f"{x + middle + 3:.1f} {top - 5:.1f}"
                parts.append(f'<g transform="translate({at}) rotate(-50)">{svg_text(0, 0, piece, "small")}</g>')
        parts.append(f'<rect class="empty" x="{x:.1f}" y="{top:.1f}" width="{_GRID}" height="{_GRID}"/>')
        parts += _cells(_runs(grid.depends.astype(int)), {1: group_color(0)}, x, top, cell, cell)
        parts.append(f'<rect class="frame" x="{x:.1f}" y="{top:.1f}" width="{_GRID}" height="{_GRID}"/>')
    return parts, y + high * math.ceil(len(grids) / across)


def _shorten(piece: str) -> str:
    return piece if len(piece) <= _NAME else f"{piece[: _NAME - 1]}…"


# --- heat maps --------------------------------------------------------------------------------------------------------


def _heat_map(heat_map: HeatMap, y: float) -> tuple[list[str], float]:
    step = math.ceil(heat_map.values.shape[1] / _MOST_COLUMNS)
    values = heat_map.values[:, ::step]
    n_rows, n_columns = values.shape
    end = float(np.quantile(np.abs(values), 0.99)) or float(np.abs(values).max()) or 1.0
    shades = np.rint((np.clip(values / end, -1, 1) + 1) / 2 * (_N_SHADES - 1)).astype(int)
    colors = {shade: to_hex(signed_color(2 * shade / (_N_SHADES - 1) - 1)) for shade in range(_N_SHADES)}
    high = min(max(_HIGH / n_rows, 3.0), 10.0)
    wide = high if heat_map.rows == heat_map.columns else min((WIDTH - _LEFT - _RIGHT) / n_columns, 22.0)
    size = n_columns * wide, n_rows * high
    parts = [svg_text(_LEFT, y, heat_map.title, "part")]
    every = f"every {_ordinal(step)} {heat_map.columns}" if step > 1 else heat_map.columns
    parts.append(svg_text(_LEFT, y + 17, f"down: {heat_map.rows}; across: {every}", "small"))
    parts += _legend(end, y + 17)
    top = y + 28
    parts += _cells(_runs(shades), colors, _LEFT, top, wide, high)
    parts.append(f'<rect class="frame" x="{_LEFT}" y="{top:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}"/>')
    for number in _ticks(heat_map.first, n_rows):
        middle = top + (number - heat_map.first + 0.5) * high + 4
        parts.append(svg_text(_LEFT - 5, middle, str(number).replace("-", "−"), "small", anchor="end"))
    for column in _ticks(0, n_columns):
        at = _LEFT + (column + 0.5) * wide
        parts.append(svg_text(at, top + size[1] + 14, str(column * step), "small", anchor="middle"))
    return parts, top + size[1] + 18


def _legend(end: float, y: float) -> list[str]:
    """The scale of colors, at the right."""
    x, wide = WIDTH - _RIGHT - 150.0, 80.0
    colors = [to_hex(signed_color(share)) for share in np.linspace(-1, 1, 17)]
    bar = wide / len(colors)
    bars = [
        f'<rect x="{x + number * bar:.1f}" y="{y - 9:.1f}" width="{bar + 0.3:.1f}" height="10" fill="{color}"/>'
        for number, color in enumerate(colors)
    ]
    ends = [svg_text(x - 5, y, f"−{end:.2g}", "small", anchor="end"), svg_text(x + wide + 5, y, f"{end:.2g}", "small")]
    return [*bars, *ends]


def _ticks(first: int, n: int) -> list[int]:
    """At most ten of n numbers, in round steps."""
    step = next(each for each in (1, 2, 4, 8, 16, 32, 64, 128) if n / each <= 10)
    return [number for number in range(first, first + n) if number % step == 0]


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


# --- cells ------------------------------------------------------------------------------------------------------------


def _runs(shades: NDArray[np.int64]) -> dict[int, list[str]]:
    """Of each shade, the runs of equal cells in all rows, as commands of a path."""
    runs: dict[int, list[str]] = {}
    for row, line in enumerate(shades.tolist()):
        start = 0
        for column in range(1, len(line) + 1):
            if column == len(line) or line[column] != line[start]:
                runs.setdefault(line[start], []).append(f"M{start} {row + 0.5:g}h{column - start}")
                start = column
    return runs


def _cells(
    runs: dict[int, list[str]], colors: dict[int, str], x: float, y: float, wide: float, high: float
) -> list[str]:
    """Each shade as one path, in units of cells; a shade without a color is not drawn."""
    drawn = [(colors[shade], "".join(lines)) for shade, lines in sorted(runs.items()) if shade in colors]
    paths = [f'<path stroke="{color}" d="{line}"/>' for color, line in drawn]
    placed = f"translate({x:.1f} {y:.1f}) scale({wide:.4f} {high:.4f})"
    return [f'<g class="cells" shape-rendering="crispEdges" transform="{placed}">', *paths, "</g>"]
