"""The feed-forward part of a Transformer layer, and activation functions by the names that published configs use."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) · up(x)) where `gated`; gate and up are one matrix, the gate first."""

    def __init__(
        self, width: int, inner_width: int, *, activation: str, gated: bool, bias: bool, dropout_rate: float
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, (2 if gated else 1) * inner_width, bias=bias)
        self.down = nn.Linear(inner_width, width, bias=bias)
        self.dropout = nn.Dropout(dropout_rate)
        self.activation = ACTIVATIONS[activation]
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = self.activation(gate) * inner
        else:
            inner = self.activation(inner)
        down: Tensor = self.down(self.dropout(inner))
        return down
