"""Tables of figures in pages: plain, or with cells shaded by their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from polyseme.plots.colors import ink, ramp, to_hex
from polyseme.plots.html_page import escaped

FIGURES_STYLE = """
table.figures { table-layout: auto; width: auto; margin: 1rem 0 } .figures td, .figures th { padding: .15rem .5rem;
  text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal } .figures td { white-space: nowrap }
.figures th { border-bottom: 2px solid var(--line); vertical-align: bottom }
.figures td:first-child, .figures th:first-child, .figures .left { text-align: left } .wide { overflow-x: auto }
.shaded td { text-align: center; min-width: 2.6rem; border: 1px solid var(--paper) }
.shaded td.marked { box-shadow: inset 0 0 0 2px #e07b00 }
.shaded td:first-child { padding-right: .8rem } .shaded th { font-weight: 400; text-align: center }
.shaded th + th { max-width: 12rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.figures td:first-child { position: sticky; left: 0; background: var(--paper) }
@media (max-width: 60rem) { .figures td, .figures th { padding: .15rem .3rem; font-size: .87rem } }
""".strip()

_NUMBER = re.compile(r"[-+−±~≈<>≤≥(]?\s*[0-9]")
LONG_HEADING = 16
"""Characters from which on a heading of shaded cells may not fit its column."""


def figures_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of figures, which scrolls where it is too wide. Its first column, and others without numbers, are text.

    The page needs `FIGURES_STYLE`.
    """
    kinds = [_kind([row[place] for row in rows]) for place in range(len(columns))]
    lines = [_line("th", columns, kinds), *(_line("td", row, kinds) for row in rows)]
    return f'<div class="wide"><table class="figures">{"".join(lines)}</table></div>'


def _kind(cells: Sequence[str]) -> str:
    """The attribute of a column's cells: none begins with a number, and some are not empty."""
    filled = [cell for cell in cells if cell]
    return ' class="left"' if filled and not any(_NUMBER.match(cell) for cell in filled) else ""


def _line(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> str:
    marked = (f"<{tag}{kind}>{escaped(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))
    return f"<tr>{''.join(marked)}</tr>"


def shaded_table(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float | None]]],
    *,
    spelled: Callable[[float], str],
    low: float | None = None,
    high: float | None = None,
) -> str:
    """A table whose cells are shaded by their values, from `low` to `high`: a heat map that can be read and copied.

    Args:
        columns: the heading of the names, then those of the values.
        rows: a name, and its values; None is an empty cell.
        spelled: how a value is written.
        low: the value with the palest shade; None: the lowest of all.
        high: the value with the deepest shade; None: the highest of all.
    """
    values = [value for _, line in rows for value in line if value is not None]
    low = min(values, default=0.0) if low is None else low
    high = max(values, default=1.0) if high is None else high
    span = high - low if high > low else 1.0
    shaded = [
        (name, [None if value is None else ShadedCell(spelled(value), (value - low) / span) for value in line])
        for name, line in rows
    ]
    return shaded_cells(columns, shaded)


class ShadedCell(NamedTuple):
    """A cell of a table with any text in it."""

    text: str
    share: float
    """From 0, the palest shade, to 1."""
    title: str = ""
    """The text shown on hovering."""
    marked: bool = False
    """Whether it has a frame."""


def shaded_cells(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[ShadedCell | None]]]) -> str:
    """A table of shaded cells with texts; the page needs `FIGURES_STYLE`. None is an empty cell."""
    head = "".join(f"<th{_title(name)}>{escaped(name)}</th>" for name in columns)
    body = []
    for name, line in rows:
        cells = "".join("<td></td>" if each is None else _shaded_cell(each) for each in line)
        body.append(f"<tr><td>{escaped(name)}</td>{cells}</tr>")
    return f'<div class="wide"><table class="figures shaded"><tr>{head}</tr>{"".join(body)}</table></div>'


def _title(heading: str) -> str:
    """A long heading is shown in part, and whole where it is pointed at."""
    return f' title="{escaped(heading)}"' if len(heading) > LONG_HEADING else ""


def _shaded_cell(cell: ShadedCell) -> str:
    color = ramp(cell.share)
    title = f' title="{escaped(cell.title)}"' if cell.title else ""
    kind = ' class="marked"' if cell.marked else ""
    return f'<td{kind}{title} style="background: {to_hex(color)}; color: {ink(color)}">{escaped(cell.text)}</td>'
