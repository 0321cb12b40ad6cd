"""What happens beside the loop after each step: evaluate, log, report, stop a run that diverges, write checkpoints.

Each effect is a small object that is called with the state of the run. All processes call it; the leading
one writes and prints.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from polyseme.errors import PolysemeError
from polyseme.extras import require
from polyseme.files.atomic import whole_file
from polyseme.training.checkpoint import write_checkpoint
from polyseme.training.loader import StepRows
from polyseme.training.time_budget import UNMEASURED
from polyseme.training.trainer import Trainer

CHECKPOINTS = "checkpoints"
LOG = "log.jsonl"
PREDICTION_PARTS = (("masked",), ("causal",), ("forward", "backward"), ("permuted",), ("denoising",), ("spans",))
"""The parts of a loss that predict pieces; those of one group count alike."""
HIGH = 5
"""Logged steps in a row that the loss must be high for the run to be called lost."""
MOST_STEPS_UNWATCHED = 10
"""Steps after which several processes agree on whether a slice has ended, at most."""


@dataclass
class Moment:
    """The state of a run after a step."""

    done: int
    """Steps taken since the run began."""
    n_steps: int
    means: Mapping[str, Tensor]
    """The mean of each part of the step's loss; may still be computed on the device."""
    learning_rate: float
    """The learning rate of the step."""
    pieces: int
    """Pieces read since the run began."""
    seconds: float
    """Seconds trained since the run began, in this process and those before it; goes on while effects work."""
    waited: float
    """Seconds that steps waited for rows, since the loop began."""
    seconds_before: float
    """Seconds trained before the loop began."""
    trainer: Trainer
    first: int = 0
    """Steps taken before the loop began."""
    stops: bool = False
    """Whether the run stops here, before its end, to be resumed by another process."""
    held_out: dict[str, float] = field(default_factory=dict)
    """The latest means over rows that are not trained on, where this step was evaluated."""

    @cached_property
    def losses(self) -> dict[str, float]:
        """The mean of each part; waits for the device."""
        return {name: float(mean) for name, mean in self.means.items()}

    @property
    def loss(self) -> float:
        """What is minimized."""
        return self.trainer.total(self.losses)

    @property
    def last(self) -> bool:
        """Whether the run is at its end."""
        return self.done == self.n_steps

    @property
    def wait_share(self) -> float:
        """The share of the loop's time that steps waited for rows."""
        return self.waited / max(self.seconds - self.seconds_before, 1e-9)


class Effect(Protocol):
    """Something that happens after steps."""

    def __call__(self, moment: Moment) -> None: ...


def due(moment: Moment, every: int) -> bool:
    """Whether what happens every `every` steps happens now; the first and the last step always count."""
    return moment.done % every == 0 or moment.done == 1 or moment.last


class AverageWeights:
    """Lets the average of the weights, where one is kept, follow each step."""

    def __call__(self, moment: Moment) -> None:
        if moment.trainer.average is not None:
            moment.trainer.average.update(moment.done)


@dataclass
class Evaluate:
    """The loss over held-out rows, every `every` steps and at the end; always the same rows, corrupted alike."""

    rows: Callable[[], Iterable[StepRows]]
    every: int

    def __call__(self, moment: Moment) -> None:
        if moment.done % self.every == 0 or moment.last:
            with moment.trainer.averaged():
                means = moment.trainer.evaluate(self.rows())
            moment.held_out.update({"loss": moment.trainer.total(means), **means} if means else {})


@dataclass
class Log:
    """Appends one line of JSON per logged step: loss, its parts, pieces, seconds, lr; if evaluated also `held_out`."""

    folder: Path
    every: int

    def __call__(self, moment: Moment) -> None:
        if not moment.trainer.devices.leads or not (due(moment, self.every) or moment.held_out):
            return
        line = {
            "step": moment.done,
            "loss": moment.loss,
            **moment.losses,
            "pieces": moment.pieces,
            "seconds": round(moment.seconds, 3),
            "lr": moment.learning_rate,
            "wait": round(moment.wait_share, 4),
            **({"held_out": moment.held_out} if moment.held_out else {}),
        }
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The entries of a run's log; one that was cut short when the run was stopped is left out."""
    path = folder / LOG
    lines: list[dict[str, Any]] = []
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
    return lines


def truncate_log(folder: Path, step: int) -> None:
    """Remove the entries after `step`, which a run that is resumed there will log again."""
    lines = [line for line in read_log(folder) if line["step"] <= step]
    with whole_file(folder / LOG, force=True) as path:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


class TensorBoard:
    """The same figures as events that TensorBoard shows."""

    def __init__(self, folder: Path, every: int) -> None:
        require("tensorboard", extra="tensorboard")
        board = require("torch.utils.tensorboard", extra="tensorboard")
        self.every = every
        self.writer = board.SummaryWriter(str(folder / "tensorboard"))

    def __call__(self, moment: Moment) -> None:
        if due(moment, self.every) or moment.held_out:
            self._add("train", {**moment.losses, "total": moment.loss, "lr": moment.learning_rate}, moment.done)
            self._add("held_out", moment.held_out, moment.done)
            self.writer.flush()

    def _add(self, group: str, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)


@dataclass(frozen=True)
class Report:
    """The figures of a logged step, for whoever watches a run."""

    done: int
    n_steps: int
    loss: float
    losses: dict[str, float]
    held_out: dict[str, float]
    pieces_per_second: float
    wait_share: float
    seconds_left: float

    @property
    def perplexity(self) -> float | None:
        """E to the loss of predicting pieces, where a part of the loss is that; of two directions, to their mean."""
        for names in PREDICTION_PARTS:
            if all(name in self.losses for name in names):
                return math.exp(min(statistics.fmean(self.losses[name] for name in names), 50.0))
        return None


OnReport = Callable[[Report], None]


@dataclass
class ReportProgress:
    """Calls `on_report` on logged steps.

    The time left is by the steps since the first report of this process, since the ones before may have compiled.
    """

    on_report: OnReport
    every: int
    _since: tuple[int, float] = (0, 0.0)
    _first: tuple[int, float] | None = None

    def __call__(self, moment: Moment) -> None:
        if not moment.trainer.devices.leads or not (due(moment, self.every) or moment.held_out):
            return
        pieces, seconds = self._since if self._since[0] else (moment.pieces, moment.seconds)
        speed = (moment.pieces - pieces) / max(moment.seconds - seconds, 1e-9)
        self._since = (moment.pieces, moment.seconds)
        done, until = (moment.first, moment.seconds_before) if self._first is None else self._first
        seconds_per_step = (moment.seconds - until) / max(moment.done - done, 1)
        self._first = self._first or (moment.done, moment.seconds)
        self.on_report(
            Report(
                done=moment.done,
                n_steps=moment.n_steps,
                loss=moment.loss,
                losses=moment.losses,
                held_out=dict(moment.held_out),
                pieces_per_second=speed,
                wait_share=moment.wait_share,
                seconds_left=seconds_per_step * (moment.n_steps - moment.done),
            )
        )


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
        """The steps taken before those that are measured up to `step`, which was the last, and the seconds since."""
        if self.began is None:
            return step, 0.0
        self.finish()
        return self.began[0], time.perf_counter() - self.began[1]


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
class WriteCheckpoints:
    """Writes a checkpoint every `every` steps, at the end, and where the run stops, unless weights are no numbers."""

    folder: Path
    every: int
    n_steps: int
    record: Callable[[int, float], dict[str, Any]]
    """From the steps taken and the seconds trained, what else a checkpoint holds."""
    keep: int
    shard_size: int | None

    def __call__(self, moment: Moment) -> None:
        if self.is_due(moment.done) or moment.stops:
            self.now(moment.trainer, moment.done, moment.seconds)

    def is_due(self, done: int) -> bool:
        """Whether there is one after so many steps, wherever the run may stop besides."""
        return done % self.every == 0 or done == self.n_steps

    def now(self, trainer: Trainer, done: int, seconds: float) -> None:
        """Write one, if the weights are in order."""
        if not trainer.finite():
            return
        tensors = trainer.tensors()
        if trainer.devices.leads:
            folder, record = self.folder / CHECKPOINTS, self.record(done, seconds)
            write_checkpoint(
                folder, done, tensors, record, keep=self.keep, counts=self.is_due, shard_size=self.shard_size
            )
        trainer.devices.wait()
