"""The head over words: a tag each, alone (softmax) or as a sequence (CRF).

Shapes: R rows, W words, D width, L tags.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.heads.bodies import Scores, TextBody
from polyseme.heads.head import NO_GOLD, Features, Head, as_array
from polyseme.heads.head_config import HeadConfig
from polyseme.parts.crf import LinearChain
from polyseme.parts.distillation_losses import soft_target_losses
from polyseme.types import Predictions


class TagHead(Head):
    """Gold: [R, W] tag numbers, `NO_GOLD` at padding and at words that have none.

    Words that have no gold tag count for nothing; a CRF in training passes over them, as if their neighbors stood side
    by side. Marks (which word is the predicate) have vectors of their own beside the words'.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.marks = nn.Embedding(config.n_marks, config.marks_width) if config.n_marks else None
        self.body = TextBody(config, below=config.width + (config.marks_width if config.n_marks else 0))
        self.scores = Scores(
            config, self.body.width, config.n_labels, layer=config.body == "mlp", dropout_rate=config.dropout_rate
        )
        self.chain = LinearChain(config.labels, config.scheme) if config.crf else None

    def forward(self, features: Features) -> Tensor:
        """[R, W, L], each word's own; a CRF's transitions come on top."""
        self.check(features)
        words = features.words
        if self.marks is not None:
            words = torch.cat([words, self.marks(features.marks)], dim=-1)
        states, _ = self.body(words, features.mask)
        scores: Tensor = self.scores(states)
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    def loss(self, features: Features, gold: Tensor) -> Tensor:
        """Summed over a row's words: [R]."""
        scores = self(features)
        if self.chain is None:
            losses = F.cross_entropy(scores.flatten(0, 1), gold.flatten(), ignore_index=NO_GOLD, reduction="none")
            summed: Tensor = losses.unflatten(0, gold.shape).sum(1)
            return summed
        labeled = gold != NO_GOLD
        order = torch.argsort((~labeled).long(), dim=1, stable=True)  # labeled words to the front
        scores = scores.gather(1, order[:, :, None].expand_as(scores))
        loss: Tensor = self.chain.loss(scores, labeled.gather(1, order), gold.gather(1, order))
        return loss

    def teaching_scores(self, features: Features) -> Tensor:
        """A CRF teaches the probabilities of each word's tags over all sequences."""
        scores: Tensor = self(features)
        if self.chain is None:
            return scores
        marginals = self.chain.marginals(scores, features.mask)
        return marginals.clamp(min=torch.finfo(marginals.dtype).tiny).log()

    def soft_loss(self, features: Features, taught: Tensor, temperature: float) -> Tensor:
        """Of distributions over tags, by word."""
        losses = soft_target_losses(self.teaching_scores(features), taught, temperature)
        return (losses * features.mask).sum() / features.mask.sum().clamp(min=1)

    def n_gold(self, gold: Tensor) -> Tensor:
        """Words that have a gold tag."""
        return (gold != NO_GOLD).sum(1)

    @torch.no_grad()
    def predict(self, features: Features) -> Predictions:
        return self.answers(self(features), features.mask)

    def answers(self, scores: Tensor, mask: Tensor) -> Predictions:
        """A list of tag numbers per row, one per word; probabilities [R, W, L] (a CRF's are over all sequences).

        They are zeros at padding.
        """
        if self.chain is None:
            probabilities = torch.softmax(scores.double(), dim=-1) * mask[:, :, None]
            tags = scores.argmax(-1)
        else:
            tags, _ = self.chain.best_path(scores, mask)
            probabilities = self.chain.marginals(scores, mask)
        lengths = mask.sum(1).tolist()
        labels = [row[:length] for row, length in zip(tags.tolist(), lengths, strict=True)]
        return Predictions(labels=labels, probabilities=as_array(probabilities))
