"""The head that chooses: each choice is a row with one score, and an item's rows compete.

Shapes: R rows, I items.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyseme.errors import InputError
from polyseme.heads.classify import WholeText
from polyseme.heads.features import Features
from polyseme.heads.head import NO_GOLD, Head, as_array
from polyseme.heads.head_config import HeadConfig
from polyseme.types import Predictions


class ChooseHead(Head):
    """Gold: [I], the number of the right choice among the item's, from 0. Items may differ in how many they have."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.text = WholeText(config, 1)

    def forward(self, features: Features) -> Tensor:
        """[R], a score a choice."""
        self.check(features)
        scores: Tensor = self.text(features)
        return scores.squeeze(-1)

    def loss(self, features: Features, gold: Tensor) -> Tensor:
        """−log p of the right choice, one an item: [I]."""
        scores, groups = self(features), self._groups(features)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        here = torch.arange(len(groups), device=groups.device)
        first = groups.new_full((len(gold),), len(groups)).scatter_reduce(0, groups, here, "amin")
        highest = scores.detach().new_full((len(gold),), -torch.inf).scatter_reduce(0, groups, scores.detach(), "amax")
        total = torch.zeros_like(highest).index_add(0, groups, torch.exp(scores - highest[groups]))
        right = scores[first + gold.clamp(min=0)]
        loss: Tensor = (total.log() + highest - right) * (gold != NO_GOLD)
        return loss

    def n_gold(self, gold: Tensor) -> Tensor:
        return (gold != NO_GOLD).long()

    @torch.no_grad()
    def predict(self, features: Features) -> Predictions:
        """The number of the best choice of each item; probabilities [I, most choices], zeros where there is none."""
        scores, groups = self(features).double(), self._groups(features)
        counts = torch.bincount(groups)
        table = scores.new_full((len(counts), int(counts.max()) if len(counts) else 0), -torch.inf)
        firsts = counts.cumsum(0) - counts
        place = torch.arange(len(groups), device=groups.device) - firsts[groups]
        table[groups, place] = scores
        probabilities = as_array(torch.softmax(table, dim=-1))
        return Predictions(labels=probabilities.argmax(-1).tolist(), probabilities=probabilities)

    def _groups(self, features: Features) -> Tensor:
        if features.groups is None:
            raise InputError("A head that chooses must be told which rows are choices of one item ('groups').")
        return features.groups
