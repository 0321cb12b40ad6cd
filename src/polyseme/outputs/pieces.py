"""Outputs that predict pieces by a table of them: after a transform (masked), plainly, or scaled and with a bias."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.output import Output
from polyseme.parts.feed_forward import ACTIVATIONS
from polyseme.parts.linear import Linear, linear
from polyseme.parts.norms import NormKind, norm
from polyseme.parts.precision import single_precision


def scores_of(output: Output, states: Tensor) -> Tensor:
    """[R, D] → [R, V]: the output's logits, where it has any, else its log-probabilities.

    Never in half precision: there, many pieces would be exactly as likely.
    """
    return single_precision(output.logits(states)) if isinstance(output, PieceOutput) else output.log_probs(states)


def piece_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """[N, V] and [N] → [N]: minus the log-probability of each target, in single precision where states are in half."""
    return F.cross_entropy(single_precision(logits), targets, reduction="none")


class PieceOutput(Output):
    """Which piece. The table of pieces is the encoder's own unless `tied` is false."""

    def __init__(self, width: int, n_pieces: int, *, tied: bool = True) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_pieces, width))
        self.tied = tied

    def tie(self, table: nn.Parameter) -> None:
        if self.tied:
            self.table = table

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """[N, D] → [N, V]: log-probabilities up to a constant."""

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return piece_losses(self.logits(states), targets)

    def log_probs(self, states: Tensor) -> Tensor:
        return self.logits(states).log_softmax(dim=-1)


class MaskedOutput(PieceOutput):
    """What a masked piece was: a dense layer, an activation, a norm, then the table of pieces and a bias.

    Where the table is narrower than the stack (ALBERT, ELECTRA), the dense layer goes down to its width.
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
        super().__init__(table_width, n_pieces, tied=tied)
        self.dense = Linear(width, table_width, bias=dense_bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm(norm_kind, table_width, epsilon)
        self.bias = nn.Parameter(torch.zeros(n_pieces))
        self.init_share = init_share
        """The spread of its matrices at first, as a share of the encoder's."""

    def logits(self, states: Tensor) -> Tensor:
        return linear(self.norm(self.activation(self.dense(states))), self.table, self.bias)


class CausalOutput(PieceOutput):
    """What piece comes next: the table of pieces and nothing else (GPT, GPT-2)."""

    def logits(self, states: Tensor) -> Tensor:
        return linear(states, self.table)


class TableOutput(PieceOutput):
    """Which piece: the table of pieces over scaled states, and a bias that is learned (XLNet) or kept (BART) or none.

    A bias that is kept is moved with the weights and saved with them, but no training changes it.
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
        super().__init__(width, n_pieces, tied=tied)
        self.scale = scale
        self.bias: Tensor | None
        if bias == "learned":
            self.bias = nn.Parameter(torch.zeros(n_pieces))
        else:
            self.register_buffer("bias", torch.zeros(n_pieces) if bias == "kept" else None)

    def logits(self, states: Tensor) -> Tensor:
        scaled = states if self.scale == 1.0 else states * self.scale
        return linear(scaled, self.table, self.bias)
