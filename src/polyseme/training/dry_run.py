"""A dry run: two steps of every stage, and an estimate of what the whole run would take."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from polyseme.bundle import Bundle
from polyseme.corpus.corpus import Corpus
from polyseme.cost import peak_memory
from polyseme.model_folder import save_bundle
from polyseme.training.budget import parse_budget
from polyseme.training.checkpoint import read_latest
from polyseme.training.device_group import Devices
from polyseme.training.effects import CHECKPOINTS, WriteCheckpoints
from polyseme.training.energy_ledger import duration
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.time_budget import seconds_of, steps_within

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a run would take."""

    recipe: str
    device: str
    parameters: int
    """Of all networks that are trained."""
    pieces: int
    """In the corpus as far as it was read."""
    seconds_per_step: tuple[float, ...]
    """Of each phase."""
    pieces_per_step: tuple[int, ...]
    micro_batch_size: tuple[int, ...]
    n_steps: int
    seconds: float
    """Of the whole run."""
    flops: float
    checkpoint_bytes: int
    memory: int
    """Bytes at most: the device's on a GPU, else the process's."""

    def lines(self) -> list[str]:
        """The same in words, one line each."""
        phases = zip(self.seconds_per_step, self.pieces_per_step, self.micro_batch_size, strict=True)
        return [
            f"{self.recipe} on {self.device}: {self.parameters:,} parameters, a corpus of {self.pieces:,} pieces here",
            *(
                f"a step of {pieces:,} pieces, {rows:,} at once: {seconds:.3g} s ({pieces / seconds:,.0f} pieces/s)"
                for seconds, pieces, rows in phases
            ),
            f"{self.n_steps:,} steps: {duration(self.seconds)}, {self.flops:.2e} FLOPs",
            f"memory: {self.memory / 2**30:.2f} GiB; a checkpoint: {self.checkpoint_bytes / 2**20:,.0f} MiB",
        ]


def dry_run_of(
    job: Job, corpus: Corpus, devices: Devices, folder: Path, *, workers: int, start: Bundle | None = None
) -> DryRun:
    """Two steps of every phase, an evaluation, a checkpoint read back, and the model written, all under `folder`."""
    pretraining = Pretraining.set_up(job, corpus, devices, workers=workers, start=start)
    phases = " and ".join(f"{each.batch_size:,} rows of {each.length:,} pieces" for each in job.training.phases)
    _logger.info(f"timing steps of {phases} on {devices.device}, and an evaluation")
    keep = WriteCheckpoints(folder, 1, 2, lambda done, seconds: {"seconds": seconds}, keep=1, shard_size=job.shard_size)
    writing: list[float] = []

    def write() -> None:
        began = time.perf_counter()
        keep.now(pretraining.trainer, 2, 0.0)
        writing.append(time.perf_counter() - began)

    # Before the networks are put back, so that the optimizer's state and what streams carry are in it.
    timing = pretraining.trial(seconds=0.0, then=write)
    timing = timing.replace(checkpoint=sum(writing))
    budget = parse_budget(job.budget)
    if budget.unit == "seconds":
        timing = timing.within(budget.amount, job.fewest_evaluations)
    trainer, training = pretraining.trainer, job.training
    flops = training.mean_over_phases(pretraining.flops_per_step())
    n_steps = pretraining.counted_steps() or steps_within(job, timing, budget.amount)
    results = pretraining.results()
    if devices.leads:
        read_latest(folder / CHECKPOINTS)
        for name, bundle in results.items():
            save_bundle(bundle, folder / name, shard_size=job.shard_size)
    devices.wait()
    on_gpu = devices.device.type == "cuda"
    return DryRun(
        recipe=job.recipe,
        device=str(devices.device),
        parameters=sum(parameter.numel() for parameter in trainer.inner.parameters()),
        pieces=corpus.n_pieces("train") + corpus.n_pieces("held"),
        seconds_per_step=tuple(timing.steps),
        pieces_per_step=tuple(round(each) for each in pretraining.pieces_per_step()),
        micro_batch_size=tuple(pretraining.micro_batch_size),
        n_steps=n_steps,
        seconds=seconds_of(job, timing, n_steps),
        flops=n_steps * flops,
        checkpoint_bytes=sum(path.stat().st_size for path in (folder / CHECKPOINTS).rglob("*") if path.is_file()),
        memory=torch.cuda.max_memory_allocated() if on_gpu else peak_memory(),
    )
