"""What happens beside the loop after each step: evaluate, log, report, write checkpoints; `watching` has more.

Each effect is a small object that is called with the state of the run. All processes call it; the leading
one writes and prints.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from polyseme.extras import require
from polyseme.files.atomic import whole_file
from polyseme.json_reading import parse_json
from polyseme.plots.learning_curve import learning_curve
from polyseme.training.checkpoint import has_checkpoint, write_checkpoint
from polyseme.training.loader import StepRows
from polyseme.training.trainer import Trainer

CHECKPOINTS = "checkpoints"
LOG = "log.jsonl"
CURVE = "curve.svg"


@dataclass
class StepState:
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
    """Seconds trained since the run began, in this process and those before it; includes the time of effects."""
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

    def __call__(self, moment: StepState) -> None: ...


def due(moment: StepState, every: int) -> bool:
    """Whether what happens every `every` steps happens now; the first and the last step always count."""
    return moment.done % every == 0 or moment.done == 1 or moment.last


class AverageWeights:
    """Lets the average of the weights, where one is kept, follow each step."""

    def __call__(self, moment: StepState) -> None:
        if moment.trainer.average is not None:
            moment.trainer.average.update(moment.done)


@dataclass
class Evaluate:
    """The loss over held-out rows, every `every` steps and at the end; always the same rows, corrupted alike."""

    rows: Callable[[], Iterable[StepRows]]
    every: int

    def __call__(self, moment: StepState) -> None:
        if moment.done % self.every == 0 or moment.last:
            with moment.trainer.averaged():
                means = moment.trainer.evaluate(self.rows())
            moment.held_out.update({"loss": moment.trainer.total(means), **means} if means else {})
            if means and moment.trainer.average is not None:
                moment.trainer.average.evaluated(moment.held_out["loss"])


@dataclass
class Log:
    """Appends one line of JSON per logged step: loss, its parts, pieces, seconds, lr; if evaluated also `held_out`."""

    folder: Path
    every: int

    def __call__(self, moment: StepState) -> None:
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
            with contextlib.suppress(ValueError, TypeError, KeyError):
                line = parse_json(text, kind=dict)
                int(line["step"]), float(line["loss"])
                lines.append(line)
    return lines


def truncate_log(folder: Path, step: int) -> None:
    """Remove the entries after `step`, which a run that is resumed there will log again."""
    lines = [line for line in read_log(folder) if line["step"] <= step]
    with whole_file(folder / LOG, force=True) as path:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@dataclass
class DrawCurve:
    """Draws the losses of the log against pieces read, after each evaluation and at the end."""

    folder: Path
    title: str
    unigram_entropy: float | None

    def __call__(self, moment: StepState) -> None:
        if not moment.trainer.devices.leads or not (moment.held_out or moment.last):
            return
        lines = read_log(self.folder)
        training = [(line["pieces"], self._loss(line, moment.trainer)) for line in lines]
        held_out = [
            (line["pieces"], self._loss(line["held_out"], moment.trainer)) for line in lines if "held_out" in line
        ]
        picture = learning_curve(training, held_out, unigram_entropy=self.unigram_entropy, title=self.title)
        with whole_file(self.folder / CURVE, force=True) as path:
            path.write_text(picture, encoding="utf-8")

    def _loss(self, means: Mapping[str, float], trainer: Trainer) -> float:
        """Of predicting pieces, or, where no part of the loss is that, of all."""
        prediction = trainer.prediction(means)
        return means["loss"] if prediction is None else prediction


class TensorBoard:
    """The same figures as events that TensorBoard shows."""

    def __init__(self, folder: Path, every: int) -> None:
        require("tensorboard", extra="tensorboard")
        board = require("torch.utils.tensorboard", extra="tensorboard")
        self.every = every
        self.writer = board.SummaryWriter(str(folder / "tensorboard"))

    def __call__(self, moment: StepState) -> None:
        if due(moment, self.every) or moment.held_out:
            self._add("train", {**moment.losses, "total": moment.loss, "lr": moment.learning_rate}, moment.done)
            self._add("held_out", moment.held_out, moment.done)
            self.writer.flush()

    def _add(self, group: str, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)


@dataclass(frozen=True)
class Report:
    """The figures of a logged step, for progress displays."""

    done: int
    n_steps: int
    loss: float
    losses: dict[str, float]
    held_out: dict[str, float]
    pieces_per_second: float
    wait_share: float
    seconds_left: float
    prediction: float | None = None
    """The loss of predicting pieces, where a part of the loss is that."""
    held_out_prediction: float | None = None
    """The same on held-out text, where this step was evaluated."""

    @property
    def perplexity(self) -> float | None:
        """E to the loss of predicting pieces."""
        return None if self.prediction is None else math.exp(min(self.prediction, 50.0))


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

    def __call__(self, moment: StepState) -> None:
        if not moment.trainer.devices.leads or not (due(moment, self.every) or moment.held_out):
            return
        pieces, seconds = self._since if self._since[0] else (moment.pieces, moment.seconds)
        speed = (moment.pieces - pieces) / max(moment.seconds - seconds, 1e-9)
        self._since = (moment.pieces, moment.seconds)
        done, until = (moment.first, moment.seconds_before) if self._first is None else self._first
        seconds_per_step = (moment.seconds - until) / max(moment.done - done, 1)
        self._first = self._first or (moment.done, moment.seconds)
        trainer = moment.trainer
        has_perplexity = trainer.objective.has_perplexity
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
                prediction=trainer.prediction(moment.losses) if has_perplexity else None,
                held_out_prediction=trainer.prediction(moment.held_out) if has_perplexity else None,
            )
        )


@dataclass(frozen=True)
class EvaluatedStep:
    """A step of which there is a checkpoint, and its held-out loss of predicting pieces."""

    step: int
    loss: float


@dataclass
class WriteCheckpoints:
    """Writes a checkpoint every `every` steps, at the end, and where the run stops, unless weights are NaN or infinite.

    The last `keep` stay, and where `keeps_lowest`, that with the lowest held-out loss.
    """

    folder: Path
    every: int
    n_steps: int
    record: Callable[[int, float], dict[str, Any]]
    """From the steps taken and the seconds trained, what else a checkpoint holds."""
    keep: int
    shard_size: int | None
    keeps_lowest: bool = False
    lowest: EvaluatedStep | None = None

    def __call__(self, moment: StepState) -> None:
        if self._is_due(moment.done):
            self._see(moment.done, moment.trainer.prediction(moment.held_out))
        if self._is_due(moment.done) or moment.stops:
            self.now(moment.trainer, moment.done, moment.seconds)

    def resume(self, log: Iterable[Mapping[str, Any]], trainer: Trainer) -> None:
        """Find the lowest of the steps of a log whose checkpoints are there."""
        for line in log:
            if "held_out" in line and has_checkpoint(self.folder / CHECKPOINTS, line["step"]):
                self._see(line["step"], trainer.prediction(line["held_out"]))

    def _see(self, step: int, loss: float | None) -> None:
        if self.keeps_lowest and loss is not None and (self.lowest is None or loss < self.lowest.loss):
            self.lowest = EvaluatedStep(step, loss)

    def _is_due(self, done: int) -> bool:
        return done % self.every == 0 or done == self.n_steps

    def now(self, trainer: Trainer, done: int, seconds: float) -> None:
        """Write one, if the weights are in order."""
        if not trainer.finite():
            return
        tensors = trainer.tensors()
        if trainer.devices.leads:
            folder, record = self.folder / CHECKPOINTS, self.record(done, seconds)
            write_checkpoint(
                folder,
                done,
                tensors,
                record,
                keep=self.keep,
                lowest=None if self.lowest is None else self.lowest.step,
                passing=not self._is_due(done),
                shard_size=self.shard_size,
            )
        trainer.devices.wait()
