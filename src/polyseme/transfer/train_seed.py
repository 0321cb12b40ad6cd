"""One seed: a task model learns from train, dev is scored as it goes, and the best on dev is kept.

A step depends on the weights, the optimizer and the step's number alone; so an interrupted run resumes from its last
checkpoint as if it had not been interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.errors import OptionError
from polyseme.training.checkpoint import (
    named_under,
    optimizer_tensors,
    put_optimizer_tensors,
    read_latest,
    write_checkpoint,
)
from polyseme.training.optimizers import build_optimizer, layer_rates
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import PreparedItems
from polyseme.transfer.seeds_abreast import Run
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.task_teaching import TaskTeaching
from polyseme.transfer.train_step import PlainSteps, RecordedSteps, can_record
from polyseme.transfer.unit_batches import order
from polyseme.verb_options.task_options import CHECKPOINT_SECONDS

WEIGHTS, BEST, OPTIMIZER = "weights/", "best/", "optimizer/"
IN_CHECKPOINT = ("best_step", "dev", "curve", "seconds")
"""What a checkpoint has of a `TrainedSeed`."""
REPORT_EVERY = 10
"""Steps between two reports of progress."""

Score = Callable[[TaskModel], dict[str, float]]
"""A model's figures on dev; the first is what is chosen by."""


@dataclass(frozen=True)
class StepReport:
    """The progress of one seed."""

    seed: int
    done: int
    n_steps: int
    loss: float | None = None
    dev: Mapping[str, float] | None = None
    part: str = ""
    """Of a learning curve, or of several models, which part of it."""


def named_part(on_report: Callable[[StepReport], None], part: str) -> Callable[[StepReport], None]:
    """A callback that passes reports on under the name of a part."""
    return lambda report: on_report(replace(report, part=part))


@dataclass
class TrainedSeed:
    """The result of one seed."""

    seed: int
    best_step: int
    dev: dict[str, float]
    """The figures of the best step on dev."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    """Of each evaluation: step, epoch, mean loss since the one before, figures on dev."""
    seconds: float = 0.0
    n_steps: int = 0
    """As planned."""
    n_taken: int = 0
    """Fewer than planned if the loss became NaN or infinite."""
    seconds_before: float = 0.0
    """How many of them were spent before it was resumed."""
    diverged: bool = False


@dataclass(kw_only=True)
class SeedTraining:
    """The training of a task model with one seed. The model's new parts are initialized already."""

    model: TaskModel
    train: PreparedItems
    score: Score
    settings: FinetuneSettings
    seed: int
    n_dev: int = 0
    """Items of dev: a large dev set is scored less often (see `steps_of_dev`)."""
    teaching: TaskTeaching | None = None
    """A teacher to learn from, too."""
    bf16: bool = False
    min_gap: int = 0
    """The fewest steps between two evaluations, unless the settings say how many evaluations an epoch has."""
    checkpoints: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    on_report: Callable[[StepReport], None] | None = None

    def __post_init__(self) -> None:
        self._lengths = self.train.source.lengths
        self._batch_size, self._epochs = int(self.settings.batch_size or 32), int(self.settings.epochs or 3)
        self._steps_per_epoch = -(-len(self._lengths) // self._batch_size)
        self._n_steps = self._epochs * self._steps_per_epoch
        per_epoch = self.settings.evaluations or 1
        self._due = {round((number + 1) * self._steps_per_epoch / per_epoch) for number in range(per_epoch)}
        of_dev = steps_of_dev(self.n_dev, len(self._lengths), self._steps_per_epoch)
        self._gap = 0 if self.settings.evaluations else max(self.min_gap, of_dev)
        self._optimizer = build_optimizer(
            self.model, self.settings.optimizer, device=self.model.device, rates=rates_of(self.model, self.settings)
        )
        self._learned = TrainedSeed(seed=self.seed, best_step=0, dev={}, n_steps=self._n_steps)
        self._best: dict[str, Tensor] = {}
        self._started = self._last_checkpoint = 0.0

    def run(self) -> Run[TrainedSeed]:
        """Train, and leave the model with the weights that were best on dev. Yields after every step (`take_turns`)."""
        learned, schedule = self._learned, self.settings.learning_rates
        steps = self._build_steps()
        done = self._resume()
        self._started = self._last_checkpoint = time.perf_counter()
        self.model.train()
        for epoch in range(done // self._steps_per_epoch, self._epochs):
            unfreeze(self.model, self.settings, epoch, self._epochs)
            for place, numbers in enumerate(order(self._lengths, self._batch_size, self.seed, epoch)):
                step = epoch * self._steps_per_epoch + place
                if step < done:
                    continue
                torch.manual_seed(step_seed(self.seed, step))
                steps(self.train.source, numbers.tolist(), schedule.factor(step, self._n_steps))
                learned.n_taken = step + 1
                yield
                if (step + 1) % REPORT_EVERY == 0:
                    self._report()
                if self._is_evaluated(place):
                    self._evaluate(steps.mean_loss())
                if learned.diverged:
                    break
            if learned.diverged:
                break
        steps.close()
        put(self.model, self._best)
        if not learned.dev:
            learned.dev = self.score(self.model)
        learned.seconds = self._seconds()
        return learned

    def _build_steps(self) -> PlainSteps | RecordedSteps:
        teaching = self.teaching
        is_recorded = can_record(self.model) and self.settings.compile is not False
        is_recorded = is_recorded and (teaching is None or teaching.can_record)
        return (RecordedSteps if is_recorded else PlainSteps)(
            self.model,
            self._optimizer,
            bf16=self.bf16,
            max_grad_norm=self.settings.max_grad_norm,
            loss=None if teaching is None else teaching.loss_of(self.model),
        )

    def _is_evaluated(self, place: int) -> bool:
        """Whether dev is scored after the step at a place of its epoch; after the last step it always is."""
        done, curve = self._learned.n_taken, self._learned.curve
        since = done - (curve[-1]["step"] if curve else 0)
        return place + 1 in self._due and (since >= self._gap or done == self._n_steps)

    def _evaluate(self, loss: float) -> None:
        """Score dev, and keep the weights if they are the best so far; a loss that is not finite ends the training."""
        learned, done = self._learned, self._learned.n_taken
        if not math.isfinite(loss):
            learned.diverged = True
            return
        figures = self.score(self.model)
        self.model.train()
        learned.curve.append({"step": done, "epoch": done / self._steps_per_epoch, "loss": loss, "dev": figures})
        if not learned.dev or _first_figure(figures) > _first_figure(learned.dev):
            learned.best_step, learned.dev = done, figures
            self._best.update({name: each.detach().clone() for name, each in self.model.state().items()})
        self._report(loss, figures)
        learned.seconds = self._seconds()
        self._write_checkpoint()

    def _report(self, loss: float | None = None, dev: Mapping[str, float] | None = None) -> None:
        if self.on_report is not None:
            self.on_report(StepReport(self.seed, self._learned.n_taken, self._n_steps, loss, dev))

    def _seconds(self) -> float:
        """Seconds spent on the seed, in this session and those before it."""
        return self._learned.seconds_before + time.perf_counter() - self._started

    def _write_checkpoint(self) -> None:
        """Write a checkpoint if the last one is old enough and there are steps to come."""
        learned, now = self._learned, time.perf_counter()
        is_old = now - self._last_checkpoint >= self.checkpoint_seconds
        if self.checkpoints is None or not is_old or learned.n_taken >= self._n_steps:
            return
        tensors = {f"{WEIGHTS}{name}": each.detach() for name, each in self.model.state().items()}
        tensors |= {f"{BEST}{name}": each for name, each in self._best.items()}
        of_optimizer = optimizer_tensors(self._optimizer, self._parameter_names())
        tensors |= {f"{OPTIMIZER}{name}": each for name, each in of_optimizer.items()}
        record = {name: getattr(learned, name) for name in IN_CHECKPOINT}
        write_checkpoint(self.checkpoints, learned.n_taken, tensors, record, keep=1)
        self._last_checkpoint = time.perf_counter()

    def _resume(self) -> int:
        """Restore a checkpoint; returns the steps that were taken before it."""
        checkpoint = None if self.checkpoints is None else read_latest(self.checkpoints)
        if checkpoint is None:
            return 0
        put(self.model, named_under(WEIGHTS, checkpoint.tensors))
        put_optimizer_tensors(self._optimizer, self._parameter_names(), named_under(OPTIMIZER, checkpoint.tensors))
        best = named_under(BEST, checkpoint.tensors)
        self._best.update({name: each.to(self.model.device) for name, each in best.items()})
        for name in IN_CHECKPOINT:
            setattr(self._learned, name, checkpoint.record[name])
        self._learned.seconds_before = self._learned.seconds
        return checkpoint.step

    def _parameter_names(self) -> dict[nn.Parameter, str]:
        return {parameter: name for name, parameter in self.model.named_parameters()}


def steps_of_dev(n_dev: int, n_train: int, an_epoch: int) -> int:
    """Where dev has more items than train, the steps in which as many training items are read as dev has; else 0.

    So scoring dev costs less than training however few items an epoch has.

    >>> steps_of_dev(200, 18, 1), steps_of_dev(200, 50, 2), steps_of_dev(200, 200, 7)
    (12, 8, 0)
    """
    return -(-n_dev * an_epoch // n_train) if n_dev > n_train else 0


def rates_of(model: TaskModel, settings: FinetuneSettings) -> dict[nn.Parameter, float]:
    """What each parameter's learning rate is multiplied by: less in lower layers; new parameters have their own."""
    rates = layer_rates(model.layer_groups(), settings.layer_decay)
    if settings.head_learning_rate is not None and settings.learning_rate is not None:
        new = (name for name in model.learned() if not name.startswith("bundle."))
        parameters = dict(model.named_parameters())
        rates.update({parameters[name]: settings.head_learning_rate / settings.learning_rate for name in new})
    return rates


def n_unfrozen(n_groups: int, epoch: int, epochs: int) -> int:
    """How many of an encoder's groups learn in an epoch of gradual unfreezing: none at first, all in the last.

    Each epoch unfreezes one more, or several where there are too few epochs for that.

    >>> [n_unfrozen(3, epoch, 6) for epoch in range(6)], [n_unfrozen(7, epoch, 4) for epoch in range(4)]
    ([0, 1, 2, 3, 3, 3], [0, 2, 5, 7])
    """
    if epoch >= epochs - 1:
        return n_groups
    return min(n_groups, max(epoch, round(n_groups * epoch / (epochs - 1))))


def unfreeze(model: TaskModel, settings: FinetuneSettings, epoch: int, epochs: int) -> None:
    """Unfreeze the layers that are trained in an epoch."""
    groups = model.layer_groups()
    if not settings.gradual_unfreezing or not groups:
        return
    n_trained = n_unfrozen(len(groups), epoch, epochs)
    for number, group in enumerate(groups):
        for parameter in group:
            parameter.requires_grad_(number >= len(groups) - n_trained)


def step_seed(seed: int, step: int) -> int:
    """The seed of dropout in a step."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 1) % 2**63


@torch.no_grad()
def put(model: TaskModel, weights: Mapping[str, Tensor]) -> None:
    """Set what training changes to these values."""
    mine = model.state()
    for name, value in weights.items():
        mine[name].copy_(value)


def _first_figure(figures: Mapping[str, float]) -> float:
    return next(iter(figures.values()))


def reinit_top(model: TaskModel, fresh: Sequence[Sequence[nn.Parameter]], n_layers: int) -> None:
    """Reinitialize the top layers: they get the weights that these layers have in a new encoder."""
    groups = model.layer_groups()
    if n_layers >= len(groups):
        raise OptionError(
            f"Only layers above the lowest can be reinitialized, and this encoder has {len(groups) - 1} of them. Got "
            f"reinit_layers {n_layers}; choose {len(groups) - 1} or fewer."
        )
    with torch.no_grad():
        for mine, new in zip(groups[len(groups) - n_layers :], fresh[len(groups) - n_layers :], strict=True):
            for parameter, drawn in zip(mine, new, strict=True):
                parameter.copy_(drawn)
