"""The page of a suite of tasks: a picture of every task's figures, and the table."""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.plots.charts import BARS_STYLE, Bar, bars_table
from polyseme.plots.html_page import escaped, page

FIGURES_STYLE = """
table.figures { table-layout: auto; width: auto; margin: 1rem 0 } .figures td, .figures th { padding: .15rem .5rem;
  text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal }
.figures th { border-bottom: 2px solid var(--line); vertical-align: bottom }
.figures td:nth-child(-n+2), .figures th:nth-child(-n+2) { text-align: left } .wide { overflow-x: auto }
""".strip()


def benchmark_page(
    title: str, bars: Sequence[Bar], columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> str:
    """The page, self-contained and without scripts."""
    parts = [
        f"<h1>{escaped(title)}</h1>",
        figures_table(columns, rows),
        *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
        bars_table(bars) if bars else "",
    ]
    return page(title, "\n".join(parts), style=f"{FIGURES_STYLE}\n{BARS_STYLE}")


def figures_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of figures, which scrolls where it is too wide; the page needs `FIGURES_STYLE`."""
    head = "".join(f"<th>{escaped(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="figures"><tr>{head}</tr>{body}</table></div>'
