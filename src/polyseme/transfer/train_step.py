"""One step of fine-tuning: forward, backward, clipping, the optimizer; on a GPU recorded once and replayed.

On a CPU the gradient of a large table of pieces is kept from step to step. A small batch reads few rows of a table, yet
torch makes a gradient as large as the table for every step, mostly of zeros in memory fresh from the system. Here the
rows alone are computed, put into a gradient that stays, and taken out of it after the step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.training.optimizers import Optimizer, prepare_for_recording, set_rate
from polyseme.training.recorded_step import CudaRecorder, RecordedStep
from polyseme.transfer.task_model import BY_PLACE, TaskModel
from polyseme.transfer.unit_batches import Source, TaskBatch

StepLoss = Callable[[TaskBatch], Tensor]
"""What is minimized in a step: the model's own loss, or another."""
WORTH_KEEPING = 1 << 20
"""Numbers in a table from which on it pays."""
BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Lengths that rows are padded to where steps are recorded; longer ones to the next multiple of 128. Few, since
each is recorded, and since padding costs a GPU less than launches do."""


class TableGradient:
    """The gradient of one table, which is the same tensor in every step."""

    def __init__(self, table: nn.Embedding) -> None:
        self.table = table
        self.gradient = torch.zeros_like(table.weight)
        self.rows: Tensor | None = None
        table.sparse = True
        self.hook = table.weight.register_post_accumulate_grad_hook(self._fill)

    def _fill(self, weight: Tensor) -> None:
        sparse = weight.grad
        if sparse is None or not sparse.is_sparse:  # a table that is an output's too: its gradient is dense
            return
        self.rows = sparse._indices()[0]
        self.gradient.index_add_(0, self.rows, sparse._values())
        weight.grad = self.gradient

    def clear(self) -> None:
        """After a step: zeros again, where the batch had put anything."""
        if self.rows is not None:
            self.gradient.index_fill_(0, self.rows, 0.0)
            self.rows = None

    def close(self) -> None:
        """Leave the table as it was found."""
        self.hook.remove()
        self.table.sparse = False


def table_gradients(model: nn.Module) -> Iterator[TableGradient]:
    """For the tables of a model that are worth it: large, learning, on a CPU."""
    tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
    for table in tables:
        weight = table.weight
        if weight.requires_grad and weight.device.type == "cpu" and weight.numel() >= WORTH_KEEPING:
            yield TableGradient(table)


@dataclass(eq=False)
class PlainSteps:
    """Eager steps. After an evaluation the caller puts the model back into training mode."""

    model: TaskModel
    optimizer: Optimizer
    bf16: bool
    max_grad_norm: float | None
    loss: StepLoss | None = None
    """None: the model's own."""

    def __post_init__(self) -> None:
        self.device = self.model.device
        self.total = torch.zeros((), device=self.device)
        self.n_steps = 0
        self.tables = list(table_gradients(self.model))

    def __call__(self, source: Source, numbers: Sequence[int], factor: float) -> None:
        """One step over these units, at this share of the learning rates."""
        self._begin(factor)
        self.take(source.batch(numbers).to(self.device))

    def _begin(self, factor: float) -> None:
        set_rate(self.optimizer, factor)
        self.n_steps += 1

    def take(self, batch: TaskBatch) -> None:
        """One step over a batch that is on the device."""
        with self.autocast():
            loss = (self.loss or self.model)(batch)
        loss.backward()
        if self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters_with_gradients(), self.max_grad_norm, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for table in self.tables:
            table.clear()
        self.total.add_(loss.detach())

    def close(self) -> None:
        """After the last step: leave the tables of the model as they were."""
        for table in self.tables:
            table.close()

    def _parameters_with_gradients(self) -> list[nn.Parameter]:
        return [each for each in self.model.parameters() if each.grad is not None]

    def mean_loss(self) -> float:
        """Over the steps since the last call; waits for the device."""
        mean = float(self.total) / max(self.n_steps, 1)
        self.total.zero_()
        self.n_steps = 0
        return mean

    def autocast(self) -> AbstractContextManager[Any]:
        """Products in bf16 where that is requested; weights and sums stay in fp32."""
        return autocast(self.device, bf16=self.bf16)


def autocast(device: torch.device, *, bf16: bool) -> AbstractContextManager[Any]:
    """Products in bf16, or as they are."""
    if not bf16:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


class RecordedSteps(PlainSteps):
    """Steps as CUDA graphs: the first of a shape is taken plainly, the second is recorded, all others are replayed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        model, optimizer = self.model, self.optimizer
        prepare_for_recording(optimizer, self.device)
        self.recorded: RecordedStep[TaskBatch, None] = RecordedStep(
            self.take, CudaRecorder(self.device), on_failure=lambda: optimizer.zero_grad(set_to_none=True)
        )
        read = None if model.config.frozen or model.bundle is None else model.bundle.config.max_positions
        self.most = read or 1 << 20

    def __call__(self, source: Source, numbers: Sequence[int], factor: float) -> None:
        self._begin(factor)
        longest = int(max(source.lengths[list(numbers)]))
        roomy = self.recorded.works
        batch = source.batch(numbers, min(bucket(longest), self.most)) if roomy else source.batch(numbers)
        self.recorded(batch, self._phase())

    def _phase(self) -> int:
        """What is learned now: with other layers unfrozen it is another graph."""
        return sum(each.requires_grad for each in self.model.parameters())


def bucket(length: int) -> int:
    """The length that rows are padded to.

    >>> bucket(3), bucket(17), bucket(65), bucket(700)
    (16, 32, 96, 768)
    """
    return next((each for each in BUCKETS if each >= length), -(-length // 128) * 128)


def can_record(model: TaskModel) -> bool:
    """Whether a step of this model has one shape for each length of rows, and waits for nothing."""
    if model.device.type != "cuda" or model.runs_decoder:
        return False
    if model.config.frozen or model.bundle is None:
        return True
    by_place = not model.reads_words or model.config.pool in BY_PLACE
    return by_place and model.bundle.config.memory != "state"
