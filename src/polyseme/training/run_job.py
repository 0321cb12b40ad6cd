"""A pretraining run from where it is to its end, or to the end of a slice: trained, logged, saved, its cost kept."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyseme.bundle import Bundle, save_bundle
from polyseme.corpus.corpus import Corpus
from polyseme.errors import PolysemeWarning
from polyseme.training.budget import parse_budget
from polyseme.training.checkpoint import Checkpoint, read_latest, read_steps
from polyseme.training.device_group import Devices
from polyseme.training.effects import (
    CHECKPOINTS,
    AverageWeights,
    Effect,
    Evaluate,
    Log,
    MeasureSteps,
    OnReport,
    ReportProgress,
    StopAfter,
    StopIfDiverged,
    TensorBoard,
    TrainingStoppedError,
    WriteCheckpoints,
    read_log,
    truncate_log,
)
from polyseme.training.energy_ledger import Ledger, Meter, Rates, measured_peak
from polyseme.training.loop import Trained, train
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.run_folder import LEDGER, Run, write_json
from polyseme.training.time_budget import (
    CORRECTED_AFTER,
    N_TO_MEASURE,
    Correction,
    Timing,
    check_time_left,
    corrected_at,
    slowdown,
    steps_within,
    warn_of_few_steps,
)
from polyseme.training.trainer import WEIGHTS, named_under
from polyseme.training.training_settings import Plan
from polyseme.training.weight_average import mean_of


@dataclass(frozen=True, kw_only=True)
class PausedRun:
    """A run that stopped after the time it was given (`stop_after`); `pretrain(resume=folder)` resumes it."""

    folder: Path
    done: int
    """Steps taken so far, in all slices."""
    n_steps: int
    ledger: Ledger
    """What it cost so far."""

    def lines(self) -> list[str]:
        """For the terminal."""
        return [
            f"stopped after step {self.done:,} of {self.n_steps:,}; resume with: polyseme pretrain --resume "
            f"{self.folder}",
            *self.ledger.lines(),
        ]


def run_job(
    run: Run,
    job: Job,
    corpus: Corpus,
    devices: Devices,
    *,
    workers: int = 1,
    rates: Rates,
    on_report: OnReport | None = None,
    start: Bundle | None = None,
    started: float | None = None,
    stop_after: float | None = None,
) -> Ledger | PausedRun:
    """Train a run from where it is to its end, and write its model; what it cost is returned.

    The command began when the clock (`time.perf_counter`) was at `started`. A budget of time counts from there. Once
    `stop_after` seconds have passed since then, no step begins: the run writes a checkpoint and returns. Every call
    takes one step at least.
    """
    started = time.perf_counter() if started is None else started
    if run.n_steps is None and parse_budget(job.budget).unit == "seconds":
        check_time_left(job, devices.agree(time.perf_counter() - started), run.folder)
    pretraining = Pretraining.set_up(job, corpus, devices, workers=workers, start=start)
    current = RunSlice(run, pretraining, started, rates, on_report, stop_after)
    try:
        done, seconds = current.train()
    except torch.OutOfMemoryError:
        raise pretraining.too_large(current.plan) from None
    except TrainingStoppedError as error:
        run.stopped = str(error)
        if devices.leads:
            run.write()
        raise
    if done < current.plan.n_steps:
        return _pause(run, done, current.costs.ledger(done, seconds), devices)
    current.average_checkpoints()
    results = pretraining.results()
    if devices.leads:
        for name, bundle in results.items():
            save_bundle(bundle, run.folder / name, force=True, shard_size=job.shard_size)
    bill = current.costs.ledger(done, seconds)
    if devices.leads:
        write_json(run.folder / LEDGER, bill.to_json())
        run.finished, run.stopped = True, None
        run.write()
    devices.wait()
    return bill


class RunSlice:
    """What one process trains of a run: all of it, or from where another process stopped."""

    def __init__(
        self,
        run: Run,
        pretraining: Pretraining,
        started: float,
        rates: Rates,
        on_report: OnReport | None,
        stop_after: float | None,
    ) -> None:
        self.run, self.job, self.pretraining, self.started = run, pretraining.job, pretraining, started
        job, trainer, devices, folder = pretraining.job, pretraining.trainer, pretraining.devices, run.folder
        meter = Meter(devices.device, rates=rates)
        checkpoint = read_latest(folder / CHECKPOINTS)
        self.first = 0 if checkpoint is None else checkpoint.step
        self.keep = WriteCheckpoints(folder, 1, 0, self._record, keep=job.keep, shard_size=job.shard_size)
        self.costs = SliceCosts(pretraining, _costs_until(checkpoint, folder), self.first, started, meter, rates)
        began = time.perf_counter()
        if checkpoint is not None:
            trainer.put(checkpoint.tensors)
        else:
            self.keep.now(trainer, 0, 0.0)
        if run.n_steps is None:
            self._count_steps(0.0 if checkpoint is not None else time.perf_counter() - began)
        if devices.leads:
            truncate_log(folder, self.first)
        devices.wait()
        self.evaluate = Evaluate(pretraining.held_rows, 1)
        self.measured = MeasureSteps(pretraining.finish)
        self.effects: list[Effect] = [AverageWeights(), self.evaluate, Log(folder, job.log_every)]
        self.effects += [TensorBoard(folder, job.log_every)] if job.tensorboard and devices.leads else []
        self.effects += [ReportProgress(on_report, job.log_every)] if on_report is not None else []
        self.effects += [StopIfDiverged.resumed(job.log_every, devices.agree(read_log(folder)))]
        self.end = None if stop_after is None else StopAfter(started + stop_after)
        self.effects += [] if self.end is None else [self.end]
        self.effects += [self.keep, self.measured]

    @property
    def plan(self) -> Plan:
        """Of the steps that are being taken."""
        return self.costs.plan

    def train(self) -> Trained:
        """Take all steps that are left, or those until the slice ends; a budget of time is corrected on the way."""
        run, trained = self.run, Trained(self.first, self.costs.seconds_before)
        if run.timing is not None and run.correction is None:
            planned = self._n_steps
            early = StopAfter(time.perf_counter() + CORRECTED_AFTER * self._seconds_left(), trained.done + N_TO_MEASURE)
            trained = self._train(planned, trained, corrected_at(self.job, planned), early)
            if self.end is not None and self.end.stopped:
                return trained
            self._correct(trained.done, planned, run.timing)
        elif run.correction is not None and trained.done < run.correction.step:
            trained = self._train(run.correction.planned, trained, run.correction.step)
            if self.end is not None and self.end.stopped:
                return trained
        return self._train(self._n_steps, trained, self._n_steps)

    def _train(self, n_steps: int, trained: Trained, last: int, *more: Effect) -> Trained:
        """Take the steps up to `last` of a run that has `n_steps`."""
        job, plan = self.job, Plan(self.job.training, n_steps)
        self.costs.plan = plan
        self.evaluate.every = job.evaluates_every(n_steps)
        self.keep.every, self.keep.n_steps = job.keeps_every(n_steps), n_steps
        return train(
            self.pretraining.trainer,
            self.pretraining.loader(plan),
            plan,
            [*self.effects, *more],
            first=trained.done,
            last=last,
            seconds=trained.seconds,
            workers=self.pretraining.workers,
        )

    def average_checkpoints(self) -> None:
        """Give the networks the mean weights of the last checkpoints, where the saved model is to be that."""
        if self.job.average_checkpoints is not None:
            checkpoints = read_steps(self.run.folder / CHECKPOINTS, lambda step: step > 0 and self.keep.is_due(step))
            last = checkpoints[-self.job.average_checkpoints :]
            self.pretraining.trainer.put_weights(mean_of([named_under(WEIGHTS, each.tensors) for each in last]))

    # --- how many steps -----------------------------------------------------------------------------------------------

    @property
    def _n_steps(self) -> int:
        if self.run.n_steps is None:
            raise ValueError("The budget has not been turned into steps yet.")
        return self.run.n_steps

    def _count_steps(self, checkpoint_seconds: float) -> None:
        """Turn the budget into a number of steps; one of time by a trial."""
        run, job, devices = self.run, self.job, self.pretraining.devices
        run.n_steps = self.pretraining.counted_steps()
        if run.n_steps is None:
            run.timing = devices.agree(self.pretraining.trial(checkpoint=checkpoint_seconds))
            run.n_steps = devices.agree(steps_within(job, run.timing, self._seconds_left()))
            if devices.leads:
                warn_of_few_steps(job, run.timing, run.n_steps)
        if devices.leads:
            _warn_of_few_checkpoints(job, run.n_steps)
            run.write()

    def _correct(self, step: int, planned: int, timing: Timing) -> None:
        """Look at the number of steps by the time that those up to `step` took, once in a run."""
        run, devices = self.run, self.pretraining.devices
        first, seconds = self.measured.until(step)
        factor = slowdown(self.job, timing, planned, (first, step), seconds)
        run.correction = devices.agree(Correction(step, planned, factor))
        run.n_steps = devices.agree(run.correction.n_steps(self.job, timing, self._seconds_left()))
        if devices.leads:
            run.write()

    def _seconds_left(self) -> float:
        """Of a budget of time, which all slices share."""
        before = 0.0 if self.costs.before is None else self.costs.before.total_seconds
        return parse_budget(self.job.budget).amount - before - (time.perf_counter() - self.started)

    def _record(self, done: int, seconds: float) -> dict[str, Any]:
        """What a checkpoint holds besides tensors."""
        return {"seconds": seconds, "ledger": self.costs.ledger(done, seconds).to_json() if done else None}


def _warn_of_few_checkpoints(job: Job, n_steps: int) -> None:
    n_checkpoints, every = -(-n_steps // job.keeps_every(n_steps)), job.keeps_every(n_steps)
    if job.average_checkpoints is not None and n_checkpoints < job.average_checkpoints:
        warnings.warn(
            f"The model was to be the mean of the last {job.average_checkpoints} checkpoints, and there are "
            f"{n_checkpoints} in {n_steps:,} steps, one every {every:,}: it is the mean of all. For more, write them "
            "more often (--checkpoint-every).",
            PolysemeWarning,
            stacklevel=2,
        )


def _pause(run: Run, done: int, bill: Ledger, devices: Devices) -> PausedRun:
    """Write that a slice has ended, and what it cost; its checkpoint is there."""
    n_steps = run.n_steps or done
    if devices.leads:
        write_json(run.folder / LEDGER, bill.to_json())
        run.stopped = f"The slice ended after step {done:,} of {n_steps:,}."
        run.write()
    devices.wait()
    return PausedRun(folder=run.folder, done=done, n_steps=n_steps, ledger=bill)


def _costs_until(checkpoint: Checkpoint | None, folder: Path) -> Ledger | None:
    """What a run has cost up to a checkpoint; after a slice, that includes the writing of the checkpoint."""
    if checkpoint is None or not checkpoint.record.get("ledger"):
        return None
    before = Ledger.from_json(checkpoint.record["ledger"])
    path = folder / LEDGER
    if path.is_file():
        written = Ledger.from_json(json.loads(path.read_text(encoding="utf-8")))
        before = written if written.steps == checkpoint.step else before
    return before


class SliceCosts:
    """What a run has cost, from what it had cost before this process and what this process has done since."""

    def __init__(
        self,
        pretraining: Pretraining,
        before: Ledger | None,
        first: int,
        started: float,
        meter: Meter,
        rates: Rates,
    ) -> None:
        device = pretraining.devices.device
        training = pretraining.job.training
        self.plan = Plan(training, 1)
        self.before, self.first, self.started = before, first, started
        self.meter, self.rates, self.n_devices = meter, rates, pretraining.devices.world
        self.flops = pretraining.flops_per_step()
        self.device = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        self.peak = measured_peak(device, torch.bfloat16 if training.dtype == "bf16" else torch.float32)

    @property
    def seconds_before(self) -> float:
        """Seconds trained before this process."""
        return 0.0 if self.before is None else self.before.seconds

    def ledger(self, done: int, seconds: float) -> Ledger:
        """Of the run after `done` steps and `seconds` of training."""
        until, earlier = self.plan.steps_until(done), self.plan.steps_until(self.first)
        spent = Ledger.of(
            pieces=self.plan.pieces_until(done) - self.plan.pieces_until(self.first),
            flops=sum(each * (now - then) for each, now, then in zip(self.flops, until, earlier, strict=True)),
            seconds=seconds - self.seconds_before,
            total_seconds=time.perf_counter() - self.started,
            steps=done - self.first,
            device=self.device,
            n_devices=self.n_devices,
            peak=self.peak,
            joules=self.meter.joules() * self.n_devices,
            measured=self.meter.measured,
            rates=self.rates,
        )
        return spent if self.before is None else self.before.add(spent)
