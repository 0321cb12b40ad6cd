"""The output of SpanBERT's boundary objective: a piece of a span, from what stands on both sides of the span."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.pieces import PieceOutput


class BoundaryOutput(PieceOutput):
    """Two layers with GELU and a norm each, over both boundaries and a position; then the table of pieces and a bias.

        h = LayerNorm(GELU(W₁ [x_left; x_right; p])),  y = LayerNorm(GELU(W₂ h)),  logits = E y + b

    The table E is the encoder's own, as in the paper (Joshi et al. 2020).
    """

    def __init__(
        self, width: int, table_width: int, n_pieces: int, *, n_positions: int, position_width: int, epsilon: float
    ) -> None:
        super().__init__(table_width, n_pieces)
        self.positions = nn.Embedding(n_positions, position_width)
        self.first = nn.Linear(2 * width + position_width, width)
        self.first_norm = nn.LayerNorm(width, eps=epsilon)
        self.second = nn.Linear(width, table_width)
        self.second_norm = nn.LayerNorm(table_width, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(n_pieces))

    def inputs(self, left: Tensor, right: Tensor, positions: Tensor) -> Tensor:
        """[N, D] twice and [N] → [N, 2 D + P]: what `loss` reads of each target."""
        return torch.cat([left, right, self.positions(positions).to(left.dtype)], dim=-1)

    def logits(self, states: Tensor) -> Tensor:
        hidden = self.first_norm(F.gelu(self.first(states)))
        return F.linear(self.second_norm(F.gelu(self.second(hidden))), self.table, self.bias)
