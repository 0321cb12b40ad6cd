"""Schedules of the learning rate: a factor of the peak rate, from the number of a step and how many there are.

A schedule has no state, so resuming needs nothing but the step's number. Steps count from 0. Where a schedule warms
up over W steps, step s has (s + 1)/W of the peak, so that none is taken at rate 0 and step W - 1 has the peak; what
decays is at the peak in step W and would reach its floor in step n, the one after the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from polyseme.config import Config
from polyseme.errors import OptionError, nearest

ScheduleKind = Literal["constant", "linear", "cosine", "noam", "slanted-triangular", "warmup-stable-decay"]


@dataclass(frozen=True, kw_only=True)
class Schedule(Config):
    """A kind of schedule and its numbers, of which each kind reads some."""

    kind: ScheduleKind = "linear"
    warmup: float = 0.1
    """Over how many steps the rate rises: a share of all where it is below 1, else a number of steps."""
    max_warmup: float = 1.0
    """The share of all steps that a warmup of a number of steps takes at most, so that it also suits a short run."""
    floor: float = 0.0
    """The factor at which the decay ends."""
    decay: float = 0.2
    """The share of steps, the last ones, in which warmup-stable-decay goes down."""
    cut_share: float = 0.1
    """The share of steps in which the slanted triangle rises (ULMFiT's cut_frac)."""
    ratio: float = 32.0
    """How much smaller than the peak the slanted triangle's ends are."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScheduleKind):
            raise OptionError(f"There is no schedule {self.kind!r}. {nearest(self.kind, get_args(ScheduleKind))}")
        if not 0 <= self.warmup < math.inf or (self.warmup >= 1 and self.warmup != int(self.warmup)):
            raise OptionError(
                "The warmup of a schedule must be a share of the steps (0 to below 1) or a whole number of steps. "
                f"Got {self.warmup} instead."
            )
        for name in ("floor", "decay", "max_warmup"):
            if not 0 <= getattr(self, name) <= 1:
                raise OptionError(f"The {name} of a schedule must be from 0 to 1. Got {getattr(self, name)} instead.")
        if not 0 < self.cut_share < 1:
            raise OptionError(f"The cut_share of a schedule must be between 0 and 1. Got {self.cut_share} instead.")
        if not 1 <= self.ratio < math.inf:
            raise OptionError(f"The ratio of a schedule must be at least 1. Got {self.ratio} instead.")

    def warmup_steps(self, n_steps: int) -> int:
        """Over how many of the steps the rate rises."""
        if self.warmup < 1:
            return round(self.warmup * n_steps)
        return min(round(self.max_warmup * n_steps), round(self.warmup))

    def factor(self, step: int, n_steps: int) -> float:
        """What the peak rate is multiplied by in a step, counted from 0.

        >>> [Schedule(kind="linear", warmup=2).factor(step, 6) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        step = min(max(step, 0), n_steps)
        return _FACTORS[self.kind](self, step, max(n_steps, 1))


def _constant(schedule: Schedule, step: int, n_steps: int) -> float:
    return _rise(step, schedule.warmup_steps(n_steps))


def _linear(schedule: Schedule, step: int, n_steps: int) -> float:
    rise = schedule.warmup_steps(n_steps)
    return _rise(step, rise) if step < rise else _between(schedule.floor, _share_left(step, rise, n_steps))


def _cosine(schedule: Schedule, step: int, n_steps: int) -> float:
    """Loshchilov and Hutter 2017, one cycle."""
    rise = schedule.warmup_steps(n_steps)
    if step < rise:
        return _rise(step, rise)
    return _between(schedule.floor, (1 + math.cos(math.pi * (1 - _share_left(step, rise, n_steps)))) / 2)


def _noam(schedule: Schedule, step: int, n_steps: int) -> float:
    """Vaswani et al. 2017, over its own peak, so that width and warmup do not move it; they count steps from 1."""
    rise = max(1, schedule.warmup_steps(n_steps))
    return min((step + 1) / rise, math.sqrt(rise / (step + 1)))


def _slanted_triangular(schedule: Schedule, step: int, n_steps: int) -> float:
    """Howard and Ruder 2018.

    Their slope is of the rounded cut, so that the line may end before the last step and would then go below its
    lower end; ours stays there.
    """
    cut = max(1, math.floor(n_steps * schedule.cut_share))
    fall = min(cut * (1 / schedule.cut_share - 1), n_steps - cut)
    share = step / cut if step < cut else 1 - (step - cut) / max(fall, 1)
    return (1 + max(0.0, share) * (schedule.ratio - 1)) / schedule.ratio


def _warmup_stable_decay(schedule: Schedule, step: int, n_steps: int) -> float:
    """Hu et al. 2024, with a straight decay."""
    rise = schedule.warmup_steps(n_steps)
    fall_from = max(rise, n_steps - round(schedule.decay * n_steps))
    return _rise(step, rise) if step < fall_from else _between(schedule.floor, _share_left(step, fall_from, n_steps))


def _rise(step: int, n_rising: int) -> float:
    return min(1.0, (step + 1) / max(n_rising, 1))


def _share_left(step: int, first: int, n_steps: int) -> float:
    """How much of the way from step `first` to the end is left: 1 to 0."""
    return (n_steps - step) / max(n_steps - first, 1)


def _between(floor: float, share: float) -> float:
    return floor + (1 - floor) * share


_FACTORS: Mapping[ScheduleKind, Callable[[Schedule, int, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "noam": _noam,
    "slanted-triangular": _slanted_triangular,
    "warmup-stable-decay": _warmup_stable_decay,
}
