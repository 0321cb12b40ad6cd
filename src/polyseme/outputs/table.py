"""Outputs that are the table of pieces with something added: a bias, a scale."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.base import Output
from polyseme.outputs.pieces import piece_losses


class TableOutput(Output):
    """Which piece: the table of pieces over scaled states, and a bias that is learnt (XLNet) or kept (BART) or none.

    The table is the encoder's own unless `tied` is false. A bias that is kept is moved with the weights and saved with
    them, but no training changes it.
    """

    def __init__(
        self,
        width: int,
        n_pieces: int,
        *,
        tied: bool = True,
        scale: float = 1.0,
        bias: Literal["learnt", "kept", "none"] = "none",
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_pieces, width))
        self.tied = tied
        self.scale = scale
        self.bias: Tensor | None
        if bias == "learnt":
            self.bias = nn.Parameter(torch.zeros(n_pieces))
        else:
            self.register_buffer("bias", torch.zeros(n_pieces) if bias == "kept" else None)

    def tie(self, table: nn.Parameter) -> None:
        if self.tied:
            self.table = table

    def logits(self, states: Tensor) -> Tensor:
        scaled = states if self.scale == 1.0 else states * self.scale
        return F.linear(scaled, self.table, self.bias)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return piece_losses(self.logits(states), targets)

    def log_probs(self, states: Tensor) -> Tensor:
        return self.logits(states).log_softmax(dim=-1)
