"""The head over a text or a pair of texts: one label, several, or a number.

Shapes: R rows, L labels.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.heads.base import NO_GOLD, Head, as_array
from polyseme.heads.config import HeadConfig
from polyseme.heads.features import Features
from polyseme.heads.whole_text import WholeText
from polyseme.types import Predictions


class ClassifyHead(Head):
    """Gold: [R] label numbers (`NO_GOLD`: none), [R] floats in regression, [R, L] zeros and ones where several labels
    may hold. Stars are classes.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.text = WholeText(config, config.n_labels)

    def forward(self, features: Features) -> Tensor:
        """[R, L]; [R] in regression."""
        self.check(features)
        scores: Tensor = self.text(features)
        return scores.squeeze(-1) if self.config.regression else scores

    def loss(self, features: Features, gold: Tensor) -> Tensor:
        scores: Tensor = self(features)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.config.regression:
            return (scores - gold.to(scores.dtype)).square()
        if self.config.multi:
            return F.binary_cross_entropy_with_logits(scores, gold.to(scores.dtype), reduction="none").mean(-1)
        return F.cross_entropy(scores, gold, ignore_index=NO_GOLD, reduction="none")

    def n_gold(self, gold: Tensor) -> Tensor:
        if self.config.regression or self.config.multi:
            return gold.new_ones(gold.shape[0], dtype=torch.long)
        return (gold != NO_GOLD).long()

    @torch.no_grad()
    def predict(self, features: Features) -> Predictions:
        """Label numbers, with probabilities [R, L]; numbers in regression; where several labels may hold, those more
        likely than not.
        """
        scores = self(features)
        if self.config.regression:
            return Predictions(labels=as_array(scores).tolist())
        if self.config.multi:
            each = as_array(torch.sigmoid(scores.double()))
            return Predictions(labels=[tuple(np.flatnonzero(row > 0.5).tolist()) for row in each], probabilities=each)
        probabilities = as_array(torch.softmax(scores.double(), dim=-1))
        return Predictions(labels=probabilities.argmax(-1).tolist(), probabilities=probabilities)
