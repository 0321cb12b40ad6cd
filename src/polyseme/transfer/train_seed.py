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
from polyseme.training.optimizers import Optimizer, build_optimizer, layer_rates
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import PreparedItems
from polyseme.transfer.seeds_abreast import Run
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.task_teaching import TaskTeaching
from polyseme.transfer.train_step import PlainSteps, RecordedSteps, can_record
from polyseme.transfer.unit_batches import order
from polyseme.verb_options.task_options import CHECKPOINT_SECONDS

WEIGHTS, BEST, OPTIMIZER = "weights/", "best/", "optimizer/"

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


def learn(
    model: TaskModel,
    train: PreparedItems,
    score: Score,
    settings: FinetuneSettings,
    seed: int,
    *,
    n_dev: int = 0,
    teaching: TaskTeaching | None = None,
    bf16: bool = False,
    min_gap: int = 0,
    checkpoints: Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    on_report: Callable[[StepReport], None] | None = None,
) -> Run[TrainedSeed]:
    """Train a model, whose new parts are drawn already, and leave it with the weights that were best on dev.

    A run for `take_turns`, which yields after every step. Unless the settings say how many evaluations an epoch has,
    there is one, and those that are fewer than `min_gap` steps apart or come sooner than `n_dev` asks for (see
    `steps_of_dev`) are left out, but never the last. With `teaching` it learns from a teacher, too.
    """
    batch, epochs = int(settings.batch_size or 32), int(settings.epochs or 3)
    lengths = train.source.lengths
    an_epoch = -(-len(lengths) // batch)
    n_steps = epochs * an_epoch
    schedule = settings.learning_rates
    optimizer = build_optimizer(
        model,
        settings.optimizer,
        device=model.device,
        rates=rates_of(model, settings),
    )
    recorded = can_record(model) and settings.compile is not False and (teaching is None or teaching.can_record)
    steps = (RecordedSteps if recorded else PlainSteps)(
        model,
        optimizer,
        bf16=bf16,
        max_grad_norm=settings.max_grad_norm,
        loss=None if teaching is None else teaching.loss_of(model),
    )
    learned = TrainedSeed(seed=seed, best_step=0, dev={}, n_steps=n_steps)
    best: dict[str, Tensor] = {}
    done = _resume(checkpoints, model, optimizer, learned, best)
    an_epoch_has = settings.evaluations or 1
    due = {round((number + 1) * an_epoch / an_epoch_has) for number in range(an_epoch_has)}
    gap = 0 if settings.evaluations else max(min_gap, steps_of_dev(n_dev, len(lengths), an_epoch))
    before = learned.seconds_before = learned.seconds
    started = last_checkpoint = time.perf_counter()
    model.train()
    for epoch in range(done // an_epoch, epochs):
        unfreeze(model, settings, epoch, epochs)
        for place, numbers in enumerate(order(lengths, batch, seed, epoch)):
            step = epoch * an_epoch + place
            if step < done:
                continue
            torch.manual_seed(step_seed(seed, step))
            steps(train.source, numbers.tolist(), schedule.factor(step, n_steps))
            learned.n_taken = step + 1
            yield
            if on_report is not None and (step + 1) % 10 == 0:
                on_report(StepReport(seed, step + 1, n_steps))
            since = step + 1 - (learned.curve[-1]["step"] if learned.curve else 0)
            if place + 1 not in due or (since < gap and step + 1 < n_steps):
                continue
            loss = steps.mean_loss()
            if not math.isfinite(loss):
                learned.diverged = True
                break
            figures = score(model)
            model.train()
            learned.curve.append({"step": step + 1, "epoch": (step + 1) / an_epoch, "loss": loss, "dev": figures})
            if not learned.dev or _first_figure(figures) > _first_figure(learned.dev):
                learned.best_step, learned.dev = step + 1, figures
                best.update({name: each.detach().clone() for name, each in model.state().items()})
            if on_report is not None:
                on_report(StepReport(seed, step + 1, n_steps, loss, figures))
            learned.seconds = before + time.perf_counter() - started
            if (
                checkpoints is not None
                and time.perf_counter() - last_checkpoint >= checkpoint_seconds
                and step + 1 < n_steps
            ):
                _keep(checkpoints, step + 1, model, optimizer, learned, best)
                last_checkpoint = time.perf_counter()
        if learned.diverged:
            break
    steps.close()
    put(model, best)
    if not learned.dev:
        learned.dev = score(model)
    learned.seconds = before + time.perf_counter() - started
    return learned


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


def _keep(
    folder: Path, step: int, model: TaskModel, optimizer: Optimizer, learned: TrainedSeed, best: Mapping[str, Tensor]
) -> None:
    names = {parameter: name for name, parameter in model.named_parameters()}
    tensors = {f"{WEIGHTS}{name}": each.detach() for name, each in model.state().items()}
    tensors |= {f"{BEST}{name}": each for name, each in best.items()}
    tensors |= {f"{OPTIMIZER}{name}": each for name, each in optimizer_tensors(optimizer, names).items()}
    record = {"best_step": learned.best_step, "dev": learned.dev, "curve": learned.curve, "seconds": learned.seconds}
    write_checkpoint(folder, step, tensors, record, keep=1)


def _resume(
    folder: Path | None, model: TaskModel, optimizer: Optimizer, learned: TrainedSeed, best: dict[str, Tensor]
) -> int:
    """Restore a checkpoint; returns the steps that were taken before it."""
    checkpoint = None if folder is None else read_latest(folder)
    if checkpoint is None:
        return 0
    tensors = checkpoint.tensors
    put(model, named_under(WEIGHTS, tensors))
    names = {parameter: name for name, parameter in model.named_parameters()}
    put_optimizer_tensors(optimizer, names, named_under(OPTIMIZER, tensors))
    best.update({name: each.to(model.device) for name, each in named_under(BEST, tensors).items()})
    record = checkpoint.record
    learned.best_step, learned.dev, learned.curve = record["best_step"], record["dev"], record["curve"]
    learned.seconds = record["seconds"]
    return checkpoint.step


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
