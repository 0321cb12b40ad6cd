"""A budget of time as a number of steps: from a trial before the run, corrected once by the run's own first steps.

A budget is all in: it counts from the start of the command to the saved model, and training gets what set-up, building
the corpus, evaluations, checkpoints and saving leave. Steps are timed for a few seconds before the run (`Timing`), and
the number of steps that follows is written to run.json. A machine that is busy for a moment spoils so short a trial. So
the number is looked at once more, after `CORRECTED_AT` of the steps, or of the time that is left where that comes
first: if these steps took longer or shorter than the trial said, by more than `TOLERANCE`, the steps that are left are
counted by what they took. From then on the number is fixed, and which number which step went by is in run.json, so that
a run that is resumed takes the very steps.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from polyseme.config import Config
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.training.budget import parse_budget
from polyseme.training.energy_ledger import duration
from polyseme.training.pretraining_job import Job
from polyseme.training.training_settings import Plan

CORRECTED_AT = 0.08
"""The share of the steps after which their number is looked at: after a usual warmup, before the first evaluation."""
TOLERANCE = 0.03
"""How much slower or faster than in the trial steps may be without a correction."""
CORRECTED_AFTER = 0.1
"""The share of the time that is left after the trial."""
UNMEASURED = 3
"""The first steps of a process, which may compile and be recorded."""
FEWEST_MEASURED = 3
"""Steps that must be measured for a correction; a budget that is too small for them is not corrected."""
N_TO_MEASURE = UNMEASURED + FEWEST_MEASURED
FEW_STEPS = 10
"""Budgets of fewer steps are warned of."""


@dataclass(frozen=True)
class Timing(Config):
    """What was measured before a run, in seconds."""

    steps: tuple[float, ...]
    """A step of each phase."""
    evaluation: float
    checkpoint: float = 0.0

    def slower(self, factor: float) -> Timing:
        """The same where computing takes `factor` times as long."""
        steps = tuple(factor * each for each in self.steps)
        return Timing(steps=steps, evaluation=factor * self.evaluation, checkpoint=self.checkpoint)


@dataclass(frozen=True)
class Correction(Config):
    """That a number of steps was looked at, and what came of it."""

    step: int
    """After how many steps."""
    planned: int
    """The number of steps by the trial, which the steps before went by."""
    slowdown: float
    """How many times as long as in the trial the steps before took; 1.0: they were not measured."""

    def n_steps(self, job: Job, timing: Timing, seconds_left: float) -> int:
        """How many steps the run has from here on, where so much of its budget is left."""
        if abs(self.slowdown - 1) <= TOLERANCE:
            return self.planned
        n_steps = steps_within(job, timing.slower(self.slowdown), seconds_left, done=self.step)
        return max(n_steps, math.ceil(self.step / job.training.phases[0].share))  # the steps so far stay in their phase


def seconds_of(job: Job, timing: Timing, n_steps: int, *, done: int = 0) -> float:
    """How long the rest of a run of `n_steps` takes, its evaluations, its checkpoints and the saving of its model."""
    every, keeps_every = job.evaluates_every(n_steps), job.keeps_every(n_steps)
    n_evaluations = job.n_evaluations(n_steps) - done // every
    n_checkpoints = -(-n_steps // keeps_every) - done // keeps_every
    steps = (n_steps - done) * job.training.mean_over_phases(timing.steps)
    return steps + n_evaluations * timing.evaluation + (n_checkpoints + 1) * timing.checkpoint


def steps_within(job: Job, timing: Timing, seconds: float, *, done: int = 0) -> int:
    """How many steps a run may have, `done` of which are taken, so that the rest fits into `seconds`; one more at
    least.
    """
    most = int(max(seconds, 0.0) / job.training.mean_over_phases(timing.steps)) + 1
    numbers = range(done + 1, done + 1 + most)
    n_fitting = bisect_left(numbers, True, key=lambda number: seconds_of(job, timing, number, done=done) > seconds)
    return done + max(n_fitting, 1)


def corrected_at(job: Job, planned: int) -> int:
    """After which step a planned number of steps is looked at: within the first phase, and early in any case."""
    starts = Plan(job.training, planned).starts
    return max(min(max(math.ceil(CORRECTED_AT * planned), N_TO_MEASURE), planned - 1, *starts[1:2]), 1)


def slowdown(job: Job, timing: Timing, n_steps: int, measured: tuple[int, int], seconds: float) -> float:
    """How many times as long as the trial said the steps between two took, all of the first phase."""
    first, last = measured
    if last - first < FEWEST_MEASURED:
        return 1.0
    every, keeps_every = job.evaluates_every(n_steps), job.keeps_every(n_steps)
    expected = (last - first) * timing.steps[0]
    expected += (last // every - first // every) * timing.evaluation
    writing = (last // keeps_every - first // keeps_every) * timing.checkpoint
    return max(seconds - writing, 0.0) / expected


# --- what is reported -------------------------------------------------------------------------------------------------


def check_time_left(job: Job, prepared: float, folder: Path) -> None:
    """Warn of a budget that is half used before training, or refuse one that is used up."""
    budget = parse_budget(job.budget).amount
    builds = job.corpus.startswith("./")
    work = "Building the tokenizer and the corpus" if builds else "What comes before training"
    used = f"{work} took {duration(prepared)} of the budget of {job.budget}"
    first = "; or build the corpus first, once for several runs: polyseme corpus TEXTS -o FOLDER" if builds else ""
    if prepared >= budget:
        raise OptionError(
            f"{used}, and nothing is left to train. The corpus is ready: resume the run, whose budget is then for "
            f"training alone (polyseme pretrain --resume {folder}), or give a larger budget{first}."
        )
    if prepared > budget / 2:
        warnings.warn(
            f"{used}, and {duration(budget - prepared)} are left to train. Give a larger budget{first}.",
            PolysemeWarning,
            stacklevel=2,
        )


def warn_of_few_steps(job: Job, timing: Timing, n_steps: int) -> None:
    """Warn of a budget that is too small to learn anything."""
    if n_steps < FEW_STEPS:
        warnings.warn(
            f"The budget of {job.budget} is enough for {n_steps} step{'s' if n_steps > 1 else ''} of "
            f"{job.training.mean_over_phases(timing.steps):.1f} s here, too few to learn anything. Take a smaller "
            "recipe (bert-tiny, gpt-tiny), smaller steps (--batch-size, --length), a larger budget or a GPU.",
            PolysemeWarning,
            stacklevel=2,
        )
