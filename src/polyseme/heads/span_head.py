"""The head that finds the span of a passage that answers a question, or says that there is none.

A span's score is that of its first word as a start plus that of its last as an end; "no answer" is one more place that
both may point at (Devlin et al. 2019, [CLS]). Long passages come as several rows, their windows: `join_windows` joins
the results.

Shapes: R rows, W words, D width; 1 + W places, of which the first is "no answer".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.heads.bodies import ATTENTIVE, Scores, TextBody
from polyseme.heads.head import N_VECTORS, NO_GOLD, Features, Head, read_out
from polyseme.heads.head_config import HeadConfig
from polyseme.parts.crf import FORBIDDEN
from polyseme.parts.distillation_losses import soft_target_losses
from polyseme.types import Predictions


@dataclass(frozen=True)
class Span:
    """Words from `start` to `end`, both included, and their score."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Spans:
    """The spans of one passage, or of one window of it."""

    best: tuple[Span, ...]
    """The best spans, best first."""
    none: float
    """What "no answer" scores."""

    def answer(self, *, no_answer: bool, threshold: float = 0.0) -> Span | None:
        """The best span; None where there is none, or where "no answer" is allowed and scores `threshold` more."""
        if not self.best or (no_answer and self.none - self.best[0].score > threshold):
            return None
        return self.best[0]

    def probabilities(self, *, no_answer: bool) -> list[float]:
        """Of each span in turn among those kept, "no answer" last where it is allowed."""
        scores = [span.score for span in self.best] + ([self.none] if no_answer else [])
        highest = max(scores, default=0.0)
        shares = [math.exp(score - highest) for score in scores]
        return [share / sum(shares) for share in shares]


def join_windows(windows: Sequence[Spans], firsts: Sequence[int], *, n_best: int = 20) -> Spans:
    """The spans of a passage from those of its windows; word 0 of a window's row is word `firsts` of the passage.

    A span that several windows hold has its best score. A passage has no answer only if no window has one: "no answer"
    scores as in the window that is surest of an answer.
    """
    best: dict[tuple[int, int], float] = {}
    for window, first in zip(windows, firsts, strict=True):
        for span in window.best:
            place = (span.start + first, span.end + first)
            best[place] = max(span.score, best.get(place, -math.inf))
    ordered = sorted(best.items(), key=lambda each: (-each[1], each[0]))[:n_best]
    spans = tuple(Span(start, end, score) for (start, end), score in ordered)
    return Spans(best=spans, none=min((window.none for window in windows), default=0.0))


class SpanHead(Head):
    """Gold: [R, 2], the first and last word of the answer in the row; (−1, −1) where the row holds none, whether its
    passage has an answer elsewhere or not.

    A question in a row of its own is combined with its passage by attention or, in other bodies, beside each word:
    [h; q; h ∘ q].
    The linear head is BERT's, without dropout; the vector of the whole row is then scored by the same layer.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.body = TextBody(config)
        plain = config.body in ("linear", "mlp")
        self.meets = config.separate_rows and config.body not in ATTENTIVE
        below = self.body.width
        if self.meets:
            question = below * N_VECTORS[config.readout]
            self.question = nn.Linear(question, below) if question != below else nn.Identity()
            below = 3 * below
        rate = 0.0 if config.body == "linear" else config.dropout_rate
        self.scores = Scores(config, below, 2, layer=config.body == "mlp", dropout_rate=rate)
        self.reads_whole = config.whole_width is not None
        shares = plain and not config.separate_rows and config.whole_width == below
        self.none_scores = (
            None if shares else Scores(config, config.whole_width or below, 2, layer=False, dropout_rate=rate)
        )

    def forward(self, features: Features) -> Tensor:
        """[R, 1 + W, 2], scores as start and as end; `FORBIDDEN` at words that no answer may have."""
        self.check(features)
        words, question = self.body(features.words, features.mask, features.second, features.second_mask)
        if self.meets and features.second_mask is not None:
            query = self.question(read_out(question, features.second_mask, self.config.readout))
            query = query[:, None].expand_as(words)
            words = torch.cat([words, query, words * query], dim=-1)
        allowed = self._allowed_words(features)
        whole = features.whole if self.reads_whole else read_out(words, allowed, "mean")
        none = (self.scores if self.none_scores is None else self.none_scores)(whole)
        scores = self.scores(words)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores.masked_fill(~allowed[:, :, None], FORBIDDEN)
        return torch.cat([none[:, None].to(scores.dtype), scores], dim=1)

    def _allowed_words(self, features: Features) -> Tensor:
        return features.mask if features.passage is None else features.mask & features.passage

    def loss(self, features: Features, gold: Tensor) -> Tensor:
        scores, places = self(features), gold + 1
        places = torch.where(gold == NO_GOLD, NO_GOLD, places)
        start, end = (
            F.cross_entropy(scores[..., side], places[:, side], ignore_index=NO_GOLD, reduction="none")
            for side in (0, 1)
        )
        return (start + end) / 2

    def soft_loss(self, features: Features, taught: Tensor, temperature: float) -> Tensor:
        """Of distributions over starts and over ends, by row."""
        mine, theirs = (each.transpose(1, 2) for each in (self(features), taught))
        return soft_target_losses(mine, theirs, temperature).mean()

    def n_gold(self, gold: Tensor) -> Tensor:
        return (gold[:, 0] != NO_GOLD).long()

    @torch.no_grad()
    def predict(self, features: Features) -> Predictions:
        """`Spans` of each row, in the row's word numbers: all pairs of a start and an end not before it and at most
        `longest_answer` words on are considered.
        """
        scores = self(features).double()
        none, start, end = scores[:, 0].sum(-1), scores[:, 1:, 0], scores[:, 1:, 1]
        n_rows, n_words = start.shape
        longest = min(self.config.longest_answer, n_words)
        if not n_words:
            return Predictions(labels=[Spans(best=(), none=each) for each in none.tolist()])
        ends = F.pad(end, (0, longest - 1), value=FORBIDDEN).unfold(1, longest, 1)  # [R, W, longest]
        pairs = (start[:, :, None] + ends).flatten(1)
        values, places = pairs.topk(min(self.config.n_best, pairs.shape[1]), dim=1)
        labels = []
        for row in range(n_rows):
            candidates = zip(values[row].tolist(), places[row].tolist(), strict=True)
            spans = [
                Span(place // longest, place // longest + place % longest, value)
                for value, place in candidates
                if value > FORBIDDEN / 2
            ]
            labels.append(Spans(best=tuple(spans), none=none[row].item()))
        return Predictions(labels=labels)
