"""What a run has cost: over all processes that trained it, of which this one is the last so far."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import torch

from polyseme.errors import ModelError, PolysemeWarning
from polyseme.json_reading import load_json
from polyseme.training.checkpoint import Checkpoint
from polyseme.training.energy_ledger import Ledger, Rates, measured_peak
from polyseme.training.energy_meter import Meter
from polyseme.training.pretraining import Pretraining
from polyseme.training.run_folder import LEDGER


def costs_until(checkpoint: Checkpoint | None, folder: Path) -> Ledger | None:
    """What a run has cost up to a checkpoint; after a slice, that includes the writing of the checkpoint."""
    if checkpoint is None or not checkpoint.record.get("ledger"):
        return None
    before = Ledger.from_json(checkpoint.record["ledger"])
    path = folder / LEDGER
    if path.is_file():
        try:
            written = Ledger.from_json(load_json(path, kind=dict))
            before = written if written.steps == checkpoint.step else before
        except (ValueError, KeyError, TypeError, AttributeError, ModelError):
            warnings.warn(
                f"{path} is damaged: what the run has cost so far is taken from its checkpoint.",
                PolysemeWarning,
                stacklevel=2,
            )
    return before


class SliceCosts:
    """What a run has cost, from what it had cost before this process and what this process has done since."""

    def __init__(
        self,
        pretraining: Pretraining,
        before: Ledger | None,
        first: int,
        started: float,
        rates: Rates,
    ) -> None:
        device = pretraining.devices.device
        training = pretraining.job.training
        self.plan = pretraining.plan(1)
        self.before, self.first, self.started = before, first, started
        self.rates, self.n_devices = rates, pretraining.devices.world
        self.meter = Meter(device, rates=rates)
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
