"""A rule decides by differences, bounds and sampling errors, and its text says so."""

from __future__ import annotations

import math

import pytest

from polyseme.claims.rule import Condition, Rule, Term, above, fingerprint
from polyseme.sweeps.sweep_report import Figure, RunResult, Sweep

SCORE = "score"


def sweep(rows: dict[str, list[float]], error: float | None = None) -> Sweep:
    """Rows with a figure of each seed."""
    return Sweep(
        verb="claim",
        title="a claim",
        runs=tuple(
            RunResult(
                name=f"{row}-{seed}", settings={"row": row}, seed=seed, folder="", state="finished",
                figures={SCORE: Figure(value=value, error=error)},
            )
            for row, values in rows.items()
            for seed, value in enumerate(values)
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], "shown"),
        ([0.70, 0.71, 0.72], [0.80, 0.81, 0.82], "refuted here"),
        ([0.70, 0.80, 0.90], [0.69, 0.79, 0.89], "not shown"),
    ],
)
def test_a_difference_beyond_two_standard_errors_decides(
    first: list[float], second: list[float], expected: str
) -> None:
    rule = Rule(conditions=(above("one", "other", SCORE),))
    assert rule.verdict(sweep({"one": first, "other": second})) == expected


def test_the_error_is_that_of_seeds_and_of_items() -> None:
    [outcome] = Rule(conditions=(above("one", "other", SCORE),)).outcomes(
        sweep({"one": [0.5, 0.7], "other": [0.1, 0.1]}, error=0.03)
    )
    assert outcome is not None
    spread = math.sqrt((0.02 + 0.0) / 2)  # of 0.5 and 0.7 the variance is 0.02
    assert outcome.seed_error == pytest.approx(spread * math.sqrt(1 / 2 + 1 / 2))
    assert outcome.error == pytest.approx(math.hypot(outcome.seed_error, 0.03 * math.sqrt(2)))
    assert outcome.value == pytest.approx(0.5)


def test_a_bound_below_zero_lets_a_row_be_a_little_worse() -> None:
    rows = sweep({"one": [0.695, 0.696, 0.694], "other": [0.70, 0.701, 0.699]})
    assert Rule(conditions=(above("one", "other", SCORE, bound=-0.01),)).verdict(rows) == "shown"
    assert Rule(conditions=(above("one", "other", SCORE),)).verdict(rows) == "refuted here"


def test_a_factor_asks_for_a_share_of_the_other_row() -> None:
    rows = sweep({"student": [0.96, 0.961], "teacher": [1.0, 1.001]})
    assert Rule(conditions=(above("student", "teacher", SCORE, factor=0.95),)).verdict(rows) == "shown"
    assert Rule(conditions=(above("student", "teacher", SCORE, factor=0.98),)).verdict(rows) == "refuted here"


def test_one_seed_decides_nothing_unless_the_rule_is_of_items() -> None:
    rows = sweep({"one": [0.9], "other": [0.1]}, error=0.01)
    condition = above("one", "other", SCORE)
    assert Rule(conditions=(condition,)).verdict(rows) == "not shown"
    assert Rule(conditions=(condition,), seeds=False).verdict(rows) == "shown"


def test_what_was_not_measured_is_not_shown() -> None:
    rule = Rule(conditions=(above("one", "other", SCORE), above("one", "third", SCORE)))
    rows = sweep({"one": [0.9, 0.91], "other": [0.1, 0.11]})
    assert rule.outcomes(rows)[1] is None
    assert rule.verdict(rows) == "not shown"


def test_the_text_has_every_condition_and_its_bound() -> None:
    gap = Condition(terms=(Term("one", "long"), Term("other", "long", -1), Term("one", "short", -1)), bound=2.0)
    text = Rule(conditions=(above("one", "other", SCORE, bound=-0.01, factor=0.95), gap)).text
    assert "(1) score: one − 0.95 × other > -0.01" in text
    assert "(2) one (long) − other (long) − one (short) > 2" in text
    assert fingerprint(text) != fingerprint(text.replace("0.95", "0.9"))
