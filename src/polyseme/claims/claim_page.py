"""The page of a claim: what was claimed, the verdict with what decided it, the table and the figures."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.claim_result import ClaimResult
from polyseme.claims.rule import MARKS, SURE
from polyseme.plots.figures_table import FIGURES_STYLE, figures_table
from polyseme.plots.html_page import escaped, page
from polyseme.plots.interval_chart import Interval, interval_charts
from polyseme.plots.sweep_picture import SWEEP_CHART_STYLE, sweep_charts

COLUMNS = ("condition", "outcome", "measured", "standard error", "over seeds alone")
SMALLER = " That is the full size; the rows below are of the small one."
_STYLE = """
.verdict { font-size: 1.25rem; margin: .8rem 0 }
.conditions td:first-child { white-space: normal; min-width: 12rem }
.conditions td:nth-child(2), .conditions th:nth-child(2) { text-align: left }
""".strip()


def condition_rows(result: ClaimResult) -> list[tuple[str, ...]]:
    """What became of each condition."""
    rows: list[tuple[str, ...]] = []
    for each in result.outcomes:
        if "state" not in each:
            rows.append((each["condition"], "not measured", "", "", ""))
            continue
        numbers = (f"{each['value']:+.4g}", f"{each['error']:.2g}", f"{each['seed_error']:.2g}")
        rows.append((each["condition"], MARKS[each["state"]], *numbers))
    return rows


def condition_lines(result: ClaimResult) -> list[str]:
    """The same in words."""
    return [
        f"{condition}: {outcome}" if not value else
        f"{condition}: {outcome}, {value} with a standard error of {error} (over seeds alone {of_seeds})"
        for condition, outcome, value, error, of_seeds in condition_rows(result)
    ]  # fmt: skip


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
        f'<p class="verdict"><b>{escaped(result.verdict[0].upper() + result.verdict[1:])}</b>, at {size}.</p>',
        f"<p>{escaped(claim.runs)}{SMALLER if result.size == 'small' else ''}</p>",
        *([f"<p>{escaped(note_of(result))}</p>"] if result.note else []),
        *_conditions(claim, result),
        f'<p class="faint">The rule, written before the run: {escaped(result.rule)}</p>',
        "<h2>All rows</h2>",
        figures_table(sweep.columns, sweep.rows()),
        *(f'<p class="faint">{escaped(line)}</p>' for line in [*sweep.lines(), machine_line(result)]),
        "<h2>All figures, with standard deviations over seeds</h2>",
        *sweep_charts(sweep.settings, sweep.picture_figures()),
    ]
    return page(claim.text, "\n".join(parts), style=f"{FIGURES_STYLE}\n{SWEEP_CHART_STYLE}\n{_STYLE}")


def _conditions(claim: Claim, result: ClaimResult) -> list[str]:
    """What decided: the table, and each difference beside its bound."""
    if not result.outcomes:
        return []
    bounds = {} if isinstance(claim.rule, str) else {each.text: each.bound for each in claim.rule.conditions}
    intervals = [
        Interval(each["condition"], each["value"], SURE * each["error"], bounds[each["condition"]])
        for each in result.outcomes
        if "value" in each and each["condition"] in bounds
    ]
    drawn = interval_charts(intervals)
    legend = f"Measured, with {SURE:g} standard errors to both sides; the dashed line is the bound."
    shares = {name for run in result.sweep.runs for name, figure in run.figures.items() if figure.unit == "share"}
    of_shares = any(name in each["condition"] for each in result.outcomes for name in shares)
    return [
        "<h2>What decided</h2>",
        f'<div class="conditions">{figures_table(COLUMNS, condition_rows(result))}</div>',
        *(['<p class="faint">Of shares, 0.01 is a point.</p>'] if of_shares else []),
        *(drawn and [f'<p class="faint">{legend}</p>']),
        *drawn,
    ]


def machine_line(result: ClaimResult) -> str:
    """Where it was run, and by which version."""
    return f"Run on {result.device} with polyseme {result.version}; budget: {result.budget}."
