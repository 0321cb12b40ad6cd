"""The feed-forward part of a Transformer layer, and activation functions by the names that published configs use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.parts.linear import Linear

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

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gated: bool = config.gated
        n_inner = (2 if self.gated else 1) * config.inner_width
        self.up = Linear(config.width, n_inner, bias=config.inner_bias)
        self.down = Linear(config.inner_width, config.width, bias=config.inner_bias)
        self.dropout = nn.Dropout(config.inner_dropout_rate)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = self.activation(gate) * inner
        else:
            inner = self.activation(inner)
        down: Tensor = self.down(self.dropout(inner))
        return down
