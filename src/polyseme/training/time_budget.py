"""A budget of time as a number of steps: from a trial before the run, corrected by the run's own steps.

A budget covers the whole command, from its start to the saved model: training gets the time that set-up, building the
corpus, evaluations, checkpoints and saving leave. If ten evaluations and checkpoints would take more than a tenth of
the remaining time (`EVALUATED_SHARE`), there are fewer. Steps are timed for a few seconds before the run (`Timing`),
less where the budget is short, and the resulting number of steps is written to run.json. A short trial is unreliable on
a machine with other work, so the number is checked a few times (`CHECKS`): if the steps so far took longer or shorter
than in the trial, by more than `TOLERANCE`, the number of remaining steps is corrected. Schedules remain functions of a
step's number and the number of steps. run.json has the number of steps that was in force at each step, and the number
of evaluations, so that a resumed run takes the same steps and is evaluated after the same ones.
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
from polyseme.training.pretraining_job import MOST_EVALUATIONS, Job
from polyseme.training.training_settings import Plan

CHECKS = (0.08, 0.25, 0.5, 0.75)
"""The shares of the steps after which their number is checked: the first after a usual warmup, and before the first
evaluation."""
LATE = 1.25
"""A check is made before its share of the steps is done if this many times its share of the time has passed."""
EVALUATED_SHARE = 0.1
"""The share of the time left before the first step that evaluations and checkpoints may take, unless that is too little
for the last ones."""
TOLERANCE = 0.03
"""How much longer or shorter than what is left of the budget the rest of a run may take without a correction."""
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
    threads: int | None = None
    """Threads of a CPU that all processes of the run train with; None: as many as torch uses anyway."""
    most_evaluations: int = MOST_EVALUATIONS
    """How often the run is evaluated and writes a checkpoint, unless the user has chosen that."""

    def check(self) -> None:
        """Raise a ValueError where something cannot have been measured."""
        seconds = (*self.steps, self.evaluation, self.checkpoint)
        counts = [self.most_evaluations, *([] if self.threads is None else [self.threads])]
        if (
            not self.steps
            or not all(math.isfinite(each) and each >= 0 for each in seconds)
            or not all(isinstance(each, int) and each > 0 for each in counts)
        ):
            raise ValueError(f"the timing is {self}")

    def within(self, seconds: float, fewest: int = 1) -> Timing:
        """The same with no more evaluations than take their share of so many seconds, and `fewest` at least."""
        duration = self.evaluation + self.checkpoint
        n_fitting = EVALUATED_SHARE * seconds / duration if duration > 0 else math.inf
        most = max(min(n_fitting, MOST_EVALUATIONS), min(fewest, MOST_EVALUATIONS))
        return self.replace(most_evaluations=int(most))

    def slower(self, factor: float) -> Timing:
        """The same where computing takes `factor` times as long."""
        steps = tuple(factor * each for each in self.steps)
        return self.replace(steps=steps, evaluation=factor * self.evaluation)


@dataclass(frozen=True)
class Correction(Config):
    """A check of the number of steps, and its result."""

    step: int
    """After how many steps."""
    planned: int
    """The number of steps until then, which the steps before went by."""
    slowdown: float
    """How many times as long as in the trial the steps of the process took; 1.0: too few were measured."""
    share: float = CHECKS[0]
    """Which of `CHECKS` it was; there is one of each, whenever a run is resumed."""

    def check(self) -> None:
        """Raise a ValueError where no correction can be so."""
        counts = (self.step, self.planned)
        if (
            not all(isinstance(each, int) and each > 0 for each in counts)
            or self.step > self.planned
            or not (math.isfinite(self.slowdown) and self.slowdown > 0 and 0 < self.share < 1)
        ):
            raise ValueError(f"a correction is {self}")

    def n_steps(self, job: Job, timing: Timing, seconds_left: float) -> int:
        """How many steps the run has from here on, where so much of its budget is left."""
        slower = timing.slower(self.slowdown)
        if abs(seconds_of(job, slower, self.planned, done=self.step) / max(seconds_left, 1e-9) - 1) <= TOLERANCE:
            return self.planned
        n_steps = steps_within(job, slower, seconds_left, done=self.step)
        return max(n_steps, math.ceil(self.step / job.training.phases[0].share))  # the steps so far stay in their phase


def seconds_of(job: Job, timing: Timing, n_steps: int, *, done: int = 0) -> float:
    """How long the rest of a run of `n_steps` takes, its evaluations, its checkpoints and the saving of its model."""
    most = timing.most_evaluations
    every, keeps_every = job.evaluates_every(n_steps, most), job.keeps_every(n_steps, most)
    n_evaluations = job.n_evaluations(n_steps, most) - done // every
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


def step_of_check(job: Job, planned: int, share: float) -> int | None:
    """After which step a planned number of steps is checked; None: never, as the first phase is over by then."""
    step = max(min(max(math.ceil(share * planned), N_TO_MEASURE), planned - 1), 1)
    return None if step > min(Plan(job.training, planned).starts[1:], default=planned) else step


@dataclass
class Slowdown:
    """How many times as long as the trial said the steps of a process take, over all that were measured."""

    n_steps: int = 0
    expected: float = 0.0
    seconds: float = 0.0

    def add(self, job: Job, timing: Timing, planned: int, measured: tuple[int, int], seconds: float) -> None:
        """Add the steps between two, all of the first phase, of a run that had `planned` ones."""
        first, last = measured
        most = timing.most_evaluations
        every, keeps_every = job.evaluates_every(planned, most), job.keeps_every(planned, most)
        self.n_steps += last - first
        self.expected += (last - first) * timing.steps[0] + (last // every - first // every) * timing.evaluation
        self.seconds += max(seconds - (last // keeps_every - first // keeps_every) * timing.checkpoint, 0.0)

    @property
    def factor(self) -> float:
        """1.0 where too few steps were measured."""
        return 1.0 if self.n_steps < FEWEST_MEASURED else self.seconds / self.expected


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
            "model (a recipe whose name ends in -tiny, or --set width=128), smaller steps (--batch-size, --length), a "
            "larger budget or a GPU.",
            PolysemeWarning,
            stacklevel=2,
        )
