"""The page of a suite of tasks: a picture of every task's figures, and the table."""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.plots.charts import BARS_STYLE, Bar, bars_table
from polyseme.plots.figures_table import FIGURES_STYLE, figures_table
from polyseme.plots.html_page import escaped, page


def benchmark_page(
    title: str, bars: Sequence[Bar], columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> str:
    """The page, self-contained and without scripts."""
    parts = [
        f"<h1>{escaped(title)}</h1>",
        figures_table(columns, rows, names=2),
        *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
        bars_table(bars) if bars else "",
    ]
    return page(title, "\n".join(parts), style=f"{FIGURES_STYLE}\n{BARS_STYLE}")
