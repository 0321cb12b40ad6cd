"""Outputs that predict pieces."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.base import Output
from polyseme.parts.activations import ACTIVATIONS
from polyseme.parts.norms import norm


class MaskedOutput(Output):
    """What a masked piece was: a dense layer, an activation, a norm, then the table of pieces and a bias.

    The table is the encoder's own unless `tied` is false. Where it is narrower than the stack (ALBERT, ELECTRA), the
    dense layer goes down to its width.
    """

    def __init__(
        self, width: int, table_width: int, n_pieces: int, *, activation: str, epsilon: float, tied: bool = True
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, table_width)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm("layer", table_width, epsilon)
        self.table = nn.Parameter(torch.empty(n_pieces, table_width))
        self.bias = nn.Parameter(torch.zeros(n_pieces))
        self.tied = tied

    def tie(self, table: nn.Parameter) -> None:
        if self.tied:
            self.table = table

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(self.norm(self.activation(self.dense(states))), self.table, self.bias)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(states), targets, reduction="none")

    def log_probs(self, states: Tensor) -> Tensor:
        return self.logits(states).log_softmax(dim=-1)
