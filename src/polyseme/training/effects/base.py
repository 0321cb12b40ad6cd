"""The contract of every effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from torch import Tensor

from polyseme.training.trainer import Trainer


@dataclass
class Moment:
    """Where a run stands after a step."""

    done: int
    """Steps taken, from the beginning of the run."""
    n_steps: int
    means: Mapping[str, Tensor]
    """The mean of each part of the step's loss; still on its way from the device."""
    rate: float
    """The learning rate of the step."""
    pieces: int
    """Pieces read, from the beginning of the run."""
    seconds: float
    """Seconds trained, from the beginning of the run, in this process and those before it."""
    waited: float
    """Seconds of these, since this process began, that steps stood waiting for rows."""
    began: float
    """Seconds trained before this process began."""
    trainer: Trainer
    held_out: dict[str, float] = field(default_factory=dict)
    """The latest means over rows that are not trained on, where this step was evaluated."""

    @cached_property
    def losses(self) -> dict[str, float]:
        """The mean of each part; waits for the device."""
        return {name: float(mean) for name, mean in self.means.items()}

    @property
    def loss(self) -> float:
        """What is minimised."""
        return self.trainer.total(self.losses)

    @property
    def last(self) -> bool:
        """Whether the run is at its end."""
        return self.done == self.n_steps

    @property
    def wait_share(self) -> float:
        """The share of this process's time that steps stood waiting for rows."""
        return self.waited / max(self.seconds - self.began, 1e-9)


class Effect(Protocol):
    """Something that happens after steps. All processes call it, the leading one writes."""

    def __call__(self, moment: Moment) -> None: ...


def due(moment: Moment, every: int) -> bool:
    """Whether something that happens every so many steps happens now; the first and the last step always count."""
    return moment.done % every == 0 or moment.done == 1 or moment.last
