"""Telling whoever looks on how a run goes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from polyseme.training.effects.base import Moment, due

GUESSING = (("masked",), ("causal",), ("forward", "backward"), ("permuted",), ("denoising",), ("spans",))
"""The parts of a loss that are of guessing pieces; those that stand together count alike."""


@dataclass(frozen=True)
class Report:
    """How a run goes, in figures for the eye."""

    done: int
    n_steps: int
    loss: float
    losses: dict[str, float]
    held_out: dict[str, float]
    pieces_a_second: float
    wait_share: float
    seconds_left: float

    @property
    def perplexity(self) -> float | None:
        """E to the loss of predicting pieces, where a part of the loss is that; of two directions, to their mean."""
        for names in GUESSING:
            if all(name in self.losses for name in names):
                return math.exp(min(statistics.fmean(self.losses[name] for name in names), 50.0))
        return None


OnReport = Callable[[Report], None]


class Tell:
    """Calls `on_report` on logged steps."""

    def __init__(self, on_report: OnReport, every: int) -> None:
        self.on_report = on_report
        self.every = every
        self._since = (0, 0.0)

    def __call__(self, moment: Moment) -> None:
        if not moment.trainer.devices.leads or not (due(moment, self.every) or moment.held_out):
            return
        pieces, seconds = self._since if self._since[0] else (moment.pieces, moment.seconds)
        speed = (moment.pieces - pieces) / max(moment.seconds - seconds, 1e-9)
        self._since = (moment.pieces, moment.seconds)
        a_step = (moment.seconds - moment.began) / max(moment.done, 1)
        self.on_report(
            Report(
                done=moment.done,
                n_steps=moment.n_steps,
                loss=moment.loss,
                losses=moment.losses,
                held_out=dict(moment.held_out),
                pieces_a_second=speed,
                wait_share=moment.wait_share,
                seconds_left=a_step * (moment.n_steps - moment.done),
            )
        )
