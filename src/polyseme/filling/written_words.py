"""Words and spans at masks, by a model that writes from left to right.

- A **causal** model proposes what may follow the text before the mask, and then says how likely the whole text is with
  each proposal in it, so that what comes after the mask counts, too.
- A **denoising** decoder (BART) does the same, given the text with its mask as the source.
- A model of **sentinels** (T5) reads one in place of each mask, and writes what each stands for: a span ends where the
  next sentinel is written, and has a probability of its own.

The probabilities of the first two are among the proposals: of each, that of the whole text, divided by the sum of all.
Several masks are filled from left to right, each given the words before it, by a beam over all of them.

Shapes: R rows, V pieces in the vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.errors import InputError
from polyseme.filling.filled_masks import Candidate, FillRequest, MaskedText, best
from polyseme.filling.masked_words import target_pieces
from polyseme.filling.row_log_probs import DecoderSteps, RowLogProbs
from polyseme.scoring.causal import TextReading
from polyseme.scoring.scorer import Scorer
from polyseme.text.documents import make_document
from polyseme.text.piece_texts import PieceTexts, over_rows
from polyseme.types import Document, Pieces

Ints = NDArray[np.int64]
PROPOSALS = 40
"""What is compared with the text behind the mask in view, at least."""
BEAM = 8
"""Beginnings of words that are followed up."""

Span = tuple[tuple[int, ...], float]
"""Pieces, and their log-probability."""


class WritingFiller(ABC):
    """A model that writes, as it fills masks."""

    description: str
    own_mask: str | None = None

    def __init__(self, texts: PieceTexts, *parts: RowLogProbs | DecoderSteps | Scorer, beam: int = BEAM) -> None:
        self.texts = texts
        self.parts = parts
        self.beam = beam

    @property
    def tally(self) -> Tally:
        """The pieces and FLOPs of all parts."""
        tallies = [part.tally for part in self.parts]
        return Tally(pieces=sum(each.pieces for each in tallies), flops=sum(each.flops for each in tallies))

    def spelled(self, pieces: Sequence[int]) -> list[str]:
        return self.texts.tokenizer.pieces(pieces)

    def as_written(self, before: str, word: str) -> str:
        return self.texts.text_of(self.texts.encode_after(before, word))

    def __call__(self, request: FillRequest) -> list[Candidate]:
        candidates = [Candidate(0.0)]
        width = max(request.n_candidates, self.beam)
        for mask in range(len(request.text.masks)):
            grown = [each for before in candidates for each in self.grown(request, mask, before)]
            candidates = best(self.scored(request, mask, grown), width)
        return candidates[: request.n_candidates]

    @abstractmethod
    def grown(self, request: FillRequest, mask: int, before: Candidate) -> list[Candidate]:
        """A candidate with what may be at the next mask."""

    @abstractmethod
    def scored(self, request: FillRequest, mask: int, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates up to a mask, with the log-probabilities by which they are compared."""

    def allowed(self, request: FillRequest, before: str, n_pieces: int, *, later: bool, last: bool) -> Tensor:
        """[V]: the pieces that a word or span may begin or continue with."""
        if request.whole_words:
            pieces = self.texts.allowed(before, later=later, last=last)
        else:
            pieces = self.texts.readable if later else self.texts.begins_span(before)
        return torch.from_numpy(over_rows(pieces, n_pieces))

    def targets(self, request: FillRequest, before: Candidate, text: str) -> list[Candidate]:
        """A candidate with each given answer."""
        return [
            before.with_word(target, target_pieces(self.texts, text, target), before.log_prob)
            for target in request.targets
        ]

    def candidates(self, before: Candidate, spans: Sequence[Span], text: str, *, whole: bool) -> list[Candidate]:
        """A candidate with each span that reads as the tokenizer would write it."""
        named = []
        for pieces, log_prob in spans:
            word = self.texts.text_of(pieces)
            if whole and not any(character.isalnum() for character in word):
                continue
            if word and self.texts.is_as_written(text, pieces):
                named.append(before.with_word(word, pieces, before.log_prob + log_prob))
        return named


class ContinuingFiller(WritingFiller):
    """What follows the text before a mask, compared by the whole text: a causal model, or a denoising decoder."""

    def __init__(self, texts: PieceTexts, scorer: Scorer, proposing: RowLogProbs | DecoderSteps) -> None:
        super().__init__(texts, scorer, proposing)
        self.scorer = scorer

    @abstractmethod
    def following(self, request: FillRequest, rows: Sequence[Sequence[int]]) -> Tensor:
        """[R, V]: log-probabilities behind the pieces of some texts."""

    def whole_texts(self, request: FillRequest, documents: Sequence[Document]) -> list[float]:
        """The log-probabilities of texts."""
        return [each.totals.word_log_prob for each in self.scorer(documents)]

    def grown(self, request: FillRequest, mask: int, before: Candidate) -> list[Candidate]:
        text = request.text.before(mask, before.words)
        if request.targets:
            return self.targets(request, before, text)
        stripped = text.rstrip() if self.texts.blanks_matter else text
        read: list[int] = self.texts.tokenizer.encode(make_document(stripped)).ids.tolist()
        n = max(PROPOSALS, 2 * request.n_candidates)
        return self.candidates(before, self._spans(request, text, read, n), text, whole=request.whole_words)[:n]

    def scored(self, request: FillRequest, mask: int, candidates: Sequence[Candidate]) -> list[Candidate]:
        documents = [make_document(request.text.before(mask + 1, each.words)) for each in candidates]
        log_probs = np.array(self.whole_texts(request, documents))
        among = log_probs - np.logaddexp.reduce(log_probs) if len(log_probs) else log_probs
        pairs = zip(candidates, among.tolist(), strict=True)
        return [dataclasses.replace(each, log_prob=log_prob) for each, log_prob in pairs]

    def _spans(self, request: FillRequest, text: str, read: list[int], n: int) -> list[Span]:
        """The `n` likeliest words or spans of each length behind some pieces, by these alone; the likeliest first."""
        spans: list[Span] = []
        open_spans: list[Span] = [((), 0.0)]
        for place in range(request.max_pieces):
            log_probs = self.following(request, [[*read, *pieces] for pieces, _ in open_spans])
            so_far = torch.tensor([log_prob for _, log_prob in open_spans], dtype=log_probs.dtype)[:, None]
            for last, width in ((True, n), (False, self.beam)):
                allowed = self.allowed(request, text, log_probs.shape[1], later=place > 0, last=last)
                likeliest = _likeliest(log_probs.masked_fill(~allowed, -math.inf) + so_far, open_spans, width)
                if last:
                    spans += likeliest
                else:
                    longer = likeliest
            open_spans = longer
            if not open_spans:
                break
        return sorted(spans, key=lambda span: -span[1])


class CausalFiller(ContinuingFiller):
    """A causal model."""

    description = "left to right, by the whole text with each candidate in it"

    def __init__(self, texts: PieceTexts, scorer: Scorer, log_probs: RowLogProbs, reading: TextReading) -> None:
        super().__init__(texts, scorer, log_probs)
        self.log_probs = log_probs
        self.reading = reading

    def following(self, request: FillRequest, rows: Sequence[Sequence[int]]) -> Tensor:
        lead = [] if self.reading.lead is None else [self.reading.lead]
        if not lead and not rows[0]:
            raise InputError(
                "There is nothing before the first mask, and the model has no piece to start a text with. Write "
                "something before it."
            )
        room = None if self.reading.room is None else self.reading.room - len(lead)
        read = [np.array([*lead, *(row if room is None else row[-room:])], dtype=np.int64) for row in rows]
        return torch.cat(self.log_probs([(ids, len(ids) - 1, 1) for ids in read]))


class DenoisingFiller(ContinuingFiller):
    """A decoder that writes a whole text, given the text with its masks."""

    description = "left to right given the text with its masks, by the whole text with each candidate in it"

    def __init__(self, texts: PieceTexts, scorer: Scorer, bundle: Bundle) -> None:
        self.steps = DecoderSteps(bundle)
        super().__init__(texts, scorer, self.steps)
        self.own_mask = texts.tokenizer.framing.specials["mask"]

    def following(self, request: FillRequest, rows: Sequence[Sequence[int]]) -> Tensor:
        tokenizer = self.texts.tokenizer
        frame = tokenizer.frame(np.zeros(0, np.int64))
        lead = [self.steps.bundle.first_written, *frame.ids[: frame.offset].tolist()]
        return self.steps(tokenizer.frame(self._source(request.text).ids).ids, [[*lead, *row] for row in rows])

    def whole_texts(self, request: FillRequest, documents: Sequence[Document]) -> list[float]:
        encoded = self.texts.tokenizer.encode_many(documents)
        sources = [self._source(request.text)] * len(encoded)
        return [math.fsum(each.log_probs) for each in self.scorer.pieces(encoded, sources=sources)]

    def _source(self, text: MaskedText) -> Pieces:
        return self.texts.tokenizer.encode_with_masks(text.text)


class SentinelFiller(WritingFiller):
    """A decoder that writes what sentinels stand for."""

    description = "what the decoder writes for the sentinel at each mask"

    def __init__(self, texts: PieceTexts, bundle: Bundle, sentinels: Sequence[int]) -> None:
        self.steps = DecoderSteps(bundle)
        super().__init__(texts, self.steps)
        self.sentinels = sentinels

    def grown(self, request: FillRequest, mask: int, before: Candidate) -> list[Candidate]:
        text = request.text.before(mask, before.words)
        read = [self.steps.bundle.first_written]
        for sentinel, pieces in zip(self.sentinels, [*before.pieces, ()], strict=False):
            read += [sentinel, *pieces]
        source = self._source(request.text)
        if request.targets:
            each_target = self.targets(request, before, text)
            return [
                dataclasses.replace(each, log_prob=each.log_prob + self._log_prob(source, read, each.pieces[-1], mask))
                for each in each_target
            ]
        spans = self._spans(request, text, source, read, mask)
        return self.candidates(before, spans, text, whole=request.whole_words)

    def scored(self, request: FillRequest, mask: int, candidates: Sequence[Candidate]) -> list[Candidate]:
        return list(candidates)

    def _spans(self, request: FillRequest, text: str, source: Ints, read: list[int], mask: int) -> list[Span]:
        spans: list[Span] = []
        open_spans: list[Span] = [((), 0.0)]
        for place in range(request.max_pieces + 1):
            log_probs = self.steps(source, [[*read, *pieces] for pieces, _ in open_spans])
            if place:
                ends = log_probs[:, self.sentinels[mask + 1]].tolist()
                spans += [(pieces, log_prob + end) for (pieces, log_prob), end in zip(open_spans, ends, strict=True)]
            if place == request.max_pieces:
                break
            so_far = torch.tensor([log_prob for _, log_prob in open_spans], dtype=log_probs.dtype)[:, None]
            allowed = self.allowed(request, text, log_probs.shape[1], later=place > 0, last=False)
            if request.whole_words:
                allowed = allowed | self.allowed(request, text, log_probs.shape[1], later=place > 0, last=True)
            width = max(self.beam, 2 * request.n_candidates)
            open_spans = _likeliest(log_probs.masked_fill(~allowed, -math.inf) + so_far, open_spans, width)
            if not open_spans:
                break
        return spans

    def _log_prob(self, source: Ints, read: Sequence[int], pieces: Sequence[int], mask: int) -> float:
        """Of given pieces and the sentinel that ends them."""
        rows = [[*read, *pieces[:place]] for place in range(len(pieces) + 1)]
        log_probs = self.steps(source, rows)
        following = [*pieces, self.sentinels[mask + 1]]
        return math.fsum(float(row[piece]) for row, piece in zip(log_probs, following, strict=True))

    def _source(self, text: MaskedText) -> Ints:
        """The text in pieces, with a sentinel for each mask."""
        tokenizer = self.texts.tokenizer
        if len(text.masks) + 1 > len(self.sentinels):
            raise InputError(
                f"The text has {len(text.masks)} masks, and the model's tokenizer has {len(self.sentinels)} sentinels, "
                "one of which ends the last span. Fill fewer masks at once."
            )
        ids: list[int] = []
        for number, part in enumerate(text.parts):
            ids += [self.sentinels[number - 1]] if number else []
            ids += tokenizer.encode(make_document(part.rstrip() if self.texts.blanks_matter else part)).ids.tolist()
        framed = tokenizer.frame(np.array(ids, dtype=np.int64)).ids
        room = self.steps.bundle.config.window
        if room is not None and len(framed) > room:
            raise InputError(
                f"The text makes {len(framed):,} pieces, specials included; the model reads {room:,} at once. Shorten "
                "it."
            )
        return framed


def _likeliest(log_probs: Tensor, spans: Sequence[Span], n: int) -> list[Span]:
    """The likeliest spans with one more piece, [R, V] over rows and pieces."""
    best_ones = log_probs.flatten().topk(min(n, log_probs.numel()))
    return [
        ((*spans[place // log_probs.shape[1]][0], place % log_probs.shape[1]), log_prob)
        for log_prob, place in zip(best_ones.values.tolist(), best_ones.indices.tolist(), strict=True)
        if log_prob > -math.inf
    ]
