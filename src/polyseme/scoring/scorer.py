"""Scoring: how likely a model finds texts, piece by piece and word by word.

From which side, and with what before them, pieces are predicted is a `ScoringMethod` (`target_rows`), which
`choose_scorer` chooses. Documents of equal pieces are scored once, so that they have the same score to the last bit, in
whatever batches they are.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.cost import Cost, Tally
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.scoring.causal import CausalScoring
from polyseme.scoring.pseudo_likelihood import PseudoLikelihood, with_blanks
from polyseme.scoring.seq2seq import SourceScoring
from polyseme.scoring.target_rows import Ints, ScoringMethod, ScoringRequest
from polyseme.scoring.text_scores import Floats, ScoredDocument, pieces_of_word
from polyseme.scoring.word_bounds import WordEnds, bounds_of, corrections
from polyseme.text.alignment import count_unknown, spans_in_original
from polyseme.text.marked_word import SpanDocument
from polyseme.types import Document, OnBatch, Pieces, Tokenizer


class PieceScores(NamedTuple):
    """What a model says of one document's pieces."""

    log_probs: Floats
    """[n]; NaN where there is none."""
    best: NDArray[np.bool_]
    """[n]: whether no other piece was as likely, where requested."""
    bounds: Floats = np.zeros(0)
    """[n]: the log-probability that a word begins, where requested; otherwise empty."""


class Scorer:
    """Documents in, documents with scores out, in their order; `choose_scorer.scorer_of` builds one from a bundle."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        method: ScoringMethod,
        device: torch.device,
        *,
        word_ends: WordEnds | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.method = method
        self.device = device
        self.word_ends = word_ends
        """Where words end, if their probabilities are to be proper ones."""
        self.tally = Tally()

    @property
    def description(self) -> str:
        corrected = ", words corrected for where they end" if self.word_ends is not None else ""
        return self.method.description + corrected

    @property
    def from_both_sides(self) -> bool:
        """Whether a piece is predicted from later pieces, too."""
        return isinstance(self.method, PseudoLikelihood)

    @property
    def needs_source(self) -> bool:
        """Whether each text is scored given a source."""
        return isinstance(self.method, SourceScoring)

    def cost(self, seconds: float) -> Cost:
        """What everything so far has taken."""
        return self.tally.cost(seconds, self.device)

    def __call__(
        self,
        documents: Sequence[Document],
        on_batch: OnBatch | None = None,
        *,
        sources: Sequence[Document] | None = None,
    ) -> list[ScoredDocument]:
        """Documents with their scores; `sources` are what each is scored given, where the model reads a source."""
        encoded = self.tokenizer.encode_many(documents)
        if self.from_both_sides:
            encoded = [with_blanks(each, self.tokenizer) for each in encoded]
        encoded_sources = None if sources is None else self.tokenizer.encode_many(sources)
        if isinstance(self.method, SourceScoring) and encoded_sources is not None:
            self._check(ScoringRequest(encoded, encoded_sources))
            names = [f"text {document.id or number}" for number, document in enumerate(documents)]
            self.method.check(encoded, encoded_sources, names)
        runs = _runs(documents, encoded)
        if self.word_ends is None:
            piece_scores = self.pieces(encoded, sources=encoded_sources, only=runs, on_batch=on_batch)
        else:
            piece_scores = self._with_bounds(documents, encoded, encoded_sources, runs, on_batch)
        self.tally.words += sum(len(document.words) for document in documents)
        self.tally.vanished += sum(each.n_unknown for each in encoded)
        self.tally.wordless += sum(not len(each.words) for each in encoded)
        return [
            _to_scored(
                document,
                each,
                pieces=self.tokenizer.pieces(each.ids.tolist()),
                piece_log_probs=_within(scores.log_probs[: len(each)], None if runs is None else runs[number]),
                word_corrections=corrections(each, scores.bounds) if self.word_ends is not None else None,
            )
            for number, (document, each, scores) in enumerate(zip(documents, encoded, piece_scores, strict=True))
        ]

    def _with_bounds(
        self,
        documents: Sequence[Document],
        encoded: Sequence[Pieces],
        sources: Sequence[Pieces] | None,
        runs: Sequence[tuple[int, int]] | None,
        on_batch: OnBatch | None,
    ) -> list[PieceScores]:
        """Scores of documents, each read with one piece more, so that the end of its last word is predicted, too.

        Of a text that is longer than the model reads at once, the last window therefore begins one piece later.
        """
        if self.word_ends is None:
            raise OptionError("Words are not corrected here.")
        longer = [_with_end(each, self.tokenizer) for each in encoded]
        kinds = [
            self.word_ends.kinds(document, each)[: len(more)]
            for document, each, more in zip(documents, encoded, longer, strict=True)
        ]
        only = None if runs is None else [(start, end + (end > start)) for start, end in runs]
        return self.pieces(longer, sources=sources, only=only, on_batch=on_batch, kinds=kinds)

    def pieces(
        self,
        encoded: Sequence[Pieces],
        *,
        sources: Sequence[Pieces] | None = None,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
        kinds: Sequence[Ints] | None = None,
    ) -> list[PieceScores]:
        """Scores of documents that are in pieces already; see `ScoringRequest`. `kinds` are those of word bounds."""
        self._check(ScoringRequest(encoded, sources, only, best))
        numbers: dict[tuple[bytes, bytes, bytes, tuple[int, int] | None], int] = {}
        requested_runs = [None] * len(encoded) if only is None else list(only)
        source_keys = [b""] * len(encoded) if sources is None else [each.ids.tobytes() for each in sources]
        kind_keys = [b""] * len(encoded) if kinds is None else [each.tobytes() for each in kinds]
        which = [
            numbers.setdefault((self.method.key(each), source, kind, run), len(numbers))
            for each, source, kind, run in zip(encoded, source_keys, kind_keys, requested_runs, strict=True)
        ]
        chosen: list[int] = [0] * len(numbers)
        for number, distinct in enumerate(which):
            chosen[distinct] = number
        distinct_texts = [encoded[number] for number in chosen]
        runs = None if only is None else [only[number] for number in chosen]
        theirs = None if sources is None else [sources[number] for number in chosen]
        bounds = None
        if kinds is not None and self.word_ends is not None:
            bounds = bounds_of([kinds[number] for number in chosen], self.word_ends.sets)
        predicted, usage = self.method(ScoringRequest(distinct_texts, theirs, runs, best, on_batch, bounds))
        ends = np.cumsum([0, *map(len, distinct_texts)]).tolist()
        piece_scores = [
            PieceScores(predicted.log_probs[start:end], predicted.best[start:end], predicted.bounds[start:end])
            for start, end in itertools.pairwise(ends)
        ]
        self.tally.add(Tally(documents=len(encoded), pieces=usage.pieces, flops=usage.flops, sums=dict(usage.sums)))
        self.tally.unscored += 0 if self.method.unscored_first is None else sum(1 for each in encoded if len(each))
        self.tally.unknown += sum(self.method.unknown(each) for each in encoded)
        self.tally.unknown += count_unknown(encoded, self.tokenizer, only)
        return [piece_scores[distinct] for distinct in which]

    def _check(self, request: ScoringRequest) -> None:
        encoded, sources = request.encoded, request.sources
        cached = isinstance(self.method, CausalScoring) and self.method.neural_cache is not None
        if (request.only is not None or request.best) and cached:
            raise OptionError("With a neural cache whole texts are scored, by their probabilities alone.")
        if self.needs_source and sources is None:
            raise OptionError(
                "The model reads a source and says how likely a text is given that. Give a source for each text."
            )
        if sources is not None and not self.needs_source:
            raise OptionError("The model reads no source; it scores texts by themselves. Leave the sources out.")
        if sources is not None and len(sources) != len(encoded):
            raise InputError(f"There are {len(encoded):,} texts and {len(sources):,} sources. Each text has its own.")

    def notes(self) -> list[str]:
        """What to report with the scores so far."""
        return [*self.method.notes(self.tally), *self.cautions()]

    def cautions(self) -> list[str]:
        """What must be known of the scores so far, so as not to take them for what they are not."""
        cautions = []
        if self.tally.unscored and self.method.unscored_first is not None:
            cautions.append(self.method.unscored_first)
        if self.tally.unknown:
            share = (
                f" ({self.tally.unknown / self.tally.words:.1%} of {self.tally.words:,})" if self.tally.words else ""
            )
            cautions.append(
                f"{self.tally.unknown:,} word{'' if self.tally.unknown == 1 else 's'} that the model's output "
                f"vocabulary lacks were scored as the unknown word{share}, which makes perplexities look better than "
                "they are."
            )
        if self.tally.vanished:
            cautions.append(
                f"The model's tokenizer makes nothing of {self.tally.vanished:,} "
                f"word{'' if self.tally.vanished == 1 else 's'} (control or zero-width characters); each was given "
                "the unknown piece, and that was scored."
            )
        return cautions

    def warn(self) -> None:
        """Warn of all cautions, once."""
        for note in self.cautions():
            warnings.warn(note, PolysemeWarning, stacklevel=3)


def _runs(documents: Sequence[Document], encoded: Sequence[Pieces]) -> list[tuple[int, int]] | None:
    """The pieces of each document that are scored, if some have a span of words that is."""
    if not any(isinstance(document, SpanDocument) for document in documents):
        return None
    return [
        (pieces_of_word(each, document.first)[0], pieces_of_word(each, document.last)[1])
        if isinstance(document, SpanDocument)
        else (0, len(each))
        for document, each in zip(documents, encoded, strict=True)
    ]


def _to_scored(document: Document, encoded: Pieces, **scores: Any) -> ScoredDocument:
    """A document with its scores, in its original text where it has one."""
    shown = document.in_original()
    return ScoredDocument(
        text=shown.text,
        words=shown.words,
        id=shown.id,
        fields=shown.fields,
        pretokenized=shown.pretokenized,
        ids=encoded.ids,
        spans=spans_in_original(document, np.clip(encoded.spans, 0, len(document.text))),
        word_pieces=encoded.words,
        span=document.span if isinstance(document, SpanDocument) else None,
        **scores,
    )


def _within(log_probs: Floats, run: tuple[int, int] | None) -> Floats:
    """Without scores outside a run."""
    if run is None:
        return log_probs
    inside = np.full(len(log_probs), np.nan)
    inside[run[0] : run[1]] = log_probs[run[0] : run[1]]
    return inside


def _with_end(pieces: Pieces, tokenizer: Tokenizer) -> Pieces:
    """A document with a piece behind its last one: the end of texts, or where there is none any known piece."""
    if not len(pieces) or pieces.ids.ndim > 1:
        return pieces
    end = tokenizer.specials.get("end", int(pieces.ids[0]))
    last = pieces.spans[-1, 1]
    return Pieces(
        np.append(pieces.ids, end), np.append(pieces.spans, [[last, last]], axis=0), pieces.words, pieces.n_unknown
    )
