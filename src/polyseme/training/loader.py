"""Rows to batches on the device, ahead of the steps that read them.

A step's rows are a function of its number, so any number of workers gives the same batches, and a run resumes at any
step without reading those before it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.corpus.layout import RowSource
from polyseme.training.device_group import Devices
from polyseme.training.training_settings import Plan
from polyseme.types import Example, Objective

AHEAD = 3
"""Steps that are ready, or in the making, beyond the one that runs."""


@dataclass
class StepRows:
    """What one step reads on one device."""

    step: int
    passes: list[dict[str, Tensor]]
    counts: Mapping[str, float]
    """Targets of each part of the loss among this device's rows."""
    sizes: Sequence[int] = ()
    """Rows of each pass."""
    waited: float = 0.0
    """Seconds that the step waited for this."""


@dataclass
class Loader:
    """Makes the rows of a step: taken from the corpus, corrupted, cut into passes."""

    row_sources: Sequence[RowSource]
    """The rows of each phase."""
    objective: Objective
    plan: Plan
    devices: Devices
    micro_batch_size: Sequence[int]
    """Rows of a pass, for each phase."""

    def make(self, step: int) -> StepRows:
        """The rows of a step, whichever steps were made before."""
        number, in_phase = self.plan.at(step)
        phase = self.plan.settings.phases[number]
        mine = self.devices.share_of(phase.batch_size)
        first = in_phase * phase.batch_size
        indices = np.arange(first + mine.start, first + mine.stop)
        return self.rows(step, number, indices, progress=step / max(self.plan.n_steps, 1))

    def rows(self, step: int, number: int, indices: NDArray[np.int64], *, progress: float = 1.0) -> StepRows:
        """These rows of a phase, as a step reads them when so much of the run is done."""
        passes, sizes, counts = [], [], dict.fromkeys(self.objective.weights, 0.0)
        for start in range(0, len(indices), self.micro_batch_size[number]):
            rows = self.row_sources[number].rows(indices[start : start + self.micro_batch_size[number]])
            example = self.objective.corrupt(dataclasses.replace(rows, progress=progress))
            passes.append(self._tensors(example))
            sizes.append(len(rows.pieces))
            for name, count in example.counts.items():
                counts[name] += count
        return StepRows(step, passes, counts, sizes)

    def _tensors(self, example: Example) -> dict[str, Tensor]:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in example.arrays.items()}
        if self.devices.device.type == "cuda":
            tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        return tensors

    def steps(self, first: int, last: int, *, workers: int) -> Iterator[StepRows]:
        """Steps `first` … `last - 1` in order, made ahead by `workers` threads (0: each when it is needed)."""
        if workers == 0:
            for step in range(first, last):
                started = time.perf_counter()
                yield self.on_device(self.make(step), started)
            return
        with ThreadPoolExecutor(workers, "polyseme-rows") as pool:
            coming: deque[Future[StepRows]] = deque()
            next_step = first
            try:
                for _ in range(first, last):
                    while next_step < last and len(coming) < AHEAD + workers:
                        coming.append(pool.submit(self.make, next_step))
                        next_step += 1
                    started = time.perf_counter()
                    yield self.on_device(coming.popleft().result(), started)
            finally:
                for future in coming:
                    future.cancel()

    def on_device(self, rows: StepRows, started: float | None = None) -> StepRows:
        """The same rows, on their way to the device; they were waited for since `started`."""
        rows.waited = 0.0 if started is None else time.perf_counter() - started
        device = self.devices.device
        rows.passes = [
            {name: tensor.to(device, non_blocking=True) for name, tensor in each.items()} for each in rows.passes
        ]
        return rows
