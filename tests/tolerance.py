"""How far from its reference a run may be: one rule for every comparison, on every processor.

In float64 to 1e-10 of the largest value of the tensor compared. In fp32 two right answers differ by the order in which
they sum, which changes with the processor, its instruction set and the number of threads; how much that costs depends
on the model (a softmax over unscaled scores, as T5's, loses a hundred times as much as BERT's). So fp32 is measured by
the reference itself: both are compared with the reference's float64 run on the same weights and inputs, and ours may be
off by `FACTOR` times what the reference's own fp32 run is off.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from references import assert_close, in_its_own_precision

FLOAT64 = 1e-10
FACTOR = 8
"""Over all families, 8 draws of weights and inputs, and the kernels for AVX2 and for SSE, our error was at most 2.0
times the reference's in a layer and 4.1 times in the gradients. Twice that leaves room for kernels that were not
tried."""
FLOOR = 1e-6
"""Of the largest value: 8 roundings. A reference may be exact by luck, which is no measure."""

T = TypeVar("T")


@dataclass(frozen=True)
class Expected:
    """What the reference's float64 run returned, and how far from it a run may be."""

    values: Tensor
    largest: float
    tolerance: float

    def check(self, ours: Tensor) -> None:
        assert_close(ours, self.values, self.tolerance, self.largest)


def expect(reference: nn.Module, read: Callable[[Any], dict[T, Tensor]], dtype: torch.dtype) -> dict[T, Expected]:
    """What `read` returns of a reference, each tensor with the tolerance of a run in `dtype`, float64 or fp32.

    A single number may be exact by luck: it is allowed what the tensors beside it cost.
    """
    values, errors = _both_runs(reference, read, dtype)
    sizes = {name: _largest(tensor) for name, tensor in values.items()}
    costs = {name: errors[name] / (sizes[name] or 1.0) for name in values}
    most = max(costs.values(), default=0.0)
    return {
        name: Expected(tensor, sizes[name], _tolerance(costs[name] if tensor.numel() > 1 else most, dtype))
        for name, tensor in values.items()
    }


def expect_together(
    reference: nn.Module, read: Callable[[Any], dict[T, Tensor]], dtype: torch.dtype
) -> dict[T, Expected]:
    """The same for tensors that are measured as one, such as the gradients of a model: by the largest of them all."""
    values, errors = _both_runs(reference, read, dtype)
    largest = max(_largest(tensor) for tensor in values.values())
    tolerance = _tolerance(max(errors.values()) / largest, dtype)
    return {name: Expected(tensor, largest, tolerance) for name, tensor in values.items()}


def in_double(reference: Any) -> Any:
    """A copy in float64, with nothing in it rounded to fp32 on the way."""
    double = copy.deepcopy(reference).double()
    in_its_own_precision(double)
    return double


def _both_runs(
    reference: nn.Module, read: Callable[[Any], dict[T, Tensor]], dtype: torch.dtype
) -> tuple[dict[T, Tensor], dict[T, float]]:
    """What the float64 run returned, and how far a run in `dtype` is off."""
    values = {name: tensor.detach().double() for name, tensor in read(in_double(reference)).items()}
    if dtype == torch.float64:
        return values, dict.fromkeys(values, 0.0)
    single = read(copy.deepcopy(reference).to(dtype))
    return values, {name: _largest(single[name].detach().double() - each) for name, each in values.items()}


def _tolerance(cost: float, dtype: torch.dtype) -> float:
    return FLOAT64 if dtype == torch.float64 else FACTOR * max(cost, FLOOR)


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0
