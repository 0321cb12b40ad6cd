"""The contract of every head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from polyseme.types import Predictions


class Head(nn.Module, ABC):
    """A layer over word features, [R, W, D] with W words a row; it does not know which encoder made them."""

    @abstractmethod
    def loss(self, features: Any, gold: Any) -> Tensor:
        """One loss a row: [R]."""

    @abstractmethod
    def predict(self, features: Any) -> Predictions:
        """What the head says; a CRF decodes here."""
