"""The loss over rows that are not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyseme.training.effects.base import Moment
from polyseme.training.loader import StepRows


class Evaluate:
    """Every so many steps, and at the end; always the same rows, corrupted alike."""

    def __init__(self, rows: Callable[[], Iterable[StepRows]], every: int) -> None:
        self.rows = rows
        self.every = every

    def __call__(self, moment: Moment) -> None:
        if moment.done % self.every == 0 or moment.last:
            means = moment.trainer.evaluate(self.rows())
            moment.held_out.update({"loss": moment.trainer.total(means), **means} if means else {})
