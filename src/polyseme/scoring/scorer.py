"""Scoring: how likely a model finds texts, piece by piece and word by word.

From which side, and with what before them, pieces are predicted is a `ScoringMethod` (`target_rows`), which
`choose_scorer` chooses; `StepwiseScoring`, for whatever predicts the next piece (`NextPiece`), stands here. Documents
of equal pieces are scored once, so that they have the same score to the last bit, however they stand in batches.
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
from polyseme.generating.next_piece import LanguageModel
from polyseme.scoring.causal import CausalScoring
from polyseme.scoring.pseudo_likelihood import PseudoLikelihood
from polyseme.scoring.seq2seq import SourceScoring
from polyseme.scoring.target_rows import ScoringMethod, TargetScores, Usage, flat
from polyseme.scoring.text_scores import Floats, Scored
from polyseme.text.alignment import count_unknown
from polyseme.types import Batch, Document, OnBatch, Pieces, Tokenizer


class PieceScores(NamedTuple):
    """What a model says of one document's pieces."""

    log_probs: Floats
    """[n]; NaN where there is none, or none was asked for."""
    best: NDArray[np.bool_]
    """[n]: whether no other piece was as likely, where that was asked for."""


class Scorer:
    """Documents in, documents with scores out, in their order. `score_bundle.scorer_of` makes one of a bundle."""

    def __init__(self, tokenizer: Tokenizer, method: ScoringMethod, device: torch.device) -> None:
        self.tokenizer = tokenizer
        self.method = method
        self.device = device
        self.tally = Tally()

    @classmethod
    def step_by_step(cls, model: LanguageModel, tokenizer: Tokenizer) -> Scorer:
        """One for whatever says what comes next: an n-gram, an interpolation."""
        return cls(tokenizer, StepwiseScoring(model, tokenizer), model.device)

    @property
    def how(self) -> str:
        """In words, how texts are scored."""
        return self.method.how

    @property
    def from_both_sides(self) -> bool:
        """Whether a piece is predicted from what stands after it, too."""
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
            self._check(encoded, encoded_sources, None, False)
            names = [f"text {document.id or number}" for number, document in enumerate(documents)]
            self.method.check(encoded, encoded_sources, names)
        found = self.pieces(encoded, sources=encoded_sources, on_batch=on_batch)
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
            for document, each, scores in zip(documents, encoded, found, strict=True)
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
        """Scores of documents that are in pieces already; `only` asks for a run `[start, end)` of each one's pieces."""
        self._check(encoded, sources, only, best)
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
        if isinstance(self.method, SourceScoring) and sources is not None:
            theirs = [sources[number] for number in chosen]
            predicted, took = self.method(distinct_texts, sources=theirs, only=runs, best=best, on_batch=on_batch)
        else:
            predicted, took = self.method(distinct_texts, only=runs, best=best, on_batch=on_batch)
        ends = np.cumsum([0, *map(len, distinct_texts)]).tolist()
        piece_scores = [
            PieceScores(predicted.log_probs[start:end], predicted.best[start:end])
            for start, end in itertools.pairwise(ends)
        ]
        self.tally.documents += len(encoded)
        self.tally.pieces += took.pieces
        self.tally.flops += took.flops
        self.tally.add(Tally(sums=dict(took.sums)))
        self.tally.unscored += 0 if self.method.unscored_first is None else sum(1 for each in encoded if len(each))
        self.tally.unknown += sum(self.method.unknown(each) for each in encoded)
        self.tally.unknown += count_unknown(encoded, self.tokenizer, only)
        return [piece_scores[distinct] for distinct in which]

    def _check(
        self,
        encoded: Sequence[Pieces],
        sources: Sequence[Pieces] | None,
        only: Sequence[tuple[int, int]] | None,
        best: bool,
    ) -> None:
        cached = isinstance(self.method, CausalScoring) and self.method.neural_cache is not None
        if (only is not None or best) and cached:
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
        """What is to be said of the scores so far, besides them."""
        return [*self.method.notes(self.tally), *self.cautions()]

    def cautions(self) -> list[str]:
        """What must be known of the scores so far, so as not to take them for what they are not."""
        said = []
        if self.tally.unscored and self.method.unscored_first is not None:
            said.append(self.method.unscored_first)
        if self.tally.unknown:
            said.append(
                f"{self.tally.unknown:,} word{'' if self.tally.unknown == 1 else 's'} that the model's softmax lacks "
                "were scored as the unknown word, which makes perplexities look better than they are."
            )
        if self.tally.vanished:
            said.append(
                f"The model's tokenizer makes nothing of {self.tally.vanished:,} "
                f"word{'' if self.tally.vanished == 1 else 's'} (control or zero-width characters); each was given "
                "the unknown piece, and that was scored."
            )
        return said

    def warn(self) -> None:
        """Say it, once."""
        for note in self.cautions():
            warnings.warn(note, PolysemeWarning, stacklevel=3)


# --- step by step -----------------------------------------------------------------------------------------------------


ROWS = 64
"""Texts that are read side by side."""


class StepwiseScoring(ScoringMethod):
    """Scores of any `NextPiece`."""

    how = "left to right, step by step"

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer) -> None:
        self.model = model
        lead = tokenizer.specials.get("start", tokenizer.specials.get("end"))
        self.before = model.before or (() if lead is None else (lead,))

    @property
    def unscored_first(self) -> str | None:
        return None if self.before else "The first piece of each text has no score: nothing stands before it."

    def __call__(
        self,
        encoded: Sequence[Pieces],
        *,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> tuple[TargetScores, Usage]:
        """Log-probabilities of all pieces of all documents, one after another, and what that took."""
        pieces, ends = flat([each.ids for each in encoded])
        found = TargetScores(np.full(len(pieces), np.nan), np.zeros(len(pieces), np.bool_))
        room = self.model.room
        for each in encoded:
            if room is not None and len(each) - 1 > room:
                raise InputError(f"A text has {len(each):,} pieces, and the model reads {room:,} at once.")
        least = 1 if self.before else 2
        order = sorted((n for n, each in enumerate(encoded) if len(each) >= least), key=lambda n: -len(encoded[n]))
        done, total = 0, sum(len(encoded[n]) for n in order)
        for start in range(0, len(order), ROWS):
            some = order[start : start + ROWS]
            self._read(some, pieces, ends, found)
            done += sum(len(encoded[n]) for n in some)
            if on_batch is not None:
                on_batch(done, total)
        return found, Usage(total, 0.0)

    @torch.inference_mode()
    def _read(self, texts: Sequence[int], pieces: np.ndarray, ends: np.ndarray, scores: TargetScores) -> None:
        """Texts side by side, the longest first; those that have ended drop out."""
        device = self.model.device
        starts, sizes = ends[texts], (ends[1:] - ends[:-1])[texts]
        first = 0 if self.before else 1
        rows = [self.before] * len(texts) if self.before else [(int(pieces[start]),) for start in starts]
        batch = Batch(torch.tensor(rows, device=device))
        log_probs, memory = self.model.next_piece.start(batch, len(self.before) + int(sizes.max()))
        for place in range(first, int(sizes.max())):
            going = int(np.count_nonzero(sizes > place))
            if going < len(log_probs):
                rows_left = torch.arange(going, device=device)
                log_probs, memory = log_probs[:going], memory.select(rows_left)
            targets = starts[:going] + place
            theirs = torch.from_numpy(pieces[targets]).to(device)
            own = log_probs.gather(1, theirs[:, None])
            scores.log_probs[targets] = own[:, 0].double().cpu().numpy()
            scores.best[targets] = ((log_probs >= own).sum(dim=1) == 1).cpu().numpy()
            going = int(np.count_nonzero(sizes > place + 1))
            if going:
                memory = memory.select(torch.arange(going, device=device))
                log_probs, memory = self.model.next_piece.step(Batch(theirs[:going, None]), memory)
