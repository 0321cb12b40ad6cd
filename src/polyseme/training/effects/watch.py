"""Stopping a run that has gone wrong."""

from __future__ import annotations

import math

from polyseme.errors import PolysemeError
from polyseme.training.effects.base import Moment, due

HIGH = 5
"""Logged steps in a row that the loss must be high for the run to be called lost."""


class TrainingStoppedError(PolysemeError):
    """The loss is no number, or does not come down again."""


class Watch:
    """Stops a run whose loss is no number, or stays over twice what it was at first."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.first: float | None = None
        self.n_high = 0

    def __call__(self, moment: Moment) -> None:
        if not due(moment, self.every):
            return
        loss = moment.loss
        if not math.isfinite(loss):
            raise TrainingStoppedError(
                f"The loss at step {moment.done:,} is {loss}, so the run was stopped. The last checkpoint is from "
                f"before. Start again with a lower rate than {moment.rate:.2g} (--rate), or a longer warm-up."
            )
        self.first = loss if self.first is None else self.first
        self.n_high = self.n_high + 1 if loss > 2 * self.first + 1 else 0
        if self.n_high >= HIGH:
            raise TrainingStoppedError(
                f"The loss has risen from {self.first:.3g} to {loss:.3g} at step {moment.done:,} and does not come "
                f"down, so the run was stopped. Start again with a lower rate than {moment.rate:.2g} (--rate)."
            )
