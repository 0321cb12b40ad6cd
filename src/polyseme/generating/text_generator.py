"""Texts to texts: prompts in, what follows them out, or sources in, and what a model makes of them out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyseme.bundle import Bundle
from polyseme.cost import Tally, forward_flops
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.prompts import Prompt, Prompts
from polyseme.generating.sequences import Ending, GeneratedText, n_final
from polyseme.text.words import split_words

PREPARED_FROM = 64
"""Steps from which on it pays to lay weights out for them first."""
ROWS = {"cpu": 16, "cuda": 64}
"""How many texts are written side by side, unless set otherwise."""

OnText = Callable[[int, int, str], None]
"""Called with new text as it is written: the prompt's place, the number of the text, and what has been added to it."""


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What follows a prompt, by a model."""

    text: str
    """What is added, without the prompt."""
    n_pieces: int
    """Pieces written, those of a stop string included."""
    log_probability: float
    score: float
    """In a beam, the log-probability by length; elsewhere the log-probability."""
    ending: Ending


class TextGenerator:
    """Prompts to continuations; settings are checked when it is made, and it keeps a tally."""

    def __init__(
        self, bundle: Bundle | None, model: LanguageModel, decoding: Decoding, *, batch_size: int | None = None
    ) -> None:
        if model.prompts is None:
            raise ModelError("The model has no tokenizer, so it cannot read a prompt.")
        self.config = None if bundle is None else bundle.config
        """Of what reads; None: there is no network."""
        self.decoder = None if bundle is None or bundle.decoder is None else bundle.decoder.config
        self.prompts: Prompts = model.prompts
        self.model = model
        self.decoding = decoding
        self.batch_size = ROWS.get(model.device.type, 16) if batch_size is None else batch_size
        self.tally = Tally()
        self._check()

    def __call__(
        self, prompts: Sequence[str], *, first: int = 0, names: Sequence[str] = (), on_text: OnText | None = None
    ) -> list[list[Continuation]]:
        """The `n` continuations of each prompt.

        `first` is the number of the first prompt among all there are, by which random numbers go; `names` is how
        messages call the prompts.
        """
        encoded = [
            self._read(prompt, names[place] if names else f"Prompt {first + place}")
            for place, prompt in enumerate(prompts)
        ]
        at_once = max(self.batch_size // self.decoding.rows, 1)
        if self.decoding.max_new * -(-len(prompts) // at_once) >= PREPARED_FROM:
            self.model.prepare()
        by_length = sorted(range(len(encoded)), key=lambda place: -encoded[place].n_read)
        continuations: list[list[Continuation]] = [[] for _ in encoded]
        for start in range(0, len(by_length), at_once):
            places = by_length[start : start + at_once]
            for place, texts in zip(places, self._batch(encoded, places, first, on_text), strict=True):
                continuations[place] = texts
        return continuations

    def _batch(
        self, encoded: Sequence[Prompt], places: Sequence[int], first: int, on_text: OnText | None
    ) -> list[list[Continuation]]:
        def text_of(number: int, pieces: Sequence[int]) -> str:
            return self.prompts.added(encoded[places[number]], pieces)

        on_piece = None if on_text is None else _TextReporter(on_text, places, text_of, self.decoding.stop)
        written = write_on(
            self.model,
            [encoded[place].pieces for place in places],
            self.decoding,
            sources=None if self.model.source is None else [encoded[place].source or [] for place in places],
            numbers=[first + place for place in places],
            text_of=text_of,
            on_piece=on_piece,
        )
        batch = [
            [_continuation(each, text_of(number, each.pieces)) for each in texts]
            for number, texts in enumerate(written)
        ]
        for number, place in enumerate(places):
            self._count(encoded[place], batch[number])
            if on_piece is not None and self.decoding.beam > 1:
                for which, each in enumerate(written[number]):
                    on_piece(number, which, each)
        if any(each.ending == "forbidden" for texts in written for each in texts):
            warnings.warn(
                "Some texts ended because every further piece would have repeated an n-gram. Raise 'no_repeat_ngram'.",
                PolysemeWarning,
                stacklevel=4,
            )
        return batch

    def _read(self, prompt: str, name: str) -> Prompt:
        """A prompt in pieces, if there is room for it and for what is to follow."""
        read = self.prompts.read(prompt, name)
        room, decoding, n_pieces = self.model.room, self.decoding, len(read.pieces)
        if room is not None and decoding.stride is None and n_pieces + decoding.max_new > room + 1:
            raise InputError(
                f"{name} has {n_pieces:,} pieces, and with {decoding.max_new:,} more that is over the {room:,} that "
                "the model can read at once. Shorten it, lower max_new, or give a stride, by which what is read moves "
                "on."
            )
        return read

    def _check(self) -> None:
        if self.batch_size < 1:
            raise OptionError(f"The number of rows in a batch must be at least 1. Got {self.batch_size} instead.")
        room, stride = self.model.room, self.decoding.stride
        if self.model.source is not None:
            self._check_source()
        if stride is not None and room is None:
            raise OptionError("The model reads texts of any length, so there is no use for a stride. Leave it out.")
        if stride is not None and room is not None and stride >= room:
            raise OptionError(
                f"A stride of {stride:,} leaves nothing of the {room:,} pieces that the model reads at once. Give a "
                "smaller one."
            )
        if self.decoding.beam > 1 and self.model.end is None and not self.decoding.stop:
            warnings.warn(
                f"The model has no piece that ends a text, so no text of the beam ends before {self.decoding.max_new} "
                "pieces; a length penalty and early stopping change nothing.",
                PolysemeWarning,
                stacklevel=4,
            )
        if self.decoding.min_new and self.model.end is None:
            raise OptionError("The model has no piece that ends a text, so 'min_new' means nothing. Leave it out.")

    def _check_source(self) -> None:
        room, decoding = self.model.room, self.decoding
        if decoding.stride is not None:
            raise OptionError("The model writes a text of its own from each source, and has no use for a stride.")
        if room is not None and decoding.max_new > room + 1:
            raise OptionError(
                f"The model writes at most {room + 1:,} pieces from a source, and 'max_new' asks for "
                f"{decoding.max_new:,}. Lower it."
            )

    def _count(self, prompt: Prompt, continuations: Sequence[Continuation]) -> None:
        lengths = [len(prompt.pieces) + each.n_pieces for each in continuations]
        n_new = sum(each.n_pieces for each in continuations)
        self.tally.documents += len(continuations)
        self.tally.words += sum(len(split_words(each.text)) for each in continuations)
        self.tally.pieces += prompt.n_read + n_new
        if self.config is None:
            return
        writer = self.config if self.decoder is None else self.decoder
        if prompt.source is not None:
            self.tally.flops += forward_flops(self.config, [len(prompt.source)])
        to_vocabulary = 2.0 * self.model.n_pieces * writer.widths[-1] * n_new
        self.tally.flops += forward_flops(writer, lengths) + to_vocabulary


class _TextReporter:
    """Reports text as soon as it is sure to stay."""

    def __init__(
        self, on_text: OnText, places: Sequence[int], text_of: Callable[[int, Sequence[int]], str], stop: Sequence[str]
    ) -> None:
        self.on_text = on_text
        self.places = places
        self.text_of = text_of
        self.stop = stop
        self.n_reported: dict[tuple[int, int], int] = {}

    def __call__(self, number: int, which: int, written: GeneratedText) -> None:
        text = self.text_of(number, written.pieces) if written.text is None else written.text
        until = n_final(text, self.stop) if written.ending is None else len(text)
        before = self.n_reported.get((number, which), 0)
        if until > before:
            self.n_reported[number, which] = until
            self.on_text(self.places[number], which, text[before:until])


def _continuation(written: GeneratedText, text: str) -> Continuation:
    return Continuation(
        text=text if written.text is None else written.text,
        n_pieces=len(written.pieces),
        log_probability=written.log_probability,
        score=written.score,
        ending=written.ending or "length",
    )
