"""Trees over sentences as SVG: arcs above the words and arcs below them, and depths as two lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped

ARCS_STYLE = """
.arcs { display: block; overflow-x: auto; margin: .6rem 0 1.2rem } .arcs text { font: 14px system-ui, sans-serif;
  fill: var(--ink); text-anchor: middle } .arcs path { fill: none; stroke-width: 1.6 }
.arcs .gold { stroke: var(--faint) } .arcs circle.gold { fill: var(--faint); stroke: none }
.arcs .side { fill: var(--faint); font-size: 11px; text-anchor: start }
""".strip()
_CHARACTER, _GAP, _STEP = 7.6, 18.0, 15.0
"""Pixels of a character, between words, and that an arc rises for each word it spans."""
_TEXT = 20.0
"""Height of the line of words."""
_MOST_RISE = 12
_SIDE = 60.0
"""Room for the names of the sides."""

Edge = tuple[int, int]


def arcs_picture(
    words: Sequence[str], above: Collection[Edge], below: Collection[Edge], *, names: tuple[str, str]
) -> str:
    """A sentence with one tree above and another below; arcs below that are not above have another color.

    Args:
        words: those of the sentence; escaped here.
        above: edges as pairs of places.
        below: the same of the other tree.
        names: of the two trees.
    """
    centers, width = _places(words)
    rises = [max((_rise(edge) for edge in edges), default=1) * _STEP + 8 for edges in (above, below)]
    line = rises[0] + _TEXT - 5
    shared = {tuple(sorted(edge)) for edge in above}
    parts = [_side(names[0], 12), _side(names[1], rises[0] + _TEXT + rises[1] - 2), _words(words, centers, line)]
    parts += [_arc(edge, centers, rises[0], -1, 'class="gold"') for edge in sorted(above)]
    for edge in sorted(below):
        color = group_color(0 if tuple(sorted(edge)) in shared else 1)
        parts.append(_arc(edge, centers, rises[0] + _TEXT, 1, f'stroke="{color}"'))
    return _svg(parts, width, rises[0] + _TEXT + rises[1], f"{names[0]} and {names[1]}")


def depths_picture(words: Sequence[str], gold: Sequence[float], predicted: Sequence[float]) -> str:
    """The depths of a sentence's words, the root on top: gold in gray, predicted in color."""
    centers, width = _places(words)
    deepest = max([1.0, *gold, *predicted])
    heights = [[10 + _STEP * 1.6 * depth for depth in each] for each in (gold, predicted)]
    bottom = 10 + _STEP * 1.6 * deepest
    parts = [_words(words, centers, bottom + _TEXT + 4)]
    for places, attributes in zip(heights, ('class="gold"', f'stroke="{group_color(0)}"'), strict=True):
        line = "L".join(f"{at:.1f} {height:.1f}" for at, height in zip(centers, places, strict=True))
        parts.append(f'<path d="M{line}" {attributes}></path>')
    return _svg(parts, width, bottom + _TEXT + 10, "depths")


def _places(words: Sequence[str]) -> tuple[list[float], float]:
    """The middle of each word, and the width of all."""
    centers, at = [], _SIDE
    for word in words:
        size = max(_columns(word), 2) * _CHARACTER
        centers.append(at + size / 2)
        at += size + _GAP
    return centers, at


def _columns(word: str) -> int:
    """The width of a word in characters; those of Chinese, Japanese and Korean are twice as wide.

    >>> _columns("vase"), _columns("花瓶")
    (4, 4)
    """
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in word)


def _rise(edge: Edge) -> int:
    return min(abs(edge[0] - edge[1]), _MOST_RISE)


def _arc(edge: Edge, centers: Sequence[float], ground: float, direction: int, attributes: str) -> str:
    first, second = sorted(edge)
    start, end = centers[first] + 3, centers[second] - 3
    top = ground + direction * _rise(edge) * _STEP * 4 / 3  # a curve reaches three quarters of the way
    ends = ground + direction * 2
    curve = f"M{start:.1f} {ends:.1f}C{start:.1f} {top:.1f} {end:.1f} {top:.1f} {end:.1f} {ends:.1f}"
    return f'<path d="{curve}" {attributes}></path>'


def _words(words: Sequence[str], centers: Sequence[float], height: float) -> str:
    return "".join(
        f'<text x="{at:.1f}" y="{height:.1f}">{escaped(word)}</text>' for word, at in zip(words, centers, strict=True)
    )


def _side(name: str, height: float) -> str:
    return f'<text class="side" x="0" y="{height:.1f}">{escaped(name)}</text>'


def _svg(parts: Sequence[str], width: float, height: float, label: str) -> str:
    start = f'<svg width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escaped(label)}">'
    return f'<div class="arcs">{start}{"".join(parts)}</svg></div>'
