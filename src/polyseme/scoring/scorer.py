"""Scoring: how likely a model finds texts, piece by piece and word by word.

From which side, and with what before them, pieces are predicted is a `ScoringMethod` (`target_rows`), which
`choose_scorer` chooses. Documents of equal pieces are scored once, so that they have the same score to the last bit, in
whatever batches they are.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.cost import Cost, Tally
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.scoring.causal import CausalScoring
from polyseme.scoring.pseudo_likelihood import PseudoLikelihood
from polyseme.scoring.seq2seq import SourceScoring
from polyseme.scoring.target_rows import ScoringMethod, ScoringRequest
from polyseme.scoring.text_scores import Floats, Scored
from polyseme.text.alignment import count_unknown
from polyseme.types import Document, OnBatch, Pieces, Tokenizer


class PieceScores(NamedTuple):
    """What a model says of one document's pieces."""

    log_probs: Floats
    """[n]; NaN where there is none."""
    best: NDArray[np.bool_]
    """[n]: whether no other piece was as likely, where requested."""


class Scorer:
    """Documents in, documents with scores out, in their order; `choose_scorer.scorer_of` builds one from a bundle."""

    def __init__(self, tokenizer: Tokenizer, method: ScoringMethod, device: torch.device) -> None:
        self.tokenizer = tokenizer
        self.method = method
        self.device = device
        self.tally = Tally()

    @property
    def description(self) -> str:
        return self.method.description

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
    ) -> list[Scored]:
        """Documents with their scores; `sources` are what each is scored given, where the model reads a source."""
        encoded = self.tokenizer.encode_many(documents)
        encoded_sources = None if sources is None else self.tokenizer.encode_many(sources)
        if isinstance(self.method, SourceScoring) and encoded_sources is not None:
            self._check(ScoringRequest(encoded, encoded_sources))
            names = [f"text {document.id or number}" for number, document in enumerate(documents)]
            self.method.check(encoded, encoded_sources, names)
        piece_scores = self.pieces(encoded, sources=encoded_sources, on_batch=on_batch)
        self.tally.words += sum(len(document.words) for document in documents)
        self.tally.vanished += sum(each.n_unknown for each in encoded)
        self.tally.wordless += sum(not len(each.words) for each in encoded)
        return [
            Scored(
                text=document.text,
                words=document.words,
                id=document.id,
                fields=document.fields,
                pretokenized=document.pretokenized,
                pieces=self.tokenizer.pieces(each.ids.tolist()),
                ids=each.ids,
                spans=np.clip(each.spans, 0, len(document.text)),
                word_pieces=each.words,
                piece_log_probs=scores.log_probs,
            )
            for document, each, scores in zip(documents, encoded, piece_scores, strict=True)
        ]

    def pieces(
        self,
        encoded: Sequence[Pieces],
        *,
        sources: Sequence[Pieces] | None = None,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> list[PieceScores]:
        """Scores of documents that are in pieces already; see `ScoringRequest`."""
        self._check(ScoringRequest(encoded, sources, only, best))
        numbers: dict[tuple[bytes, bytes, tuple[int, int] | None], int] = {}
        requested_runs = [None] * len(encoded) if only is None else list(only)
        source_keys = [b""] * len(encoded) if sources is None else [each.ids.tobytes() for each in sources]
        which = [
            numbers.setdefault((self.method.key(each), source, run), len(numbers))
            for each, source, run in zip(encoded, source_keys, requested_runs, strict=True)
        ]
        chosen: list[int] = [0] * len(numbers)
        for number, distinct in enumerate(which):
            chosen[distinct] = number
        distinct_texts = [encoded[number] for number in chosen]
        runs = None if only is None else [only[number] for number in chosen]
        theirs = None if sources is None else [sources[number] for number in chosen]
        predicted, usage = self.method(ScoringRequest(distinct_texts, theirs, runs, best, on_batch))
        ends = np.cumsum([0, *map(len, distinct_texts)]).tolist()
        piece_scores = [
            PieceScores(predicted.log_probs[start:end], predicted.best[start:end])
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
            cautions.append(
                f"{self.tally.unknown:,} word{'' if self.tally.unknown == 1 else 's'} that the model's softmax lacks "
                "were scored as the unknown word, which makes perplexities look better than they are."
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
