"""The page of a pruned model: its score against the heads removed, a table, and how much every head matters."""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.plots.charts import CHART_STYLE, Curve, lines_chart
from polyseme.plots.figures_table import FIGURES_STYLE, figures_table
from polyseme.plots.html_page import escaped, page

_STYLE = """
table.heads { table-layout: auto; width: auto; margin: 1rem 0; font-variant-numeric: tabular-nums }
.heads td { text-align: center; min-width: 2.6rem; border: 1px solid var(--paper); font-size: .8rem }
.heads td.none { background: none !important; color: var(--faint); text-decoration: line-through }
.heads th { text-align: left; padding-right: .8rem; font-weight: 400; white-space: nowrap }
""".strip()
_COLOR = "40 104 176"


def pruning_page(
    *,
    title: str,
    summary: str,
    curve: Sequence[tuple[float, float]],
    metric: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    layers: Sequence[tuple[str, Sequence[tuple[int, float, bool]]]],
    single: Sequence[tuple[str, int, str, str]] = (),
    notes: Sequence[str] = (),
) -> str:
    """The page, self-contained and without scripts.

    Args:
        title: what was pruned.
        summary: a sentence on the result.
        curve: percent of heads removed, and the score of the model without them.
        metric: the name of this score.
        header: the columns of the table.
        rows: one per point of the curve.
        layers: of each layer its name and its heads: number, importance, and whether it was removed.
        single: of each head its layer, its number, the score without it, and with it as the only one of its layer.
        notes: what else is to be known.
    """
    parts = [
        f"<h1>{escaped(title)}</h1>",
        f"<p>{escaped(summary)}.</p>",
        lines_chart([Curve(metric, curve)], x="percent of heads removed", y=metric),
        figures_table(header, rows),
        "<h2>How much each head matters</h2>",
        _heads(layers),
        '<p class="faint">Darker heads matter more; those struck out are removed.</p>',
    ]
    if single:
        parts.append("<h2>Each head by itself</h2>")
        parts.append(
            figures_table(
                ["layer", "head", f"{metric} without it", f"{metric} with no other in its layer"],
                [[layer, str(head), without, alone] for layer, head, without, alone in single],
            )
        )
    parts += [f'<p class="faint">{escaped(note)}</p>' for note in notes]
    return page(title, "\n".join(parts), style=f"{FIGURES_STYLE}\n{CHART_STYLE}\n{_STYLE}")


def _heads(layers: Sequence[tuple[str, Sequence[tuple[int, float, bool]]]]) -> str:
    largest = max((value for _, heads in layers for _, value, _ in heads), default=1.0) or 1.0
    rows = []
    for name, heads in layers:
        cells = "".join(
            f'<td class="{"none" if removed else ""}" title="head {head}: {value:.4f}" '
            f'style="background: rgb({_COLOR} / {0.75 * value / largest:.2f})">{head}</td>'
            for head, value, removed in heads
        )
        rows.append(f"<tr><th>{escaped(name)}</th>{cells}</tr>")
    return f'<div class="wide"><table class="heads">{"".join(rows)}</table></div>'
