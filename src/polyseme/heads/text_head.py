"""The head that writes: a label is a text, and its score is how likely the model is to write it of what it has read.

As T5 answers tasks (Raffel et al. 2020). It has no weights of its own: what writes is the model's own decoder and
output, which are lent to it as a `Writer`.

Shapes: R rows, S pieces of the longest row, D width, N texts that may be written, K pieces of the longest of them.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.heads.head import NO_GOLD, Features, Head, as_array
from polyseme.heads.head_config import HeadConfig
from polyseme.types import Predictions


class Writer(Protocol):
    """What says how likely texts are of what was read."""

    def __call__(self, source: Tensor, lengths: Tensor, texts: Tensor) -> Tensor:
        """States [R, S, D] with their lengths [R], and texts [R or 1, N, K] → [R, N, K].

        Minus the log-probability of each piece, given its row and the pieces before it in its own text.
        """


class TextHead(Head):
    """Gold: as of `ClassifyHead`, but for several labels. A number is written as the nearest that may be.

    Features: in place of words, the states of all pieces of the row, which the writer reads.
    """

    texts: Tensor
    """[N, K]: the pieces of each text, the end included, padded on the right."""
    real: Tensor
    """[N, K]"""
    numbers: Tensor
    """[N]: what the texts say, in regression."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        longest = max(map(len, config.pieces))
        texts = torch.zeros(len(config.pieces), longest, dtype=torch.long)
        real = torch.zeros(texts.shape, dtype=torch.bool)
        for number, pieces in enumerate(config.pieces):
            texts[number, : len(pieces)] = torch.tensor(pieces)
            real[number, : len(pieces)] = True
        self.register_buffer("texts", texts, persistent=False)
        self.register_buffer("real", real, persistent=False)
        numbers = torch.tensor([float(number) for number in config.numbers], dtype=torch.float32)
        self.register_buffer("numbers", numbers, persistent=False)
        self.writer: Writer | None = None
        """Set by the task model, which has the decoder."""

    def forward(self, features: Features) -> Tensor:
        """[R, N]: the log-probability of each text, its end included."""
        losses = self._score_texts(features, self.texts[None])
        return -(losses * self.real).sum(-1)

    def loss(self, features: Features, gold: Tensor) -> Tensor:
        """Summed over the pieces of the text that should be written: [R]."""
        number, known = self._number(gold)
        losses = self._score_texts(features, self.texts[number][:, None]).squeeze(1)  # [R, K]
        return (losses * self.real[number]).sum(-1) * known

    def n_gold(self, gold: Tensor) -> Tensor:
        """Pieces that should be written."""
        number, known = self._number(gold)
        return self.real[number].sum(-1) * known

    @torch.no_grad()
    def predict(self, features: Features) -> Predictions:
        """The text that is likeliest to be written, as its label or its number.

        Nothing else can be answered: every text is scored, and the probabilities [R, N] of labels are the softmax over
        their texts' log-probabilities. (Originally T5 writes freely, and any other text is wrong.)
        """
        scores = self(features).double()
        if self.config.regression:
            return Predictions(labels=as_array(self.numbers[scores.argmax(-1)].double()).round(6).tolist())
        probabilities = as_array(torch.softmax(scores, dim=-1))
        return Predictions(labels=probabilities.argmax(-1).tolist(), probabilities=probabilities)

    def _score_texts(self, features: Features, texts: Tensor) -> Tensor:
        self.check(features)
        if self.writer is None:
            raise ModelError("A head that writes needs a model with a decoder to write with, and has none.")
        return self.writer(features.words, features.mask.sum(1), texts)

    def _number(self, gold: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the texts should be written, and whether any should."""
        if self.config.regression:
            distance = (gold[:, None].to(self.numbers.dtype) - self.numbers).abs()
            return distance.argmin(-1), torch.ones_like(gold, dtype=torch.bool)
        return gold.clamp(min=0), gold != NO_GOLD
