"""The gradient of a large table of pieces, kept from step to step on a CPU.

A small batch reads few rows of a table, yet torch makes a gradient as large as the table for every step, mostly of
zeros in memory fresh from the system. Here the rows alone are computed, put into a gradient that stays, and taken out
of it after the step.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

WORTH_KEEPING = 1 << 20
"""Numbers in a table from which on it pays."""


class TableGradient:
    """The gradient of one table, which is the same tensor in every step."""

    def __init__(self, table: nn.Embedding) -> None:
        self.table = table
        self.kept = torch.zeros_like(table.weight)
        self.rows: Tensor | None = None
        table.sparse = True
        self.hook = table.weight.register_post_accumulate_grad_hook(self._fill)

    def _fill(self, weight: Tensor) -> None:
        given = weight.grad
        if given is None or not given.is_sparse:  # a table that is an output's too: its gradient is whole
            return
        self.rows = given._indices()[0]
        self.kept.index_add_(0, self.rows, given._values())
        weight.grad = self.kept

    def clear(self) -> None:
        """After a step: zeros again, where the batch had put anything."""
        if self.rows is not None:
            self.kept.index_fill_(0, self.rows, 0.0)
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
