"""The loop: rows in, a step, then whatever else is due."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from polyseme.training.effects import Effect, StepState
from polyseme.training.loader import Loader
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Plan


class Trained(NamedTuple):
    """The progress of training."""

    done: int
    """Steps since the run began."""
    seconds: float
    """Of training, since the run began."""


def train(
    trainer: Trainer,
    loader: Loader,
    plan: Plan,
    effects: Sequence[Effect],
    *,
    first: int = 0,
    last: int | None = None,
    seconds: float = 0.0,
    workers: int = 1,
) -> Trained:
    """Take the steps from `first` on: to the last one, to `last`, or to one after which an effect stops the run.

    `seconds` is how long was trained before.
    """
    started = time.perf_counter() - seconds
    waited = 0.0
    trained = Trained(first, seconds)
    optimizer, schedule = trainer.settings.optimizer, trainer.settings.schedule
    for rows in loader.steps(first, plan.n_steps if last is None else last, workers=workers):
        means = trainer.step(rows, plan)
        waited += rows.waited
        moment = StepState(
            done=rows.step + 1,
            n_steps=plan.n_steps,
            means=means,
            learning_rate=optimizer.lr * schedule.factor(rows.step, plan.n_steps),
            pieces=plan.pieces_until(rows.step + 1),
            seconds=time.perf_counter() - started,
            waited=waited,
            seconds_before=seconds,
            trainer=trainer,
            first=first,
        )
        for effect in effects:
            effect(moment)
            moment.seconds = time.perf_counter() - started
        trained = Trained(moment.done, moment.seconds)
        if moment.stops:
            break
    return trained
