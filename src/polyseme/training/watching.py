"""What watches over a run: stops one that diverges, warns of one that learns nothing, ends a slice, measures steps."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyseme.errors import PolysemeError, PolysemeWarning
from polyseme.training.effects import Moment, due
from polyseme.training.time_budget import UNMEASURED
from polyseme.training.trainer import Trainer

HIGH = 5
"""Logged steps in a row that the loss must be high for the run to be called lost."""
LEAST_GAIN = 0.3
"""Nats below the unigram entropy that a model must be to have learned something from context."""
FAIR_SHARE, FAIR_STEPS = 0.2, 100
"""Of the steps, and how many at least, after which it should have."""
MOST_STEPS_UNWATCHED = 10
"""Steps after which several processes agree on whether a slice has ended, at most."""


class TrainingStoppedError(PolysemeError):
    """The loss is not a number, or does not come down again."""


@dataclass
class StopIfDiverged:
    """Stops a run whose loss is not a number, or stays over twice what it was at first."""

    every: int
    first: float | None = None
    n_high: int = 0

    @classmethod
    def resumed(cls, every: int, log: Sequence[Mapping[str, Any]]) -> StopIfDiverged:
        """As it is after the steps of a log, so that a run that is resumed stops where it would have stopped."""
        watch = cls(every)
        for line in log:
            if line["step"] % every == 0 or line["step"] == 1:
                watch._see(line["loss"])
        return watch

    def _see(self, loss: float) -> None:
        self.first = loss if self.first is None else self.first
        self.n_high = self.n_high + 1 if loss > 2 * self.first + 1 else 0

    def __call__(self, moment: Moment) -> None:
        if not due(moment, self.every):
            return
        loss = moment.loss
        if not math.isfinite(loss):
            raise TrainingStoppedError(
                f"The loss at step {moment.done:,} is {loss}, so the run was stopped. The last checkpoint is from "
                f"before. Start over with a lower learning rate than {moment.learning_rate:.2g} "
                "(--learning-rate), or a longer warmup."
            )
        self._see(loss)
        if self.n_high >= HIGH:
            raise TrainingStoppedError(
                f"The loss has risen from {self.first:.3g} to {loss:.3g} at step {moment.done:,} and does not come "
                f"down, so the run was stopped. Start over with a lower learning rate than "
                f"{moment.learning_rate:.2g} (--learning-rate)."
            )


@dataclass
class WarnIfNothingIsLearned:
    """Warns once of a model that is hardly better than knowing how frequent each piece is, after a fair share of its
    steps and past the warmup.
    """

    entropy: float
    """The unigram entropy of the held-out text."""
    warned: bool = False

    def resume(self, log: Sequence[Mapping[str, Any]], n_steps: int, trainer: Trainer) -> None:
        """Do not repeat a warning that was due in the steps of a log."""
        evaluated = [line for line in log if "held_out" in line]
        self.warned = any(self._is_due(each["step"], n_steps, each["held_out"], trainer) for each in evaluated)

    def __call__(self, moment: Moment) -> None:
        trainer = moment.trainer
        if self.warned or not self._is_due(moment.done, moment.n_steps, moment.held_out, trainer):
            return
        self.warned = True
        if trainer.devices.leads:
            warnings.warn(
                f"After {moment.done:,} of {moment.n_steps:,} steps the held-out loss is "
                f"{trainer.prediction(moment.held_out):.2f} nats, and knowing how frequent each piece is, and nothing "
                f"else, gives {self.entropy:.2f}: the model has learned nothing from context yet. Try another learning "
                f"rate than {trainer.settings.optimizer.lr:.2g} (--learning-rate; post-norm stacks need a low one), a "
                "larger budget, or a smaller model.",
                PolysemeWarning,
                stacklevel=2,
            )

    def _is_due(self, done: int, n_steps: int, held_out: Mapping[str, float], trainer: Trainer) -> bool:
        loss = trainer.prediction(held_out)
        if loss is None or loss < self.entropy - LEAST_GAIN:
            return False
        return done >= max(FAIR_SHARE * n_steps, FAIR_STEPS, trainer.settings.schedule.warmup_steps(n_steps))


@dataclass
class StopAfter:
    """Stops a run between two steps once the clock (`time.perf_counter`) is past `deadline`.

    The clock is the leading process's, and all processes stop after the same step.
    """

    deadline: float
    next_look: int = 0
    """The step after which they agree next."""
    stopped: bool = False

    def __call__(self, moment: Moment) -> None:
        if not moment.last and moment.done >= self.next_look:
            self.stopped, self.next_look = moment.trainer.devices.agree(self._look(moment))
            moment.stops = moment.stops or self.stopped

    def _look(self, moment: Moment) -> tuple[bool, int]:
        """Whether time is up, and when to look next: more often as it runs out; a single process looks every step."""
        left = self.deadline - time.perf_counter()
        seconds_per_step = (moment.seconds - moment.seconds_before) / (moment.done - moment.first)
        n_steps = min(int(left / seconds_per_step / 2), MOST_STEPS_UNWATCHED)
        return left <= 0, moment.done + (1 if moment.trainer.devices.world == 1 else max(n_steps, 1))


@dataclass
class MeasureSteps:
    """When the first steps of a process, which may compile, were over: the steps since then tell its speed."""

    finish: Callable[[], None]
    """Waits for the device."""
    began: tuple[int, float] | None = None
    """The steps taken by then, and the clock."""

    def __call__(self, moment: Moment) -> None:
        if self.began is None and moment.done >= moment.first + UNMEASURED:
            self.finish()
            self.began = moment.done, time.perf_counter()

    def until(self, step: int) -> tuple[int, float]:
        """The steps taken before those that were measured, and the seconds since, where `step` was the last.

        Those after it are measured from here on.
        """
        if self.began is None:
            return step, 0.0
        self.finish()
        now = time.perf_counter()
        (first, began), self.began = self.began, (step, now)
        return first, now - began
