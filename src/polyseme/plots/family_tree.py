"""A family tree over years: every node has a row of its own, below its first parent; an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polyseme.plots.colors import group_color
from polyseme.plots.html_page import escaped
from polyseme.plots.learning_curve import svg_file, svg_text

WIDTH = 900
_LEFT, _RIGHT, _TOP, _ROW = 30, 170, 76, 19
_ASIDE = 14
"""Pixels by which a node stands to the right of a parent of its own year, so that no line runs through it."""
_STYLE = """
.grid { stroke: #dfe5ea; stroke-width: 1 } .small { font-size: 12px }
.branch { stroke: #8796a3; stroke-width: 1.3 } .other { stroke: #b9c4cd; stroke-width: 1; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  .grid { stroke: #2c363f } .branch { stroke: #6d7c89 } .other { stroke: #46535f }
}
""".strip()


class TreeNode(NamedTuple):
    """A node, its year, and its parents: the first is the main one, lines to the others are dashed."""

    name: str
    year: int
    parents: Sequence[str] = ()
    marked: bool = False


def family_tree(title: str, nodes: Sequence[TreeNode], *, marked: str = "", unmarked: str = "") -> str:
    """The text of the file; `marked` and `unmarked` name the two colors in the legend."""
    years = sorted({node.year for node in nodes})
    step = (WIDTH - _LEFT - _RIGHT) / max(len(years) - 1, 1)
    order = _depth_first(nodes)
    aside = _asides(order)
    place = {
        node.name: (_LEFT + step * years.index(node.year) + _ASIDE * aside[node.name], _TOP + 22 + _ROW * row)
        for row, node in enumerate(order)
    }
    bottom = _TOP + 22 + _ROW * len(order)
    parts = [f"<style>{_STYLE}</style>"]
    for number, year in enumerate(years):
        x = _LEFT + step * number
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP + 6}V{bottom - 8}"/>')
        parts.append(svg_text(x, _TOP, str(year), "small", anchor="middle"))
    for node in order:
        x, y = place[node.name]
        for number, parent in enumerate(node.parents):
            from_x, from_y = place[parent]
            kind = "other" if number else "branch"
            parts.append(f'<path class="{kind}" d="M{from_x:.1f} {from_y:.1f}C{from_x:.1f} {y:.1f} {from_x:.1f} '
                         f'{y:.1f} {x:.1f} {y:.1f}"/>')  # fmt: skip
    for node in order:
        x, y = place[node.name]
        label = escaped(f"{node.name}, {node.year}" + (f", from {', '.join(node.parents)}" if node.parents else ""))
        color = group_color(0 if node.marked else 1)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"><title>{label}</title></circle>')
        parts.append(svg_text(x + 8, y + 4, node.name, "small"))
    left = float(_LEFT)
    for number, text in enumerate((marked, unmarked)):
        if text:
            parts.append(f'<circle cx="{left:.0f}" cy="50" r="4" fill="{group_color(number)}"/>')
            parts.append(svg_text(left + 10, 54.5, text))
            left += 10 + 7.4 * len(text) + 24
    if any(len(node.parents) > 1 for node in nodes):
        parts += [f'<path class="other" d="M{left:.0f} 50h26"/>', svg_text(left + 34, 54.5, "a further parent")]
    return svg_file(title, parts, height=round(bottom + 6), width=WIDTH)


def _asides(order: Sequence[TreeNode]) -> dict[str, int]:
    """How many parents of its own year each node has above it; all of one year are children of the first of them."""
    known = {node.name: node for node in order}
    asides: dict[str, int] = {}
    for node in order:
        parent = known.get(node.parents[0]) if node.parents else None
        asides[node.name] = asides[parent.name] + 1 if parent is not None and parent.year == node.year else 0
    return asides


def _depth_first(nodes: Sequence[TreeNode]) -> list[TreeNode]:
    """Every node below its first parent, children in the order of their years."""
    children: dict[str | None, list[TreeNode]] = {}
    known: Mapping[str, TreeNode] = {node.name: node for node in nodes}
    for node in nodes:
        children.setdefault(node.parents[0] if node.parents else None, []).append(node)
    ordered: list[TreeNode] = []
    waiting = sorted(children.get(None, []), key=lambda node: node.year, reverse=True)
    while waiting:
        node = waiting.pop()
        ordered.append(known[node.name])
        waiting += sorted(children.get(node.name, []), key=lambda child: child.year, reverse=True)
    return ordered
