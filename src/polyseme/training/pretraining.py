"""A job set up on its devices: networks and rows, how many steps its budget is, and the model that comes out."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowSource
from polyseme.encoders.local_start import start_locally
from polyseme.errors import OptionError
from polyseme.parts.device import cpu_threads
from polyseme.training.budget import parse_budget
from polyseme.training.device_group import Devices, is_sharded
from polyseme.training.loader import Loader, StepRows
from polyseme.training.pretraining_job import Job, check_job, first_bundle, fresh_bundle, rows_of
from polyseme.training.time_budget import Timing
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Phase, Plan
from polyseme.types import Objective

PASS_WEIGHT = defaultdict(lambda: 2**21, {"cuda": 2**25})
"""Pieces times width that a device runs at once, unless the user chooses."""
EVALUATION_PIECES = defaultdict(lambda: 2**15, {"cuda": 2**18})
"""Pieces of held-out text that an evaluation reads at most, since evaluations are part of a budget of time."""
COUNTED_PIECES = 2**27
"""Pieces that are counted for the unigram entropy at most."""
TRIAL_SECONDS = 3.0
"""How long steps are timed at most before a budget of time is turned into a number of steps."""
TRIAL_SHARE = 0.02
"""The share of the time left that steps are timed for, up to that; the run's own steps correct their number."""
LONG_FIRST_STEP = 10.0
"""Seconds of a first step after which no second one is timed."""
ONE_THREAD_SECONDS = 1.0
"""How long steps are timed with one thread at most."""
ONE_THREAD_GAIN = 0.8
"""One thread is taken if a step then takes at most this share of the time: on a CPU that others use, too, threads wait
for each other, and one can be several times as fast as all."""


@dataclass
class Pretraining:
    """A job set up on its devices."""

    job: Job
    corpus: Corpus
    devices: Devices
    objective: Objective
    trainer: Trainer
    row_sources: Sequence[RowSource]
    """The rows of each phase."""
    held_out: RowSource | None
    """The rows that are evaluated on."""
    micro_batch_size: Sequence[int]
    workers: int = 1

    @classmethod
    def set_up(
        cls, job: Job, corpus: Corpus, devices: Devices, *, workers: int = 1, start: Bundle | None = None
    ) -> Pretraining:
        """Check that everything fits together, then build the networks.

        `start` is the model that is trained further; where there is one and it is not given, it is loaded.
        """
        start = job.start_bundle() if start is None else start
        row_sources = check_job(job, corpus, devices, start)
        training = job.training
        torch.manual_seed(training.seed)
        bundle = first_bundle(job, corpus, start)
        objective = job.make_objective(corpus).with_models()
        held_out = rows_of(job, corpus, training.phases[0], "held")
        nets = objective.nets(bundle)
        if training.local_start and start is None:
            start_locally(nets, training.longest)
        trainer = Trainer(objective, nets, training, devices)
        if job.ema is not None:
            trainer.average_weights(job.ema)
        width, rows = max(bundle.config.widths), training.micro_batch_size
        micro_batch_size = [fitting_micro_batch(phase, width, rows, devices) for phase in training.phases]
        evaluated = held_out if held_out.n_rows else None
        return cls(job, corpus, devices, objective, trainer, row_sources, evaluated, micro_batch_size, workers)

    def loader(self, plan: Plan) -> Loader:
        return Loader(self.row_sources, self.objective, plan, self.devices, self.micro_batch_size)

    def held_rows(self) -> Iterator[StepRows]:
        """This process's share of the held-out rows that an evaluation reads; with FSDP filled up with idle passes, so
        that all processes run equally many.
        """
        if self.held_out is None:
            return
        most = EVALUATION_PIECES[self.devices.device.type]
        plan, batch_size = Plan(self.job.training, 1), self.job.training.phases[0].batch_size
        loader = Loader([self.held_out], self.objective, plan, self.devices, self.micro_batch_size[:1])
        for step, indices in enumerate(self.held_out.evaluation_steps(batch_size, most)):
            yield from self._my_share(loader, step, indices)

    def _my_share(self, loader: Loader, step: int, indices: NDArray[np.int64]) -> Iterator[StepRows]:
        """This process's part of some held-out rows, and idle passes over one of them where others have more."""
        mine = indices[self.devices.share_of(len(indices))]
        if len(mine):
            yield loader.on_device(loader.rows(step, 0, mine))
        if is_sharded(self.trainer.inner):
            most, rows = self.devices.largest_share(len(indices)), loader.micro_batch_size[0]
            for _ in range(math.ceil(most / rows) - math.ceil(len(mine) / rows)):
                yield loader.on_device(replace(loader.rows(step, 0, indices[:1]), counts={}))

    def baseline(self) -> float | None:
        """The held-out loss of knowing nothing but frequencies: of predicting pieces, the unigram entropy.

        None where nothing is held out, or no part of the loss can be compared with it.
        """
        if self.held_out is None:
            return None
        return self.objective.baseline(self.trainer.inner, self.corpus, COUNTED_PIECES)

    # --- how many steps -----------------------------------------------------------------------------------------------

    def plan(self, n_steps: int) -> Plan:
        """So many steps, and what their rows hold."""
        return Plan(self.job.training, n_steps, tuple(self.pieces_per_step()))

    def pieces_per_step(self) -> list[float]:
        """Of each phase, over all devices, padding left out."""
        rows = zip(self.job.training.phases, self.row_sources, strict=True)
        return [phase.batch_size * each.mean_length for phase, each in rows]

    def flops_per_step(self) -> list[float]:
        """Of each phase, over all devices."""
        return [
            self.objective.flops(self.trainer.inner, phase.batch_size, round(rows.mean_length))
            for phase, rows in zip(self.job.training.phases, self.row_sources, strict=True)
        ]

    def counted_steps(self) -> int | None:
        """The budget as a number of steps; None where it is one of time."""
        budget, training = parse_budget(self.job.budget), self.job.training
        if budget.unit == "seconds":
            return None
        pieces = training.mean_over_phases(self.pieces_per_step())
        flops = training.mean_over_phases(self.flops_per_step())
        epochs = training.mean_over_phases(
            [phase.batch_size / source.n_rows for phase, source in zip(training.phases, self.row_sources, strict=True)]
        )
        return budget.n_steps(seconds=math.inf, flops=flops, pieces=pieces, epochs=epochs)

    def trial(
        self,
        *,
        seconds: float = TRIAL_SECONDS,
        least: int = 2,
        checkpoint: float = 0.0,
        then: Callable[[], None] | None = None,
    ) -> Timing:
        """Time steps of each phase, and an evaluation; after `then` the networks are put back as they were.

        A checkpoint before the first step took `checkpoint` seconds; later ones also hold the optimizer's state.
        """
        before = {name: each.detach().cpu().clone() for name, each in self.trainer.tensors().items()}
        plan = Plan(self.job.training, 1000)
        try:
            timing = self._measure_steps(plan, seconds, least)
        except torch.OutOfMemoryError:
            raise self.too_large(plan) from None
        if then is not None:
            then()
        larger = _n_bytes(self.trainer.tensors()) / _n_bytes(before)
        self.trainer.put(before)
        return timing.replace(checkpoint=checkpoint * larger)

    def _measure_steps(self, plan: Plan, seconds: float, least: int) -> Timing:
        loader = self.loader(plan)
        steps = []
        for start in plan.starts:
            for warmup in range(self.trainer.n_warmups):
                began = time.perf_counter()
                self.trainer.step(loader.on_device(loader.make(start + warmup)), plan)
                self.finish()
                duration = time.perf_counter() - began
                # A step that takes longer than timing should is enough, but for the first one, which also prepares; on
                # a GPU the first ones compile.
                enough = TRIAL_SECONDS if warmup else LONG_FIRST_STEP
                if self.devices.agree(self.devices.device.type == "cpu" and duration > enough):
                    break
            else:
                duration = self._mean_step(loader, plan, start, seconds, least)
            steps.append(duration)
        share = self._one_thread_share(loader, plan, steps[0], min(seconds, ONE_THREAD_SECONDS), least)
        threads = 1 if share <= ONE_THREAD_GAIN else None
        with cpu_threads(threads):
            began = time.perf_counter()
            self.trainer.evaluate(self.held_rows())
            evaluation = time.perf_counter() - began
        factor = 1.0 if threads is None else share
        return Timing(tuple(factor * each for each in steps), evaluation, threads=threads)

    def _one_thread_share(self, loader: Loader, plan: Plan, duration: float, seconds: float, least: int) -> float:
        """How long a step takes with one thread, as a share of what it takes with all; 1.0 where there is one anyway,
        or where trying could take long.
        """
        n_threads = torch.get_num_threads()
        on_cpu = self.devices.device.type == "cpu"
        if not self.devices.agree(on_cpu and n_threads > 1 and n_threads * duration <= LONG_FIRST_STEP):
            return 1.0
        with cpu_threads(1):
            alone = self._mean_step(loader, plan, plan.starts[0], seconds, least)
        share: float = self.devices.agree(alone / duration)
        return share

    def _mean_step(self, loader: Loader, plan: Plan, start: int, seconds: float, least: int) -> float:
        """The mean time of as many steps as fit into `seconds`, `least` of them at least."""
        began, n_done = time.perf_counter(), 0
        for rows in loader.steps(start, start + 10_000, workers=self.workers):
            self.trainer.step(rows, plan)
            n_done += 1
            if n_done >= least and n_done % 2 == 0:
                self.finish()
                if self.devices.agree(time.perf_counter() - began > seconds):
                    break
        return (time.perf_counter() - began) / n_done

    def finish(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.devices.device.type == "cuda":
            torch.cuda.synchronize()

    def too_large(self, plan: Plan) -> OptionError:
        """The error when the step that began last does not fit into the device's memory, naming one that does.

        The networks are of no use afterwards.
        """
        number = plan.at(self.trainer.at)[0]
        rows, length = self.micro_batch_size[number], self.job.training.phases[number].length
        fitting = self._fitting_rows(plan, self.trainer.at, number)
        advice = (
            f"{fitting:,} fit: use --micro-batch-size {fitting}; the step stays the same, in more passes."
            if fitting
            else "Not even one fits: take a smaller recipe, shorter rows (--length), or a larger device."
        )
        return OptionError(
            f"{self.devices.device} has too little memory for {rows:,} rows of {length:,} pieces at once. {advice}"
        )

    def _fitting_rows(self, plan: Plan, step: int, number: int) -> int:
        fewer = list(self.micro_batch_size)
        while fewer[number] > 1:
            fewer[number] //= 2
            self.trainer.optimizer.zero_grad(set_to_none=True)
            self.trainer.forget_recorded()
            if self.devices.device.type == "cuda":
                torch.cuda.empty_cache()
            loader = Loader(self.row_sources, self.objective, plan, self.devices, fewer)
            try:
                self.trainer.step(loader.on_device(loader.make(step)), plan)
                return fewer[number]
            except torch.OutOfMemoryError:
                continue
        return 0

    # --- what comes out -----------------------------------------------------------------------------------------------

    def results(self) -> dict[str, Bundle]:
        """The bundles to save, whole and on the CPU, wherever the networks are; all processes must call this."""
        tensors = {name: each.cpu() for name, each in self.trainer.saved_weights().items()}
        nets = self.objective.nets(fresh_bundle(self.job, self.corpus))
        filled = {**dict(nets.named_parameters()), **dict(nets.named_buffers())}
        with torch.no_grad():
            for name, each in filled.items():
                each.copy_(tensors[name])
        return dict(self.objective.result(nets))


def _n_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(each.nbytes for each in tensors.values())


def fitting_micro_batch(phase: Phase, width: int, requested: int | None, devices: Devices) -> int:
    """How many of a step's rows a device runs at once: passes of one size, none above the request or what suits it."""
    rows = phase.batch_size // devices.world
    most = requested or PASS_WEIGHT[devices.device.type] // (width * phase.length)
    n_passes = -(-rows // max(most, 1))
    while rows % n_passes:
        n_passes += 1
    return rows // n_passes
