"""What watches over a run: one that diverges is stopped, one that learns nothing is warned of."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

from polyseme.errors import PolysemeWarning
from polyseme.training.effects import StepState
from polyseme.training.schedules import Schedule
from polyseme.training.trainer import Trainer
from polyseme.training.watching import HIGH, StopIfDiverged, TrainingStoppedError, WarnIfNothingIsLearned
from training import small
from training.test_effects import moment


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run(loss: float) -> None:
    watch = StopIfDiverged(1)
    watch(moment(1, 7.0))
    with pytest.raises(TrainingStoppedError, match="lower learning rate"):
        watch(moment(2, loss))


def test_a_loss_that_stays_high_stops_the_run_and_a_short_peak_does_not() -> None:
    watch = StopIfDiverged(1)
    for done, loss in enumerate([7.0, *[30.0] * (HIGH - 1), 6.0, *[30.0] * (HIGH - 1)], start=1):
        watch(moment(done, loss))
    with pytest.raises(TrainingStoppedError, match="does not come down"):
        watch(moment(50, 30.0))


# --- nothing learned --------------------------------------------------------------------------------------------------

ENTROPY = 6.0


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return small.trainer_for("replaced", small.settings(schedule=Schedule(kind="linear", warmup=300)))


def evaluated(done: int, masked: float, trainer: Trainer, *, n_steps: int = 1000, replaced: float = 0.1) -> StepState:
    """A moment of ELECTRA's objective, of which the generator's loss counts, and the discriminator's, whose labels have
    an entropy of 0.325 nats.
    """
    at: Any = moment(done, 1.0, n_steps=n_steps, trainer=trainer)
    at.means = {"masked": torch.tensor(masked), "replaced": torch.tensor(replaced)}
    at.held_out = {"loss": masked + 5.0, "masked": masked, "replaced": replaced, "replaced_share": 0.1}
    return at  # type: ignore[no-any-return]


def test_a_run_that_has_learned_only_frequencies_is_warned_of_once(trainer: Trainer) -> None:
    watch = WarnIfNothingIsLearned(ENTROPY)
    with warnings.catch_warnings(action="error"):
        watch(evaluated(100, 5.9, trainer))  # too early
        watch(evaluated(250, 5.9, trainer))  # in the warmup
        watch(evaluated(300, 5.6, trainer))  # 0.4 below
        watch(moment(300, 5.9, n_steps=1000, trainer=trainer))  # not evaluated
    with pytest.warns(PolysemeWarning, match=r"After 300 of 1,000 steps.* 5\.80 nats.* gives 6\.00.*--learning-rate"):
        watch(evaluated(300, 5.8, trainer))
    with warnings.catch_warnings(action="error"):
        watch(evaluated(400, 5.9, trainer))


def test_a_text_that_is_memorized_is_called_that(trainer: Trainer) -> None:
    late = evaluated(300, 7.0, trainer)
    late.means = {"masked": torch.tensor(2.0), "replaced": torch.tensor(0.1)}
    with pytest.warns(PolysemeWarning, match=r"trained on the loss is 2\.00.*memorizes.*dropout"):
        WarnIfNothingIsLearned(ENTROPY)(late)


def test_a_text_that_was_not_read_twice_is_not_memorized(trainer: Trainer) -> None:
    watch, late = WarnIfNothingIsLearned(ENTROPY, n_pieces=1_000_000), evaluated(300, 7.0, trainer)
    late.means = {"masked": torch.tensor(2.0), "replaced": torch.tensor(0.1)}
    late.pieces = 999_999
    with warnings.catch_warnings(action="error"):
        watch(late)
    late.pieces = 1_000_000
    with pytest.warns(PolysemeWarning, match="memorizes"):
        watch(late)


def test_runs_of_few_steps_are_not_warned_of(trainer: Trainer) -> None:
    with warnings.catch_warnings(action="error"):
        WarnIfNothingIsLearned(ENTROPY)(evaluated(90, 5.9, trainer, n_steps=90))


def test_a_run_that_is_resumed_is_not_warned_of_again(trainer: Trainer) -> None:
    log = [
        {"step": 1, "loss": 9.0},
        {"step": 300, "loss": 9.0, "held_out": {"masked": 5.9, "replaced": 0.1, "replaced_share": 0.1}},
    ]
    watch = WarnIfNothingIsLearned(ENTROPY)
    watch.resume(log, 1000, trainer)
    with warnings.catch_warnings(action="error"):
        watch(evaluated(400, 5.9, trainer))
    watch.resume(log[:1], 1000, trainer)
    with pytest.warns(PolysemeWarning, match="learned nothing"):
        watch(evaluated(400, 5.9, trainer))


def test_a_discriminator_that_has_learned_only_how_often_pieces_are_replaced_is_warned_of_once(
    trainer: Trainer,
) -> None:
    watch = WarnIfNothingIsLearned(ENTROPY)
    with warnings.catch_warnings(action="error"):
        watch(evaluated(740, 3.0, trainer, replaced=0.32))  # too early
        watch(evaluated(750, 3.0, trainer, replaced=0.30))
    with pytest.warns(PolysemeWarning, match=r"loss of 'replaced' is 0\.320 nats.*each label.*gives 0\.325"):
        watch(evaluated(760, 3.0, trainer, replaced=0.32))
    with warnings.catch_warnings(action="error"):
        watch(evaluated(770, 3.0, trainer, replaced=0.33))
