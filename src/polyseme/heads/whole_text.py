"""The heads over whole texts: rows of words become one vector each, which is scored as classes, a number or a choice.

Shapes: R rows, W words, D width, L labels, I items.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.errors import InputError
from polyseme.heads.bodies import PLAIN, Pools, Scores, TextBody
from polyseme.heads.head import N_VECTORS, NO_GOLD, Features, Head, as_array, read_out
from polyseme.heads.head_config import HeadConfig
from polyseme.parts.distillation_losses import soft_label_losses, soft_target_losses, square_losses
from polyseme.types import Predictions


class WholeText(nn.Module):
    """Features → [R, L].

    A linear or mlp body reads the vector that stands for the whole row, where the encoder gives one; otherwise the
    words are read out. Two texts from separate rows are combined as [u; v; |u − v|; u ∘ v] (Conneau et al. 2017;
    GLUE's baselines).
    """

    def __init__(self, config: HeadConfig, n_labels: int) -> None:
        super().__init__()
        self.config = config
        plain = config.body in PLAIN
        self.reads_whole = config.whole_width is not None and plain and not config.separate_rows
        if self.reads_whole and config.whole_width is not None:
            self.body, below = None, config.whole_width
        else:
            self.body = TextBody(config)
            self.pools = Pools(self.body.two_way_width) if config.body == "bcn" else None
            n_vectors, states = N_VECTORS[config.readout], self.body.two_way_width
            below = (self.body.width - states) * n_vectors + states * (4 if self.pools is not None else n_vectors)
            below *= 4 if config.separate_rows else 1
        layer = config.body in ("mlp", "mlp-batchnorm", "bilstm-attention", "bcn")
        self.scores = Scores(config, below, n_labels, layer=layer, dropout_rate=config.dropout_rate)

    def forward(self, features: Features) -> Tensor:
        if self.body is None:
            return self.scores(features.whole)  # type: ignore[no-any-return]
        first, second = self.body(features.words, features.mask, features.second, features.second_mask)
        vector = self._read_out(first, features.mask)
        if second is not None and features.second_mask is not None:
            other = self._read_out(second, features.second_mask)
            vector = torch.cat([vector, other, (vector - other).abs(), vector * other], dim=-1)
        return self.scores(vector)  # type: ignore[no-any-return]

    def _read_out(self, words: Tensor, mask: Tensor) -> Tensor:
        """States of the body and, where they are read again, the words themselves: each read out in its own way."""
        assert self.body is not None
        readout, states = self.config.readout, self.body.two_way_width
        parts = [read_out(words[..., :states], mask, readout, two_way=True)] if states and self.pools is None else []
        if self.pools is not None:
            parts.append(self.pools(words[..., :states], mask))
        if words.shape[-1] > states:
            parts.append(read_out(words[..., states:], mask, readout))
        return torch.cat(parts, dim=-1)


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

    def soft_loss(self, features: Features, taught: Tensor, temperature: float) -> Tensor:
        """Of distributions over labels; of each label by itself where several may hold; in regression, the squared
        difference.
        """
        scores: Tensor = self(features)
        if self.config.regression:
            return square_losses(scores[:, None], taught[:, None]).mean()
        compare = soft_label_losses if self.config.multi else soft_target_losses
        return compare(scores, taught, temperature).mean()

    def n_gold(self, gold: Tensor) -> Tensor:
        if self.config.regression or self.config.multi:
            return gold.new_ones(gold.shape[0], dtype=torch.long)
        return (gold != NO_GOLD).long()

    @torch.no_grad()
    def predict(self, features: Features) -> Predictions:
        return self.answers(self(features), features.mask)

    def answers(self, scores: Tensor, mask: Tensor) -> Predictions:
        """Label numbers, with probabilities [R, L]; numbers in regression; where several labels may hold, those more
        likely than not.
        """
        if self.config.regression:
            return Predictions(labels=as_array(scores).tolist())
        if self.config.multi:
            each = as_array(torch.sigmoid(scores.double()))
            return Predictions(labels=[tuple(np.flatnonzero(row > 0.5).tolist()) for row in each], probabilities=each)
        probabilities = as_array(torch.softmax(scores.double(), dim=-1))
        return Predictions(labels=probabilities.argmax(-1).tolist(), probabilities=probabilities)


class ChooseHead(Head):
    """Gold: [I], the number of the right choice among the item's, from 0. Items may differ in how many they have."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.text = WholeText(config, 1)

    def forward(self, features: Features) -> Tensor:
        """[R], one score per choice."""
        self.check(features)
        scores: Tensor = self.text(features)
        return scores.squeeze(-1)

    def loss(self, features: Features, gold: Tensor) -> Tensor:
        """−log p of the right choice, one per item: [I]."""
        scores, groups = self(features), self._groups(features)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        here = torch.arange(len(groups), device=groups.device)
        first = groups.new_full((len(gold),), len(groups)).scatter_reduce(0, groups, here, "amin")
        highest = scores.detach().new_full((len(gold),), -torch.inf).scatter_reduce(0, groups, scores.detach(), "amax")
        total = torch.zeros_like(highest).index_add(0, groups, torch.exp(scores - highest[groups]))
        right = scores[first + gold.clamp(min=0)]
        loss: Tensor = (total.log() + highest - right) * (gold != NO_GOLD)
        return loss

    def soft_loss(self, features: Features, taught: Tensor, temperature: float) -> Tensor:
        """Of distributions over the choices of an item, by item."""
        groups = self._groups(features)
        mine, theirs = (_log_shares(each / temperature, groups) for each in (self(features), taught))
        n_items = groups.amax() + 1
        return temperature**2 * (theirs.exp() * (theirs - mine)).sum() / n_items

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
            raise InputError("A head that chooses needs to know which rows are choices of one item ('groups').")
        return features.groups


def _log_shares(scores: Tensor, groups: Tensor) -> Tensor:
    """[R] → [R]: the log-probability of each choice among those of its item."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    highest = torch.full_like(scores, -torch.inf).detach().scatter_reduce(0, groups, scores.detach(), "amax")
    above = scores - highest[groups]
    total = torch.zeros_like(scores).index_add(0, groups, above.exp())
    return above - total[groups].log()
