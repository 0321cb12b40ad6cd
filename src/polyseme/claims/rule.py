"""The rule that decides a claim: differences of figures, bounds, and sampling errors; written before the run.

A rule is a list of conditions. Each is a weighted sum of figures of rows, and a bound that the sum must be above. The
text of a rule follows from its conditions, so that the text which is stored with a result says what decided it.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from polyseme.config import Config
from polyseme.sweeps.grid import ROW
from polyseme.sweeps.sweep_report import Summary, Sweep

SURE = 2.0
"""Standard errors by which a sum must be above or below its bound."""
State = Literal["holds", "missed", "open"]
Verdict = Literal["shown", "not shown", "refuted here"]
MARKS: Mapping[State, str] = {"holds": "holds", "missed": "the opposite holds", "open": "not decided"}
OF_SEEDS = (
    "The error is that over seeds, with a standard deviation pooled over the rows that the condition names, together "
    "with that over items, as if each row had been measured on other ones."
)
OF_ITEMS = "There is one model of each row, and the error is that over items alone."


class Term(NamedTuple):
    """A figure of a row, with its weight in a sum."""

    row: str
    figure: str
    weight: float = 1.0


class Outcome(NamedTuple):
    """What became of a condition."""

    value: float
    error: float
    """The standard error of the value."""
    seed_error: float
    """The part of it that is over seeds."""
    state: State


@dataclass(frozen=True, kw_only=True)
class Condition(Config):
    """A weighted sum of figures that must be above a bound."""

    terms: tuple[Term, ...]
    bound: float = 0.0

    @property
    def text(self) -> str:
        """The sum and its bound, in one line."""
        figures = list(dict.fromkeys(term.figure for term in self.terms))
        alone = figures[0] if len(figures) == 1 else ""
        parts: list[str] = []
        for term in self.terms:
            sign = "−" if term.weight < 0 else "+" if parts else ""
            factor = "" if abs(term.weight) == 1 else f"{abs(term.weight):g} × "
            parts.append(f"{sign} {factor}{term.row if alone else f'{term.row} ({term.figure})'}".strip())
        return f"{f'{alone}: ' if alone else ''}{' '.join(parts)} > {self.bound:g}"

    def outcome(self, sweep: Sweep, *, seeds: bool) -> Outcome | None:
        """What became of it; None where a figure has not been measured."""
        pairs = [(term, _summary(sweep, term)) for term in self.terms]
        summaries = [(term, summary) for term, summary in pairs if summary is not None]
        if len(summaries) < len(pairs):
            return None
        value = sum(term.weight * summary.mean for term, summary in summaries)
        of_seeds = _seed_error(summaries) if seeds else 0.0
        of_items = math.hypot(*(term.weight * (summary.error or 0.0) for term, summary in summaries))
        error = math.hypot(of_seeds, of_items)
        above, sure = value - self.bound, SURE * error
        state: State = "holds" if above > sure else "missed" if above < -sure else "open"
        return Outcome(value, error, of_seeds, state)


def above(first: str, second: str, figure: str, *, bound: float = 0.0, factor: float = 1.0) -> Condition:
    """The first row's figure is above (so many times) the second's, by more than the bound."""
    return Condition(terms=(Term(first, figure), Term(second, figure, -factor)), bound=bound)


def _summary(sweep: Sweep, term: Term) -> Summary | None:
    points = [point for point in sweep.points if point.settings.get(ROW) == term.row]
    return points[0].summary(term.figure) if points else None


def _seed_error(summaries: Sequence[tuple[Term, Summary]]) -> float:
    """Infinite where no row has several seeds: nothing is then known of it."""
    spreads = [summary.spread for _, summary in summaries if summary.n > 1]
    if not spreads:
        return math.inf
    pooled = math.sqrt(statistics.fmean(spread**2 for spread in spreads))
    return pooled * math.hypot(*(term.weight / math.sqrt(summary.n) for term, summary in summaries))


@dataclass(frozen=True, kw_only=True)
class Rule(Config):
    """Conditions that all must hold."""

    conditions: tuple[Condition, ...]
    seeds: bool = True
    """Whether rows have several seeds."""
    note: str = ""
    """What else was decided before the run."""

    @property
    def text(self) -> str:
        """In words, as it is stored with a result."""
        listed = "; ".join(f"({number}) {each.text}" for number, each in enumerate(self.conditions, 1))
        return " ".join(
            filter(
                None,
                [
                    f"Shown if each sum is above its bound by more than {SURE:g} standard errors: {listed}.",
                    "Refuted here if one is below its bound by as much; otherwise not shown.",
                    OF_SEEDS if self.seeds else OF_ITEMS,
                    self.note,
                ],
            )
        )

    @property
    def fingerprint(self) -> str:
        """Of the text: a result is that of this rule, or of an earlier one."""
        return fingerprint(self.text)

    def outcomes(self, sweep: Sweep) -> list[Outcome | None]:
        """Of each condition."""
        return [each.outcome(sweep, seeds=self.seeds) for each in self.conditions]

    def verdict(self, sweep: Sweep) -> Verdict:
        """What the measured rows say of the claim."""
        states = [None if each is None else each.state for each in self.outcomes(sweep)]
        if "missed" in states:
            return "refuted here"
        return "shown" if all(state == "holds" for state in states) else "not shown"


def fingerprint(text: str) -> str:
    """A short hash of a rule's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def outcome_to_json(condition: Condition, outcome: Outcome | None) -> dict[str, Any]:
    """As results keep it."""
    return {"condition": condition.text, **({} if outcome is None else outcome._asdict())}
