"""A budget of time as a number of steps: what fits into it, and how the first steps correct it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import OptionError, PolysemeWarning
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.pretraining_job import Job
from polyseme.training.schedules import Schedule
from polyseme.training.time_budget import (
    CHECKS,
    N_TO_MEASURE,
    Correction,
    Slowdown,
    Timing,
    check_time_left,
    seconds_of,
    step_of_check,
    steps_within,
    warn_of_few_steps,
)
from polyseme.training.training_settings import Phase, Plan, TrainingSettings


def job(*shares: float, **changes: Any) -> Job:
    """A job with phases of these shares, of which nothing but the times counts."""
    phases = tuple(Phase(share=share, length=16, batch_size=8) for share in shares or (1.0,))
    training = TrainingSettings(phases=phases, optimizer=OptimizerSettings(lr=1e-3), schedule=Schedule())
    settings: dict[str, Any] = {"budget": "100s", "corpus": "./corpus", **changes}
    return Job(
        recipe="bert-tiny",
        family="bert",
        encoder={},
        outputs=(),
        objective={"name": "masked"},
        training=training,
        corpus_fingerprint="",
        **settings,
    )


def test_a_run_takes_its_steps_its_evaluations_its_checkpoints_and_the_saving_of_its_model() -> None:
    timing = Timing((2.0,), 5.0, 3.0)
    assert seconds_of(job(), timing, 100) == 200 + 10 * 5 + 11 * 3
    assert seconds_of(job(evaluate_every=25, checkpoint_every=50), timing, 100) == 200 + 4 * 5 + 3 * 3
    assert seconds_of(job(evaluate_every=25, checkpoint_every=50), timing, 100, done=50) == 100 + 2 * 5 + 2 * 3
    assert seconds_of(job(0.5, 0.5), Timing((1.0, 3.0), 0.0), 100) == 200


def test_evaluations_and_checkpoints_take_a_tenth_of_a_budget_at_most() -> None:
    """But for those at the end, and where their number decides which weights are averaged."""
    timing = Timing((2.0,), 5.0, 3.0)
    assert timing.within(800).most_evaluations == 10
    assert timing.within(799).most_evaluations == 9
    assert timing.within(10).most_evaluations == 1
    assert timing.within(10, job(average_checkpoints=4).fewest_evaluations).most_evaluations == 4
    assert Timing((2.0,), 0.0).within(0.1).most_evaluations == 10
    assert seconds_of(job(), timing.within(200), 100) == 200 + 2 * 5 + 3 * 3
    assert seconds_of(job(), timing.within(200), 100, done=50) == 100 + 1 * 5 + 2 * 3
    assert seconds_of(job(evaluate_every=25), timing.within(200), 100) == 200 + 4 * 5 + 3 * 3, "as the user says"
    assert job().keeps_every(50_000) == 1000
    assert job().keeps_every(50_000, 2) == job().evaluates_every(50_000, 2) == 25_000


@given(
    st.floats(0.001, 10), st.floats(0, 20), st.floats(0, 5), st.floats(-10, 2000), st.sampled_from([None, 1, 7]),
    st.integers(0, 50),
)  # fmt: skip
def test_the_steps_fill_the_time_and_no_more(
    step: float, evaluation: float, checkpoint: float, seconds: float, every: int | None, done: int
) -> None:
    work = job(evaluate_every=every, checkpoint_every=every)
    timing = Timing((step,), evaluation, checkpoint).within(seconds)
    n_steps = steps_within(work, timing, seconds, done=done)
    assert n_steps > done
    if n_steps > done + 1:
        assert seconds_of(work, timing, n_steps, done=done) <= seconds
    assert seconds_of(work, timing, n_steps + 1, done=done) > seconds


@given(st.integers(1, 100_000), st.sampled_from([(1.0,), (0.9, 0.1), (0.03, 0.97)]), st.sampled_from(CHECKS))
def test_the_number_is_looked_at_in_time_and_in_the_first_phase(
    planned: int, shares: tuple[float, ...], share: float
) -> None:
    work = job(*shares)
    step = step_of_check(work, planned, share)
    if step is None:
        assert shares[0] < 1
    else:
        assert 1 <= step <= max(share * planned + 1, N_TO_MEASURE)
        assert step < planned or planned == 1
        assert step == 1 or Plan(work.training, planned).at(step - 1)[0] == 0


def test_how_much_slower_steps_are_is_without_what_is_written() -> None:
    work, timing = job(evaluate_every=20, checkpoint_every=10), Timing((0.1,), 1.0, 7.0)
    slow = Slowdown()
    slow.add(work, timing, 1000, (9, 11), 50.0)
    assert slow.factor == 1.0, "two steps tell nothing"
    slow = Slowdown()
    # 30 steps, an evaluation and three checkpoints
    slow.add(work, timing, 1000, (9, 39), 2 * (30 * 0.1 + 1.0) + 3 * 7.0)
    assert slow.factor == pytest.approx(2.0)
    slow.add(work, timing, 500, (39, 59), 2 * (20 * 0.1 + 1.0) + 2 * 7.0)
    assert slow.factor == pytest.approx(2.0)


def test_a_number_is_corrected_by_what_is_left() -> None:
    work, timing = job(), Timing((0.1,), 0.0)
    slow = Correction(80, 1000, 2.0)
    assert slow.n_steps(work, timing, 84.0) == 80 + 420
    assert Correction(80, 1000, 0.5).n_steps(work, timing, 92.0) == 80 + 1840
    assert Correction(80, 1000, 1.0).n_steps(work, timing, 90.0) == 1000, "92 s are near enough: it stays"
    assert slow.n_steps(work, timing, -5.0) == 81
    # or the steps so far would be of another phase
    assert slow.n_steps(job(0.1, 0.9), Timing((0.1, 0.1), 0.0), 1.0) == 800


def test_a_budget_that_is_used_up_before_training_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        OptionError, match=r"corpus took 2\.5 min of the budget of 100s.*--resume runs/mine.*corpus TEXTS"
    ):
        check_time_left(job(), 150.0, Path("runs/mine"))
    with pytest.warns(PolysemeWarning, match=r"corpus took 60\.0 s of the budget of 100s, and 40\.0 s are left"):
        check_time_left(job(), 60.0, Path("runs/mine"))
    with warnings.catch_warnings(action="error"):
        check_time_left(job(), 40.0, Path("runs/mine"))
    with pytest.raises(OptionError) as error:
        check_time_left(job(corpus="/data/corpus"), 150.0, Path("runs/mine"))
    assert "polyseme corpus" not in str(error.value)


def test_a_budget_for_next_to_no_steps_is_warned_of() -> None:
    with pytest.warns(PolysemeWarning, match=r"enough for 1 step of 60\.0 s here, too few to learn anything"):
        warn_of_few_steps(job(), Timing((60.0,), 0.0), 1)
    with warnings.catch_warnings(action="error"):
        warn_of_few_steps(job(), Timing((1.0,), 0.0), 100)
