"""The contract of every output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from polyseme.parts.embeddings import Clusters


class Output(nn.Module, ABC):
    """A layer over states that predicts pieces or a pretraining label. Shapes: N positions, D width, V choices."""

    fixed_shapes: ClassVar[bool] = True
    """Whether all shapes inside `loss` follow from those of its arguments, so that a training step can be recorded."""

    @abstractmethod
    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """[N, D] and [N] → [N]: one loss a position."""

    @abstractmethod
    def log_probs(self, states: Tensor) -> Tensor:
        """[N, D] → [N, V]"""

    def tie(self, table: nn.Parameter) -> None:
        """Share the encoder's table of pieces, where this output does; called whenever weights are put in place."""

    def tie_clusters(self, clusters: Clusters) -> None:
        """The same where the encoder has several tables."""
