"""Outputs that predict a pretraining label: the pooled state, the next sentence, a replaced piece."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.output import Output
from polyseme.parts.feed_forward import ACTIVATIONS


class PooledOutput(nn.Module):
    """BERT's pooler: a dense layer and tanh over the first piece's state; what `next` reads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor) -> Tensor:
        """[R, D], the states of the first pieces → [R, D]"""
        return torch.tanh(self.dense(states))


class NextOutput(Output):
    """Whether the second part follows the first: label 0 says it does. Reads pooled states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.dense(states), targets, reduction="none")

    def log_probs(self, states: Tensor) -> Tensor:
        logits: Tensor = self.dense(states)
        return logits.log_softmax(dim=-1)


class ReplacedOutput(Output):
    """Whether a piece was replaced (ELECTRA): label 1 says it was."""

    def __init__(self, width: int, *, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]
        self.predict = nn.Linear(width, 1)

    def logits(self, states: Tensor) -> Tensor:
        """[N, D] → [N]: positive where the piece looks replaced."""
        logits: Tensor = self.predict(self.activation(self.dense(states)))
        return logits.squeeze(-1)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        logits = self.logits(states)
        return F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")

    def log_probs(self, states: Tensor) -> Tensor:
        logits = self.logits(states)
        return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=-1)
