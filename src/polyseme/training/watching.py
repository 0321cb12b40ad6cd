"""What watches over a run: stops one that diverges, warns of one that learns nothing, ends a slice, measures steps."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyseme.errors import PolysemeError, PolysemeWarning
from polyseme.training.effects import StepState, due
from polyseme.training.time_budget import UNMEASURED
from polyseme.training.trainer import Trainer

HIGH = 5
"""Logged steps in a row that the loss must be high for the run to be called lost."""
FAIR_STEPS = 100
"""Steps, at least, after which a model should have learned something from context (`BaseObjective.fair_share`)."""
LEAST_GAIN_OF_LABELS, FAIR_SHARE_FOR_LABELS = 0.05, 0.75
"""The same for labels, and how much less than their entropy: shares. ELECTRA's discriminator learns after its
generator."""
PIECES = "pieces"
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

    def __call__(self, moment: StepState) -> None:
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
    """Warns once of a model that is hardly better than knowing how frequent each piece is, and once of one that
    predicts labels (replaced or not, next or not) hardly better than by their frequencies, each after a fair share of
    the steps and past the warmup.
    """

    entropy: float
    """The unigram entropy of the held-out text, or what the objective has in its place (`baseline`)."""
    n_pieces: int = 0
    """Of the training text. Before so many were read, none was read twice, and a low loss is not of memory."""
    warned: set[str] = field(default_factory=set)
    """What was warned of: pieces, and parts of the loss that predict labels."""

    def resume(self, log: Sequence[Mapping[str, Any]], n_steps: int, trainer: Trainer) -> None:
        """Do not repeat a warning that was due in the steps of a log."""
        evaluated = [line for line in log if "held_out" in line]
        self.warned = {
            subject for each in evaluated for subject in self._due(each["step"], n_steps, each["held_out"], trainer)
        }

    def __call__(self, moment: StepState) -> None:
        trainer = moment.trainer
        for subject, (loss, entropy) in self._due(moment.done, moment.n_steps, moment.held_out, trainer).items():
            if subject in self.warned:
                continue
            trained = trainer.prediction(moment.losses) if subject == PIECES else None
            learns = trained is not None and trained < entropy - trainer.objective.least_gain
            if learns and moment.pieces < self.n_pieces:
                continue
            self.warned.add(subject)
            if trainer.devices.leads:
                noun, of, digits = ("piece", "", 2) if subject == PIECES else ("label", f"of {subject!r} ", 3)
                if learns:
                    reason = (
                        f", and on the text it is trained on the loss is {trained:.2f}: the model memorizes that text. "
                        "Give more text, a smaller budget, a smaller model, or more dropout (dropout_rate)."
                    )
                else:
                    reason = (
                        ": the model has learned nothing from context yet. Try another learning rate than "
                        f"{trainer.settings.optimizer.lr:.2g} (--learning-rate; post-norm stacks need a low one), a "
                        "larger budget, or a smaller model."
                    )
                warnings.warn(
                    f"After {moment.done:,} of {moment.n_steps:,} steps the held-out loss {of}is {loss:.{digits}f} "
                    f"nats, and knowing how frequent each {noun} is, and nothing else, gives {entropy:.{digits}f}"
                    f"{reason}",
                    PolysemeWarning,
                    stacklevel=2,
                )

    def _due(
        self, done: int, n_steps: int, held_out: Mapping[str, float], trainer: Trainer
    ) -> dict[str, tuple[float, float]]:
        """Loss and entropy of what should be learned by now and is not."""
        if not held_out or done < max(FAIR_STEPS, trainer.settings.schedule.warmup_steps(n_steps)):
            return {}
        late: dict[str, tuple[float, float]] = {}
        loss = trainer.prediction(held_out)
        objective = trainer.objective
        fair = done >= objective.fair_share * n_steps
        if loss is not None and fair and loss >= self.entropy - objective.least_gain:
            late[PIECES] = (loss, self.entropy)
        if done >= FAIR_SHARE_FOR_LABELS * n_steps:
            for part, entropy in trainer.objective.label_entropies(held_out).items():
                if held_out[part] > (1 - LEAST_GAIN_OF_LABELS) * entropy:
                    late[part] = (held_out[part], entropy)
        return late


@dataclass
class StopAfter:
    """Stops a run between two steps once the clock (`time.perf_counter`) is past `deadline`.

    The clock is the leading process's, and all processes stop after the same step.
    """

    deadline: float
    next_look: int = 0
    """The step after which they agree next."""
    stopped: bool = False

    def __call__(self, moment: StepState) -> None:
        if not moment.last and moment.done >= self.next_look:
            self.stopped, self.next_look = moment.trainer.devices.agree(self._look(moment))
            moment.stops = moment.stops or self.stopped

    def _look(self, moment: StepState) -> tuple[bool, int]:
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

    def __call__(self, moment: StepState) -> None:
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
