"""Outputs that predict pieces, among them those that are the table of pieces with a bias or a scale."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.output import Output
from polyseme.parts.feed_forward import ACTIVATIONS
from polyseme.parts.norms import NormKind, norm


class MaskedOutput(Output):
    """What a masked piece was: a dense layer, an activation, a norm, then the table of pieces and a bias.

    The table is the encoder's own unless `tied` is false. Where it is narrower than the stack (ALBERT, ELECTRA), the
    dense layer goes down to its width.
    """

    def __init__(
        self,
        width: int,
        table_width: int,
        n_pieces: int,
        *,
        activation: str,
        epsilon: float,
        tied: bool = True,
        norm_kind: NormKind = "layer",
        dense_bias: bool = True,
        init_share: float = 1.0,
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, table_width, bias=dense_bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm(norm_kind, table_width, epsilon)
        self.init_share = init_share
        """The spread of its matrices at first, as a share of the encoder's."""
        self.table = nn.Parameter(torch.empty(n_pieces, table_width))
        self.bias = nn.Parameter(torch.zeros(n_pieces))
        self.tied = tied

    def tie(self, table: nn.Parameter) -> None:
        if self.tied:
            self.table = table

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(self.norm(self.activation(self.dense(states))), self.table, self.bias)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return piece_losses(self.logits(states), targets)

    def log_probs(self, states: Tensor) -> Tensor:
        return self.logits(states).log_softmax(dim=-1)


class CausalOutput(Output):
    """What piece comes next: the table of pieces and nothing else (GPT, GPT-2).

    The table is the encoder's own unless `tied` is false.
    """

    def __init__(self, width: int, n_pieces: int, *, tied: bool = True) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_pieces, width))
        self.tied = tied

    def tie(self, table: nn.Parameter) -> None:
        if self.tied:
            self.table = table

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.table)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return piece_losses(self.logits(states), targets)

    def log_probs(self, states: Tensor) -> Tensor:
        return self.logits(states).log_softmax(dim=-1)


def piece_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """[N, V] and [N] → [N]: minus the log-probability of each target, in single precision where states are in half."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(logits, targets, reduction="none")


class TableOutput(Output):
    """Which piece: the table of pieces over scaled states, and a bias that is learned (XLNet) or kept (BART) or none.

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
        bias: Literal["learned", "kept", "none"] = "none",
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_pieces, width))
        self.tied = tied
        self.scale = scale
        self.bias: Tensor | None
        if bias == "learned":
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
