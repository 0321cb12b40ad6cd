"""A pretraining run from where it is to its end, or to the end of a slice: trained, logged, saved, its cost kept."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from polyseme.bundle import Bundle, save_bundle
from polyseme.corpus.corpus import Corpus
from polyseme.training.checkpoint import Checkpoint, read_latest
from polyseme.training.device_group import Devices
from polyseme.training.effects import (
    CHECKPOINTS,
    Effect,
    Evaluate,
    Log,
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
from polyseme.training.loop import train
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.run_folder import LEDGER, Run, write_json
from polyseme.training.training_settings import Plan


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

    The command began when the clock (`time.perf_counter`) was at `started`. Once `stop_after` seconds have passed since
    then, no step begins: the run writes a checkpoint and returns. Every call takes one step at least.
    """
    started = time.perf_counter() if started is None else started
    pretraining = Pretraining.set_up(job, corpus, devices, workers=workers, start=start)
    trainer = pretraining.trainer
    meter = Meter(devices.device, rates=rates)
    checkpoint = read_latest(run.folder / CHECKPOINTS)
    if checkpoint is not None:
        trainer.put(checkpoint.tensors)
    first = 0 if checkpoint is None else checkpoint.step
    if run.n_steps is None:
        run.n_steps = pretraining.n_steps(started)
        if devices.leads:
            run.write()
    plan = Plan(job.training, run.n_steps)
    costs = SliceCosts(pretraining, plan, _costs_until(checkpoint, run.folder), first, started, meter, rates)
    if devices.leads:
        truncate_log(run.folder, first)
    devices.wait()
    keep = WriteCheckpoints(
        run.folder,
        job.keeps_every(run.n_steps),
        run.n_steps,
        lambda done, seconds: {"seconds": seconds, "ledger": costs.ledger(done, seconds).to_json()},
        keep=job.keep,
        shard_size=job.shard_size,
    )
    if checkpoint is None:
        keep.now(trainer, 0, 0.0)
    effects: list[Effect] = [Evaluate(pretraining.held_rows, job.evaluates_every(run.n_steps))]
    effects += [Log(run.folder, job.log_every)]
    effects += [TensorBoard(run.folder, job.log_every)] if job.tensorboard and devices.leads else []
    effects += [ReportProgress(on_report, job.log_every)] if on_report is not None else []
    effects += [StopIfDiverged.resumed(job.log_every, devices.agree(read_log(run.folder)))]
    effects += [StopAfter(started + stop_after)] if stop_after is not None else []
    try:
        done, seconds = train(
            trainer,
            pretraining.loader(plan),
            plan,
            [*effects, keep],
            first=first,
            seconds=costs.seconds_before,
            workers=workers,
        )
    except torch.OutOfMemoryError:
        raise pretraining.too_large(plan) from None
    except TrainingStoppedError as error:
        run.stopped = str(error)
        if devices.leads:
            run.write()
        raise
    if done < run.n_steps:
        return _pause(run, done, costs.ledger(done, seconds), devices)
    results = pretraining.results()
    if devices.leads:
        for name, bundle in results.items():
            save_bundle(bundle, run.folder / name, force=True, shard_size=job.shard_size)
    bill = costs.ledger(done, seconds)
    if devices.leads:
        write_json(run.folder / LEDGER, bill.to_json())
        run.finished, run.stopped = True, None
        run.write()
    devices.wait()
    return bill


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
        plan: Plan,
        before: Ledger | None,
        first: int,
        started: float,
        meter: Meter,
        rates: Rates,
    ) -> None:
        device = pretraining.devices.device
        self.plan, self.before, self.first, self.started = plan, before, first, started
        self.meter, self.rates, self.n_devices = meter, rates, pretraining.devices.world
        self.flops = pretraining.flops_per_step()
        self.device = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        self.peak = measured_peak(device, torch.bfloat16 if plan.settings.dtype == "bf16" else torch.float32)

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
