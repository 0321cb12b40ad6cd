"""Activation functions, by the names that published configs use."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """The GELU of the first GPT: its tanh approximation."""
    return F.gelu(x, approximate="tanh")


def gelu_sigmoid(x: Tensor) -> Tensor:
    """The GELU approximated by a sigmoid."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_new": gelu_tanh,
    "gelu_sigmoid": gelu_sigmoid,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
