"""The page of a suite of tasks: a picture of every task's figures, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyseme.plots.charts import BARS_STYLE, Bar, bars_table
from polyseme.plots.figures_table import FIGURES_STYLE, figures_table, shaded_table
from polyseme.plots.html_page import escaped, page


def benchmark_page(
    title: str,
    bars: Sequence[Bar],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    layer_shares: Mapping[str, Mapping[str, float]],
) -> str:
    """The page, self-contained and without scripts; `layer_shares` are those of learned mixes, by task and layer."""
    parts = [
        f"<h1>{escaped(title)}</h1>",
        figures_table(columns, rows),
        *(f'<p class="faint">{escaped(note)}</p>' for note in notes),
        _heat_map(layer_shares) if layer_shares else "",
        bars_table(bars) if bars else "",
    ]
    return page(title, "\n".join(parts), style=f"{FIGURES_STYLE}\n{BARS_STYLE}")


def _heat_map(layer_shares: Mapping[str, Mapping[str, float]]) -> str:
    """A row per task, a column per layer."""
    layers = list(dict.fromkeys(layer for shares in layer_shares.values() for layer in shares))
    rows = [(task, [shares.get(layer) for layer in layers]) for task, shares in layer_shares.items()]
    columns = ["share of each layer in the learned mix", *(f"layer {layer}" for layer in layers)]
    return shaded_table(columns, rows, spelled=lambda share: f"{100 * share:.0f}%", low=0.0)
