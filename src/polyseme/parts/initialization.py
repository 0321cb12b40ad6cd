"""The first values of weights; and modules without memory or random draws, whose weights are put in place later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWS = frozenset({"normal_", "uniform_", "kaiming_uniform_", "zero_", "fill_", "zeros_", "ones_"})


def draw_normal(weight: Tensor, std: float, cutoff: float | None = None) -> None:
    """Draw weights from a normal distribution; none is more than `cutoff` standard deviations from 0."""
    if cutoff is None or weight.is_meta:
        nn.init.normal_(weight, std=std)
    else:
        nn.init.trunc_normal_(weight, std=std, a=-cutoff * std, b=cutoff * std)


def set_weight(linear: nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
    """Give a linear layer another weight, of another shape too; its bias stays unless there is another."""
    linear.weight = nn.Parameter(weight.detach().contiguous(), requires_grad=linear.weight.requires_grad)
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().contiguous(), requires_grad=linear.bias.requires_grad)
    linear.out_features, linear.in_features = weight.shape


class _NoDraws(TorchFunctionMode):
    """Leaves out what would fill a tensor: on tensors without memory it only takes time, and loads half of torch."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in _DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def skip_initialization() -> Iterator[None]:
    """Within this block, modules have shapes and names but no numbers."""
    with torch.device("meta"), _NoDraws():
        yield
