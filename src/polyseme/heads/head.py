"""The contract of every head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.errors import ModelError
from polyseme.heads.features import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.types import Predictions

NO_GOLD = -100
"""The gold number of what is not labeled; it counts for nothing."""


class Head(nn.Module, ABC):
    """A layer over word features, [R, W, D] with W words a row; it does not know which encoder made them."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, features: Features) -> Tensor:
        """The scores behind loss and predictions; what they are, each head says."""

    @abstractmethod
    def loss(self, features: Features, gold: Tensor) -> Tensor:
        """One loss a row: [R]; an item, where several rows are one."""

    @abstractmethod
    def n_gold(self, gold: Tensor) -> Tensor:
        """What each loss is a sum over, as whole numbers: labeled words in tagging; one elsewhere, or none."""

    def mean_loss(self, features: Features, gold: Tensor) -> Tensor:
        """What is minimized: the loss by labeled word or item, over all rows."""
        return self.loss(features, gold).sum() / self.n_gold(gold).sum().clamp(min=1)

    @abstractmethod
    def predict(self, features: Features) -> Predictions:
        """What the head says; a CRF decodes here."""

    def check(self, features: Features) -> None:
        """Refuse features of another shape than the head was made for."""
        config = self.config
        if features.words.shape[-1] != config.width:
            raise ModelError(
                f"This head for task {config.kind!r} reads words of width {config.width}. Got width "
                f"{features.words.shape[-1]}: it belongs to another encoder or other layers."
            )
        given = None if features.whole is None else features.whole.shape[-1]
        if config.whole_width is not None and given != config.whole_width:
            raise ModelError(
                f"This head for task {config.kind!r} reads a vector of width {config.whole_width} for the whole row. "
                f"Got {'none' if given is None else f'width {given}'}."
            )
        if config.apart != (features.second is not None):
            made, got = ("apart", "together") if config.apart else ("together", "apart")
            raise ModelError(
                f"This head for task {config.kind!r} was made for texts read {made}. Got texts read {got}."
            )
        if config.n_marks and features.marks is None:
            raise ModelError(f"This head for task {config.kind!r} reads a mark a word (predicates). Got none.")


def as_array(tensor: Tensor) -> NDArray[Any]:
    """In NumPy; half precision becomes 32-bit floats."""
    tensor = tensor.detach().to("cpu")
    array: NDArray[Any] = (tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor).numpy()
    return array
