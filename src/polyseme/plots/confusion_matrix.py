"""The confusion matrix as part of a page: gold labels down, predicted ones across, shaded by their share of the row."""

from __future__ import annotations

from polyseme.plots.html_page import escaped
from polyseme.types import Confusion

MOST_LABELS = 20
"""Labels with a row and column of their own; if there are more, those least confused are merged."""
_OTHERS = "(others)"
_COLOR, _DARK = "40 104 176", 0.6
"""The shade of cells, with the share as opacity; and the share from which text is white."""
CONFUSION_STYLE = """
table.confusion { width: auto; table-layout: auto; font-size: .82rem; font-variant-numeric: tabular-nums;
  margin: .4rem 0 } .confusion td, .confusion th { border: 1px solid var(--paper); padding: .2rem .4rem;
  text-align: right; min-width: 2.2rem; white-space: nowrap; font-weight: 400; vertical-align: bottom }
.confusion th { color: var(--faint); max-width: 11rem; overflow: hidden; text-overflow: ellipsis }
.confusion th.top { vertical-align: bottom; max-width: none;
  padding: .2rem .3rem } .confusion th.top .upright { writing-mode: vertical-rl; transform: rotate(180deg);
  max-height: 9rem; overflow: hidden; text-overflow: ellipsis }
.confusion td.none { background: var(--soft); color: transparent } .confusion td.same { outline: 2px solid var(--ink);
  outline-offset: -2px }
""".strip()


def confusion_table(confusion: Confusion) -> str:
    """The matrix as a table; the page needs `CONFUSION_STYLE`. Empty if nothing was counted."""
    if not any(map(sum, confusion.counts)):
        return ""
    shown, n_hidden = _fewer(confusion)
    upright = any(len(label) > 6 for label in shown.labels)
    heads = "".join(f'<th class="top">{_head(label, upright)}</th>' for label in shown.labels)
    rows = [f"<tr><th>gold ↓ predicted →</th>{heads}<th>recall</th></tr>"]
    for at, (label, counts) in enumerate(zip(shown.labels, shown.counts, strict=True)):
        total = sum(counts)
        cells = "".join(_cell(count, total, same=at == other) for other, count in enumerate(counts))
        recall = f"{100 * counts[at] / total:.1f}" if total and label != _OTHERS else "–"
        rows.append(f'<tr><th title="{escaped(label)}">{escaped(label)}</th>{cells}<th>{recall}</th></tr>')
    precisions = []
    for at, label in enumerate(shown.labels):
        column = sum(counts[at] for counts in shown.counts)
        share = f"{100 * shown.counts[at][at] / column:.1f}" if column and label != _OTHERS else "–"
        precisions.append(f"<th>{share}</th>")
    rows.append(f"<tr><th>precision</th>{''.join(precisions)}<th></th></tr>")
    note = f"The {n_hidden} labels that are confused least are merged as {_OTHERS}. " if n_hidden else ""
    return (
        f'<div class="wide"><table class="confusion">{"".join(rows)}</table></div>'
        f'<p class="faint">{note}Shades are shares of the row; outlined cells are right.</p>'
    )


def _head(label: str, upright: bool) -> str:
    return f'<span class="{"upright" if upright else ""}" title="{escaped(label)}">{escaped(label)}</span>'


def _cell(count: int, total: int, *, same: bool) -> str:
    kind = ' class="same"' if same else ""
    if not count:
        return f'<td class="{"same none" if same else "none"}">0</td>'
    share = 0.08 + 0.92 * count / total
    ink = "#fff" if share > _DARK else "var(--ink)"
    return f'<td{kind} style="background:rgb({_COLOR} / {share:.2f});color:{ink}">{count:,}</td>'


def _fewer(confusion: Confusion) -> tuple[Confusion, int]:
    """The labels that are confused most, in their own order, with the others merged; and the number of these."""
    n_labels = len(confusion.labels)
    if n_labels <= MOST_LABELS:
        return confusion, 0
    counts = confusion.counts
    wrong = [sum(counts[at]) + sum(row[at] for row in counts) - 2 * counts[at][at] for at in range(n_labels)]
    worst = sorted(sorted(range(n_labels), key=lambda at: -wrong[at])[: MOST_LABELS - 1])
    rest = [at for at in range(n_labels) if at not in worst]
    places = [*([at] for at in worst), rest]
    merged = [[sum(counts[one][other] for one in down for other in across) for across in places] for down in places]
    return Confusion([*(confusion.labels[at] for at in worst), _OTHERS], merged), len(rest)
