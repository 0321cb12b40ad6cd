"""The head over an edge: two spans of a text, or of two texts, have one label together.

Each span becomes one vector, a weighted mean of its words' whose weights are learned (Tenney et al. 2019), and the two
are compared as [a; b; |a − b|; a ∘ b]. The body `cosine` has no layers: the cosine of the two, and a threshold.

Shapes: R rows, W and V words of the first and second text, D width, L labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.errors import ModelError
from polyseme.heads.bodies import Scores, TextBody
from polyseme.heads.head import Features, Head
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.whole_text import ClassifyHead

FIRST, SECOND = 1, 2
"""In marks, the bit of a word in the first span, and that of one in the second."""
COSINE_RANGE = 10.0
"""What a cosine is multiplied by before it is weighed, so that a threshold is learned within a few hundred steps."""


class SpanVector(nn.Module):
    """[R, W, D] and which words are in the span → [R, D]: their mean, by weights that begin equal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(self.weigh.weight)

    def forward(self, words: Tensor, inside: Tensor) -> Tensor:
        scores = self.weigh(words).squeeze(-1)
        scores = scores.masked_fill(~inside, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=1) * inside
        return (weights[:, :, None] * words).sum(1)


class EdgeScores(nn.Module):
    """Features → [R, L]."""

    def __init__(self, config: HeadConfig, n_labels: int) -> None:
        super().__init__()
        self.config = config
        self.body = TextBody(config)
        self.span = SpanVector(self.body.width)
        self.cosine = config.body == "cosine"
        if self.cosine and (config.multi or n_labels > 2):
            raise ModelError(
                f"The head 'cosine' is a threshold between two labels, or a number. Got {n_labels} labels."
            )
        below = 1 if self.cosine else 4 * self.body.width
        layer = config.body not in ("linear", "cosine")
        self.scores = Scores(config, below, n_labels, layer=layer, dropout_rate=config.dropout_rate)

    def forward(self, features: Features) -> Tensor:
        if features.marks is None or (features.second is not None and features.second_marks is None):
            raise ModelError(f"A head for task {self.config.kind!r} reads which words are in the spans. Got no marks.")
        words, second = self.body(features.words, features.mask, features.second, features.second_mask)
        first = self.span(words, (features.marks & FIRST).bool())
        if second is None or features.second_marks is None:
            other = self.span(words, (features.marks & SECOND).bool())
        else:
            other = self.span(second, (features.second_marks & SECOND).bool())
        if self.cosine:
            alike = F.cosine_similarity(first.float(), other.float(), dim=-1)[:, None]
            return self.scores(COSINE_RANGE * (alike - 0.5))  # type: ignore[no-any-return]
        together = torch.cat([first, other, (first - other).abs(), first * other], dim=-1)
        return self.scores(together)  # type: ignore[no-any-return]


class EdgeHead(ClassifyHead):
    """Gold, loss and predictions as of a text, over the scores of an edge."""

    def __init__(self, config: HeadConfig) -> None:
        Head.__init__(self, config)
        self.text = EdgeScores(config, config.n_labels)  # type: ignore[assignment]
