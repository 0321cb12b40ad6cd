"""The feed-forward half of a Transformer layer."""

from __future__ import annotations

from torch import Tensor, nn

from polyseme.parts.activations import ACTIVATIONS


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
