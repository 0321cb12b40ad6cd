"""Scoring: how likely a model finds texts, piece by piece and word by word.

What can be scored is asked of a bundle by its outputs: from left to right where there is a `causal` one, from both
sides where there is a `masked` one. Documents of equal pieces are scored once, so that they have the same score to the
last bit, however they stand in batches.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import forward_flops
from polyseme.decode.neural_cache import NeuralCache
from polyseme.decode.score_causal import LeftToRight
from polyseme.decode.score_masked import Hide, Pseudo, check_hide
from polyseme.decode.score_rows import Guesser, OnBatch
from polyseme.decode.score_texts import Floats, Scored
from polyseme.encoders.frozen import Frozen, Precision, freeze
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.outputs.base import Output
from polyseme.types import Document, Pieces, Tokenizer


class PieceScores(NamedTuple):
    """What a model says of one document's pieces."""

    log_probs: Floats
    """[n]; NaN where there is none, or none was asked for."""
    best: NDArray[np.bool_]
    """[n]: whether no other piece was as likely, where that was asked for."""


@dataclass
class Tally:
    """What went through so far."""

    documents: int = 0
    words: int = 0
    pieces: int = 0
    flops: float = 0.0
    vanished: int = 0
    """Words that the tokenizer made nothing of; they were given the unknown piece."""
    wordless: int = 0
    """Documents without any word."""
    unscored: int = 0
    """Pieces without a score, since nothing stands before them."""


class Scorer:
    """Documents in, documents with scores out, in their order."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        hide: Hide = "word",
        stride: int | None = None,
        neural_cache: NeuralCache | None = None,
        batch_pieces: int | None = None,
        precision: Precision = "own",
        frozen: Frozen | None = None,
    ) -> None:
        if bundle.tokenizer is None:
            raise ModelError("The model has no tokenizer, so no text can be scored with it.")
        if batch_pieces is not None and batch_pieces < 1:
            raise OptionError(f"A batch must have room for at least 1 piece. Got {batch_pieces} instead.")
        check_hide(hide)
        self.neural_cache = neural_cache
        output, name = _output(bundle)
        self.tokenizer: Tokenizer = bundle.tokenizer
        self.config = bundle.config
        self.device = bundle.device
        guesser = Guesser(
            freeze(bundle.encoder, precision) if frozen is None else frozen,
            output,
            device=self.device,
            batch_pieces=batch_pieces,
            threads=precision != "int8",
        )
        self._output_weights = sum(parameter.numel() for parameter in output.parameters())
        self.way: LeftToRight | Pseudo
        if name == "causal":
            if hide != "word":
                raise OptionError(
                    f"Hiding pieces ({hide!r}) is for masked models; this one guesses from left to right. Leave the "
                    "option out."
                )
            self.way = LeftToRight(bundle, self.tokenizer, guesser, stride=stride, neural_cache=neural_cache)
        else:
            if stride is not None:
                raise OptionError("A stride is for causal models; this one guesses from both sides. Leave it out.")
            if neural_cache is not None:
                raise OptionError(
                    "A neural cache recalls what came before, and is for causal models; this one guesses from both "
                    "sides. Leave it out."
                )
            self.way = Pseudo(bundle, self.tokenizer, guesser, hide=hide)
        self.tally = Tally()

    @property
    def how(self) -> str:
        """In words, how texts are scored."""
        return self.way.how

    @property
    def from_both_sides(self) -> bool:
        """Whether a piece is guessed from what stands after it, too."""
        return isinstance(self.way, Pseudo)

    def __call__(self, documents: Sequence[Document], on_batch: OnBatch | None = None) -> list[Scored]:
        """Documents with their scores."""
        encoded = self.tokenizer.encode_many(documents)
        found = self.pieces(encoded, on_batch=on_batch)
        self.tally.words += sum(len(document.words) for document in documents)
        self.tally.vanished += sum(each.n_unknown for each in encoded)
        self.tally.wordless += sum(not len(each.words) for each in encoded)
        return [
            Scored(
                text=document.text,
                words=document.words,
                id=document.id,
                fields=document.fields,
                given=document.given,
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
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> list[PieceScores]:
        """Scores of documents that are in pieces already; `only` asks for a run `[start, end)` of each one's pieces."""
        if (only is not None or best) and self.neural_cache is not None:
            raise OptionError("With a neural cache whole texts are scored, by their probabilities alone.")
        numbers: dict[tuple[bytes, tuple[int, int] | None], int] = {}
        asked = [None] * len(encoded) if only is None else list(only)
        which = [
            numbers.setdefault((self.way.key(each), run), len(numbers))
            for each, run in zip(encoded, asked, strict=True)
        ]
        chosen: list[int] = [0] * len(numbers)
        for number, distinct in enumerate(which):
            chosen[distinct] = number
        some = [encoded[number] for number in chosen]
        runs = None if only is None else [only[number] for number in chosen]
        guessed, lengths = self.way(some, only=runs, best=best, on_batch=on_batch)
        ends = np.cumsum([0, *map(len, some)]).tolist()
        found = [
            PieceScores(guessed.log_probs[start:end], guessed.best[start:end])
            for start, end in itertools.pairwise(ends)
        ]
        self.tally.documents += len(encoded)
        self.tally.pieces += sum(lengths)
        self.tally.flops += forward_flops(self.config, lengths)
        if isinstance(self.way, LeftToRight):
            self.tally.flops += self.way.cache_flops
            self.way.cache_flops = 0.0
        self.tally.flops += 2.0 * self._output_weights * float(np.count_nonzero(~np.isnan(guessed.log_probs)))
        self.tally.unscored += 0 if self.way.first_is_scored else sum(1 for each in encoded if len(each))
        return [found[distinct] for distinct in which]

    def notes(self) -> list[str]:
        """What is to be said of the scores so far, besides them."""
        said = []
        if self.tally.unscored:
            said.append(
                "The model's tokenizer has no piece that starts or ends texts, so the first piece of each text has "
                "no score and is left out of all sums."
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
        for note in self.notes():
            warnings.warn(note, PolysemeWarning, stacklevel=3)


def can_score(bundle: Bundle) -> bool:
    """Whether a bundle has what scoring takes."""
    return _fitting(bundle) is not None


def _fitting(bundle: Bundle) -> str | None:
    """The name of the output that guesses pieces."""
    if "causal" in bundle.outputs and bundle.config.direction == "causal":
        return "causal"
    has_mask = bundle.tokenizer is not None and "mask" in bundle.tokenizer.specials
    return "masked" if "masked" in bundle.outputs and has_mask else None


def _output(bundle: Bundle) -> tuple[Output, str]:
    """The output that guesses pieces, and its name, which says from which side."""
    name = _fitting(bundle)
    if name is not None:
        return cast(Output, bundle.outputs[name]), name
    has = ", ".join(bundle.outputs) or "none"
    raise ModelError(
        "The model cannot score texts: it has neither a 'causal' output over an encoder that reads from left to right, "
        f"nor a 'masked' output and a mask piece (it has: {has}; direction: {bundle.config.direction}). Take a "
        "checkpoint that was saved with one, such as a language model of the GPT or BERT line."
    )
