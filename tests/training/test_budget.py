"""Budgets are read as users write them, or refused in one paragraph with examples."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import OptionError
from polyseme.training.budget import EXAMPLES, Budget, BudgetUnit, parse_budget

REFUSED = (
    "",
    "20",
    "min",
    "-3s",
    "0steps",
    "0s",
    "20m",
    "20 parsecs",
    "1.5steps",
    "0.1pieces",
    "1e400s",
    "1e999steps",
    "nans",
    "infs",
    "1,5h",
    "1h30min",
    "２０min",
    "1e-3s",
    "_1s",
    "steps1000",
    "20min\n20min",
)


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("90s", "seconds", 90),
        ("20min", "seconds", 1200),
        ("1.5h", "seconds", 5400),
        ("2d", "seconds", 172_800),
        ("3e16flops", "flops", 3e16),
        ("1e9pieces", "pieces", 10**9),
        ("1000steps", "steps", 1000),
        ("2.5epochs", "epochs", 2.5),
        ("2_000steps", "steps", 2000),
        ("  20 MIN ", "seconds", 1200),
        ("3E+16 FLOPs", "flops", 3e16),
        ("0.5 hours", "seconds", 1800),
        ("1 step", "steps", 1),
        ("2.5e3steps", "steps", 2500),
        ("0.1s", "seconds", 0.1),
        ("0.00001s", "seconds", 0.00001),
    ],
)
def test_what_users_write_is_read(text: str, unit: str, amount: float) -> None:
    budget = parse_budget(text)
    assert (budget.unit, budget.amount) == (unit, amount)
    assert parse_budget(str(budget)) == budget


@pytest.mark.parametrize("text", [*REFUSED, "9" * 5000 + "steps"], ids=range(len(REFUSED) + 1))
def test_anything_else_is_refused_in_one_paragraph(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_budget(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["soon", "0s", "20"])
def test_a_refusal_gives_every_kind_of_budget_as_an_example(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_budget(text)
    assert EXAMPLES in str(caught.value)


def test_every_example_is_a_budget() -> None:
    assert {parse_budget(text).unit for text in EXAMPLES.split(", ")} == {*get_args(BudgetUnit)}


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(unit="seconds", amount=90), "90s"),
        (Budget(unit="seconds", amount=5400), "90min"),
        (Budget(unit="seconds", amount=7200), "2h"),
        (Budget(unit="seconds", amount=86400), "1d"),
        (Budget(unit="flops", amount=3e16), "3e16flops"),
        (Budget(unit="pieces", amount=10**9), "1000000000pieces"),
        (Budget(unit="steps", amount=1000.0), "1000steps"),
    ],
)
def test_a_budget_is_written_the_short_way(budget: Budget, text: str) -> None:
    assert str(budget) == text


@given(st.floats(min_value=1e-3, max_value=1e18), st.sampled_from(["seconds", "flops"]))
def test_what_is_measured_comes_back(amount: float, unit: str) -> None:
    budget = Budget(unit=unit, amount=amount)  # type: ignore[arg-type]
    assert parse_budget(str(budget)) == budget
    assert Budget.from_json(budget.to_json()) == budget


@given(st.integers(min_value=1, max_value=10**18), st.sampled_from(["pieces", "steps"]))
def test_what_is_counted_comes_back_to_the_last_one(amount: int, unit: str) -> None:
    budget = Budget(unit=unit, amount=amount)  # type: ignore[arg-type]
    assert parse_budget(str(budget)) == budget
    assert budget.amount == amount


def test_a_budget_becomes_steps() -> None:
    step = {"seconds": 0.1, "flops": 1e12, "pieces": 32768, "epochs": 0.01}
    assert parse_budget("0.3s").n_steps(**step) == 3
    assert parse_budget("20min").n_steps(**step) == 12_000
    assert parse_budget("3e16flops").n_steps(**step) == 30_000
    assert parse_budget("1e9pieces").n_steps(**step) == 30_517
    assert parse_budget("1000steps").n_steps(**step) == 1000
    assert parse_budget("5epochs").n_steps(**step) == 500
    assert parse_budget("1pieces").n_steps(**step) == 1


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf")])
def test_a_step_that_takes_nothing_divides_no_budget(seconds: float) -> None:
    with pytest.raises(ValueError, match="must take some seconds"):
        parse_budget("20min").n_steps(seconds=seconds, flops=1, pieces=1)
