"""A text with its scores, by piece, by word and by byte, and what they come to.

- A word's log-probability is the sum over its pieces. A piece that serves several words is shared evenly among them;
  one that belongs to no word (line ends in byte-level models) goes with the word after it, or the last one. So the
  words of a text come to the same as its pieces.
- A byte's is an even share of its piece's: what lies between bytes of one piece no model says. A piece that is only
  part of a character (byte-level models) is shared among the bytes of that character. Bytes in no piece (blanks, where
  the model does not read them) have 0. So the bytes come to the same, too, and models with different pieces can be
  compared over any stretch of the text.

Words may be corrected for where they end (`word_bounds`); then they come to as much more as it takes to end the text.

Log-probabilities are natural; surprisals are in bits. A missing score is NaN: that of the first piece where
nothing precedes it, and of the word that it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.plots.html_page import framed_page
from polyseme.plots.shaded_text import Mark, ShadedText, shaded_page
from polyseme.result_tables import Table, counted
from polyseme.scoring.target_rows import Ints
from polyseme.text.ragged_arrays import places_within
from polyseme.types import Document, Pieces

Floats = NDArray[np.float64]

SHOWN = 20
"""Texts that a notebook shows."""
MOST_BITS = 20.0
"""The surprisal of a word from which on shades grow no darker; the same on every page, so that pages compare."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What the scores of a text, or of many, come to. Pieces without a score are not counted."""

    log_prob: float = 0.0
    """Of all pieces together."""
    word_log_prob: float = 0.0
    """Of all words that have a score; the same, unless a first word has none, or words are corrected."""
    texts: int = 0
    words: int = 0
    pieces: int = 0
    bytes: int = 0
    unscored: int = 0
    """Pieces without a score."""

    @property
    def perplexity_per_word(self) -> float:
        return perplexity(self.word_log_prob, self.words)

    @property
    def perplexity_per_piece(self) -> float:
        return perplexity(self.log_prob, self.pieces)

    @property
    def perplexity_per_byte(self) -> float:
        return perplexity(self.log_prob, self.bytes)

    @property
    def bits_per_byte(self) -> float:
        return -self.log_prob / math.log(2) / self.bytes if self.bytes else math.nan

    def __add__(self, other: Totals) -> Totals:
        return Totals(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def to_json(self) -> dict[str, float | int | None]:
        """Every figure by its name; None where there is none."""
        numbers = {
            "log_prob": self.log_prob,
            "surprisal": surprisal(self.log_prob),
            "perplexity_per_word": self.perplexity_per_word,
            "perplexity_per_piece": self.perplexity_per_piece,
            "perplexity_per_byte": self.perplexity_per_byte,
            "bits_per_byte": self.bits_per_byte,
        }
        counts = {name: getattr(self, name) for name in ("texts", "words", "pieces", "bytes", "unscored")}
        return {name: number if math.isfinite(number) else None for name, number in numbers.items()} | counts


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoredDocument(Document):
    """A document with a log-probability for every piece and every word: what `score` returns."""

    pieces: list[str]
    ids: Ints
    """[n]"""
    spans: Ints
    """[n, 2]: where each piece is in the text."""
    word_pieces: Ints
    """[n_words, 2]: first and last piece of each word, both counted."""
    piece_log_probs: Floats
    """[n], natural; NaN where there is none."""
    word_corrections: Floats | None = None
    """[n_words]: what is added to what a word's pieces come to, so that words are proper events (`word_bounds`)."""
    span: tuple[int, int] | None = None
    """The part of the text that is scored, `[start, end)` in characters; None: all of it."""

    def _details(self) -> list[str]:
        return [*super()._details(), f"log-probability {self.totals.log_prob:.2f}"]

    def _repr_html_(self) -> str:
        """For notebooks: the words, shaded by their surprisals."""
        return shaded_html([self])

    @cached_property
    def word_log_probs(self) -> Floats:
        """[n_words], natural: what the pieces of each word come to, corrected where that was requested."""
        plain = self._word_sums
        return plain if self.word_corrections is None else plain + self.word_corrections

    @cached_property
    def _word_sums(self) -> Floats:
        n_words, n_pieces = len(self.word_pieces), len(self.ids)
        if not n_words:
            return np.zeros(0)
        counts = self.word_pieces[:, 1] - self.word_pieces[:, 0] + 1
        owners = np.repeat(np.arange(n_words), counts)
        owned = np.repeat(self.word_pieces[:, 0], counts) + places_within(counts)
        n_owners = np.bincount(owned, minlength=n_pieces)
        lone = np.flatnonzero(n_owners == 0)
        after = np.minimum(np.searchsorted(self.word_pieces[:, 0], lone), n_words - 1)
        shares = self.piece_log_probs / np.maximum(n_owners, 1)
        words = np.concatenate([owners, after])
        return _sums(words, shares[np.concatenate([owned, lone])], n_words)

    @property
    def word_surprisals(self) -> Floats:
        """[n_words], in bits."""
        return surprisals(self.word_log_probs)

    @property
    def piece_surprisals(self) -> Floats:
        """[n], in bits."""
        return surprisals(self.piece_log_probs)

    @cached_property
    def byte_log_probs(self) -> Floats:
        """[bytes of the text in UTF-8], natural: an even share of what each byte's pieces have."""
        bounds = self._byte_bounds
        n_bytes = int(bounds[-1])
        if not n_bytes:
            return np.zeros(0)
        starts, ends = bounds[self.spans[:, 0]], bounds[self.spans[:, 1]]
        starts = np.minimum(starts, n_bytes - 1)  # an empty piece goes with the byte at its place
        counts = np.maximum(ends - starts, 1)
        places = np.repeat(starts, counts) + places_within(counts)
        sums = _sums(places, np.repeat(self.piece_log_probs / counts, counts), n_bytes)
        if self.span is not None:
            sums[: bounds[self.span[0]]] = sums[bounds[self.span[1]] :] = np.nan
        return sums

    @cached_property
    def totals(self) -> Totals:
        """What the scores come to."""
        scored = ~np.isnan(self.piece_log_probs)
        words = self.word_log_probs[~np.isnan(self.word_log_probs)]
        return Totals(
            log_prob=math.fsum(self.piece_log_probs[scored]),
            word_log_prob=math.fsum(words),
            texts=1,
            words=len(words),
            pieces=int(scored.sum()),
            bytes=int((~np.isnan(self.byte_log_probs)).sum()),
            unscored=int((~scored).sum()),
        )

    @cached_property
    def _byte_bounds(self) -> Ints:
        """[characters + 1]: the byte at which each character begins, and the end."""
        if self.text.isascii():
            return np.arange(len(self.text) + 1)
        return np.cumsum([0, *(len(character.encode("utf-8", "surrogatepass")) for character in self.text)])


def pieces_of_word(pieces: Pieces, number: int) -> tuple[int, int]:
    """The run `[start, end)` of pieces that a word's score is the sum of, those of no word before it included."""
    words = pieces.words
    number = number if number >= 0 else len(words) + number
    before = int(words[number - 1, 1]) + 1 if number else 0
    end = int(words[number, 1]) + 1 if number + 1 < len(words) else len(pieces)
    return min(before, int(words[number, 0])), end


def totals(scored: Iterable[ScoredDocument]) -> Totals:
    """What the scores of several texts come to."""
    return sum((each.totals for each in scored), Totals())


def surprisals(log_probs: Floats) -> Floats:
    """Natural log-probabilities as surprisals in bits."""
    return -log_probs / math.log(2)


def surprisal(log_prob: float) -> float:
    """One of them."""
    return -log_prob / math.log(2)


def _sums(places: Ints, values: Floats, n: int) -> Floats:
    """What the values at each of `n` places come to."""
    sums = np.zeros(n)
    np.add.at(sums, places, values)
    return sums


def perplexity(log_prob: float, count: float) -> float:
    """Exp of minus the mean log-probability; NaN over nothing."""
    if not count:
        return math.nan
    try:
        return math.exp(-log_prob / count)
    except OverflowError:
        return math.inf


def scores_table(texts: Sequence[ScoredDocument]) -> Table:
    """Texts with their scores, one row each."""

    def row(each: ScoredDocument) -> tuple[Any, ...]:
        totals = each.totals
        return each.id, totals.words, totals.log_prob, totals.perplexity_per_word, each.text

    header = ("id", "words", "log-probability", "perplexity per word", "text")
    return Table.of(counted(len(texts), "text"), header, texts, row)


def shaded_html(texts: Sequence[ScoredDocument]) -> str:
    """For notebooks: the first texts, their words shaded by surprisal."""
    shaded = [shaded_words(each) for each in texts[:SHOWN]]
    return framed_page(
        shaded_page("How surprising each word is", shaded, unit="bits per word", most=MOST_BITS), height=360
    )


def shaded_words(scored: ScoredDocument) -> ShadedText:
    """A text with a mark for each word."""
    marks = [
        Mark(word.start, word.end, value, f"{word}: {bits(value)}")
        for word, value in zip(scored.words, scored.word_surprisals.tolist(), strict=True)
    ]
    return ShadedText(heading=scored.id, text=scored.text, marks=marks)


def bits(value: float) -> str:
    """A surprisal in words."""
    return "no score" if math.isnan(value) else f"{value:.2f} bits"
