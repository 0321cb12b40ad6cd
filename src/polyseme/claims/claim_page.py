"""The page of a claim: what was claimed, the verdict with what decided it, the table and the figures."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.claim_result import ClaimResult
from polyseme.claims.rule import MARKS
from polyseme.plots.charts import CHART_STYLE
from polyseme.plots.figures_table import FIGURES_STYLE, figures_table
from polyseme.plots.html_page import escaped, page
from polyseme.plots.sweep_picture import sweep_charts

COLUMNS = ("condition", "measured", "standard error", "of it over seeds", "")


def condition_rows(result: ClaimResult) -> list[tuple[str, ...]]:
    """What became of each condition."""
    rows: list[tuple[str, ...]] = []
    for each in result.outcomes:
        if "state" not in each:
            rows.append((each["condition"], "", "", "", "not measured"))
            continue
        numbers = (f"{each['value']:+.4g}", f"{each['error']:.2g}", f"{each['seed_error']:.2g}")
        rows.append((each["condition"], *numbers, MARKS[each["state"]]))
    return rows


def note_of(result: ClaimResult) -> str:
    """The note of a result, in a sentence."""
    return f"What this size cannot show: {result.note}" if result.size == "small" else result.note


def claim_page(claim: Claim, result: ClaimResult) -> str:
    """The page, self-contained and without scripts."""
    sweep = result.sweep
    size = "the full size" if result.size == "full" else "the small size"
    parts = [
        f"<h1>{escaped(claim.text)}</h1>",
        f'<p class="faint">{escaped(claim.source)}</p>',
        f"<p><b>{escaped(result.verdict[0].upper() + result.verdict[1:])}</b>, at {size}. {escaped(claim.runs)}</p>",
        *([f"<p>{escaped(note_of(result))}</p>"] if result.note else []),
        f'<p class="faint">The rule, written before the run: {escaped(result.rule)}</p>',
        *([figures_table(COLUMNS, condition_rows(result))] if result.outcomes else []),
        figures_table(sweep.columns, sweep.rows(), names=2),
        *(f'<p class="faint">{escaped(line)}</p>' for line in [*sweep.lines(), machine_line(result)]),
        *sweep_charts(sweep.settings, sweep.drawn()),
    ]
    return page(claim.text, "\n".join(parts), style=f"{FIGURES_STYLE}\n{CHART_STYLE}")


def machine_line(result: ClaimResult) -> str:
    """Where it was run, and by which version."""
    return f"Run on {result.device} with polyseme {result.version}; budget: {result.budget}."
