"""Pairs of segments or of sentences, of which the second continues the first, or does not.

    [CLS] A [SEP] B [SEP]

With segments, A and B are whole sentences of a document that fill a row together (BERT, RoBERTa's SEGMENT-PAIR); with
sentences, each is a single one, and several pairs share a row (SENTENCE-PAIR; see `framed_inputs`). In half of the
pairs B is what follows A. In the others it is as much text of another document (next-sentence prediction), or both
have changed places (sentence order, ALBERT).

As in BERT's program, one row of segments in ten aims at a random length: it ends with the sentence that reaches it. In
that program the length is drawn for a document, here for a row. Pairs that are longer than a row are truncated at
either end of the longer side.

Shapes: R rows, N pairs.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.framed_inputs import InputRows, Inputs
from polyseme.corpus.layout import Draw, Ints, Layout, RowOptions
from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.corpus.sentence_index import Sentences, runs_within
from polyseme.errors import InputError, PolysemeWarning
from polyseme.text.ragged_arrays import numbers_in, places_within

OTHER_SHARE = 0.5
"""The share of pairs whose second part does not follow the first."""
SHORT_SHARE = 0.1
"""The share of rows that aim at a random length, so that short inputs are not unknown to the model."""
TRIES = 4
"""Sentences that are drawn for one of another document."""

Others = Literal["random", "swapped"]


@dataclass(frozen=True, kw_only=True)
class SentencePairs(Layout):
    """Inputs of two segments, and whether the second follows the first."""

    same_cuts: bool = False
    """Whether pairs are split, and second segments drawn, alike in every epoch (for masks fixed beforehand)."""
    unit: Literal["segment", "sentence"] = "segment"
    others: Others = "random"
    """What the pairs are whose second part does not follow the first."""

    def rows(self, corpus: Corpus, options: RowOptions) -> SentencePairRows:
        kind = SegmentPairRows if self.unit == "segment" else SingleSentenceRows
        return kind(corpus, options, self)


class SentencePairRows(InputRows):
    """What both kinds of pairs share: documents of several sentences, and labels.

    A document of one sentence has no continuation. Such documents only serve as random text, and are warned of.
    """

    n_stretches = 2

    def __init__(self, corpus: Corpus, options: RowOptions, layout: SentencePairs) -> None:
        super().__init__(corpus, options)
        self.same_cuts, self.others = layout.same_cuts, layout.others
        self._sentences = Sentences.of(self._shards, separated=corpus.separator is not None)
        self._check_documents()

    def _check_documents(self) -> None:
        """Refuse text to train on that has no pairs; of held-out text that is only warned of."""
        n_sentences = np.diff(self._sentences.firsts)
        n_short, n_documents = int((n_sentences < 2).sum()), len(n_sentences)
        enough = n_documents > (self.others == "random")
        if n_short < n_documents and enough:
            if n_short:
                serve = "only serve as random text" if self.others == "random" else "are left out"
                warnings.warn(
                    f"{n_short:,} of {n_documents:,} documents ({self.split}) have only one sentence, so nothing "
                    f"follows it: they {serve}.",
                    PolysemeWarning,
                    stacklevel=2,
                )
            return
        lack = f"{n_documents:,} documents, and none has two sentences" if enough else "only one document"
        needed = "several documents" if self.others == "random" else "documents"
        reason = (
            f"Pairs of sentences need {needed} with two sentences or more, and the split {self.split!r} of "
            f"{self.corpus.folder} has {lack}."
        )
        if self.is_shuffled:
            raise InputError(
                f"{reason} Give running text, choose what a document is (--documents), or train without pairs: "
                "--objective next=null, and no --layout of pairs."
            )
        if n_documents:
            warnings.warn(f"{reason} The run is not evaluated.", PolysemeWarning, stacklevel=2)

    @property
    def has_pairs(self) -> bool:
        """Whether there are documents enough; if not, there is no row."""
        return len(self._sentences.firsts) > (2 if self.others == "random" else 1)

    def inputs(self, draw: Draw) -> Inputs:
        rows, numbers = self._pairs_of(draw)
        drawn = uniform(row_keys(self.seed, draw.pass_keys[rows].view(np.int64), numbers), "segments", 8 + TRIES).T
        one, two = self._parts(numbers, drawn)
        is_other = drawn[1] < OTHER_SHARE
        if self.others == "random":
            two, is_other = self._random(one, two, numbers, drawn, is_other)
        one, two = self._truncated(one, two, drawn[6:8])
        if self.others == "swapped":
            one, two = np.where(is_other, two, one), np.where(is_other, one, two)
        return Inputs(rows, np.stack([one, two]).transpose(2, 0, 1), is_other.astype(np.int64))

    @abstractmethod
    def _pairs_of(self, draw: Draw) -> tuple[Ints, Ints]:
        """[N] each: the row of each pair, and its number."""

    @abstractmethod
    def _parts(self, numbers: Ints, drawn: NDArray[np.float64]) -> tuple[Ints, Ints]:
        """[2, N] each: where both parts begin and end, where the second follows the first."""

    @abstractmethod
    def _random(
        self, one: Ints, two: Ints, numbers: Ints, drawn: NDArray[np.float64], is_other: NDArray[np.bool_]
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Random text for the second part of some pairs, and for which of them there was any."""

    def _truncated(self, one: Ints, two: Ints, drawn: NDArray[np.float64]) -> tuple[Ints, Ints]:
        """Both parts as far as they fit together: the longer one loses what is too much, at either end."""
        lengths = one[1] - one[0], two[1] - two[0]
        n_first = np.minimum(lengths[0], np.maximum(self.room - lengths[1], -(-self.room // 2)))
        n_second = np.minimum(lengths[1], self.room - n_first)
        parts = []
        for part, n, number in ((one, n_first, drawn[0]), (two, n_second, drawn[1])):
            begin = part[0] + _whole(number, part[1] - part[0] - n + 1)
            parts.append(np.stack([begin, begin + n]))
        return parts[0], parts[1]


class SegmentPairRows(SentencePairRows):
    """Two segments that fill a row; its sentences are the same in every epoch, where they are split and what the second
    segment is changes.
    """

    @cached_property
    def _chunks(self) -> Ints:
        """[chunks, 2]: the first sentence of each row, and the one after its last."""
        if not self.has_pairs:
            return np.zeros((0, 2), np.int64)
        full = self._reached(np.arange(len(self._sentences.begins)), self.room)
        return np.array(_chunks(full.tolist(), self._sentences.firsts.tolist()), np.int64).reshape(-1, 2)

    def _reached(self, first: Ints, n_pieces: Ints | int) -> Ints:
        """The sentence after the one with which a run that begins with `first` has so many pieces."""
        reached: Ints = 1 + np.searchsorted(self._sentences.ends, self._sentences.begins[first] + n_pieces)
        return reached

    @cached_property
    def rows_by_source(self) -> Ints:
        return np.diff(np.searchsorted(self._chunks[:, 0], self._sentences.shards))

    def _pairs_of(self, draw: Draw) -> tuple[Ints, Ints]:
        return np.arange(len(draw.numbers)), self._numbers(draw)

    def _targets(self, drawn: NDArray[np.float64]) -> Ints:
        """[N]: how many pieces of text each pair aims at."""
        return np.where(drawn[4] < SHORT_SHARE, 2 + _whole(drawn[5], np.full(drawn.shape[1], self.room - 1)), self.room)

    def _parts(self, numbers: Ints, drawn: NDArray[np.float64]) -> tuple[Ints, Ints]:
        begins, ends = self._sentences.begins, self._sentences.ends
        first, last = self._chunks[numbers].T
        last = np.minimum(last, np.maximum(self._reached(first, self._targets(drawn)), first + 2))
        middle = first + 1 + _whole(drawn[0], last - first - 1)
        return np.stack([begins[first], ends[middle - 1]]), np.stack([begins[middle], ends[last - 1]])

    def _random(
        self, one: Ints, two: Ints, numbers: Ints, drawn: NDArray[np.float64], is_other: NDArray[np.bool_]
    ) -> tuple[Ints, NDArray[np.bool_]]:
        begins, ends, documents, firsts, _ = self._sentences
        other = _whole(drawn[2], np.full(len(numbers), len(firsts) - 2))
        other += other >= documents[self._chunks[numbers, 0]]
        start = firsts[other] + _whole(drawn[3], firsts[other + 1] - firsts[other])
        n_wanted = np.maximum(np.minimum(self._targets(drawn), two[1] - one[0]) - (one[1] - one[0]), 1)
        stop = np.minimum(self._reached(start, n_wanted), firsts[other + 1])
        return np.where(is_other, [begins[start], ends[stop - 1]], two), is_other


class SingleSentenceRows(SentencePairRows):
    """Pairs of single sentences, several in a row; which ones share it is the same in every epoch.

    A random second sentence has as many pieces as the one that follows, so that a pair takes the same room either way,
    and its length does not tell the label. Where no such sentence is found in another document, the pair stays.
    """

    several = True

    @cached_property
    def _firsts(self) -> Ints:
        """[pairs]: the first sentence of each; the last one of a document is paired a second time if it is left."""
        firsts = self._sentences.firsts
        n_sentences = np.diff(firsts)
        n_pairs = np.where(n_sentences > 1, (n_sentences + 1) // 2, 0) * self.has_pairs
        of = np.repeat(np.arange(len(n_pairs)), n_pairs)
        pairs: Ints = np.minimum(firsts[of] + 2 * places_within(n_pairs), firsts[of + 1] - 2)
        return pairs

    @cached_property
    def _rows(self) -> Ints:
        """[rows, 2]: the first pair of each row, and the one after its last."""
        lengths = self._sentences.lengths
        sizes = np.minimum(lengths[self._firsts] + lengths[self._firsts + 1], self.room) + self._frame.size
        return runs_within(sizes, np.searchsorted(self._firsts, self._sentences.shards), self.length)

    @cached_property
    def rows_by_source(self) -> Ints:
        return np.diff(np.searchsorted(self._firsts[self._rows[:, 0]], self._sentences.shards))

    @cached_property
    def _by_length(self) -> tuple[Ints, Ints]:
        """[sentences] each: the sentences from short to long, and their lengths."""
        order = np.argsort(self._sentences.lengths, kind="stable")
        return order, self._sentences.lengths[order]

    def _pairs_of(self, draw: Draw) -> tuple[Ints, Ints]:
        return numbers_in(self._rows[self._numbers(draw)])

    def _parts(self, numbers: Ints, drawn: NDArray[np.float64]) -> tuple[Ints, Ints]:
        first = self._firsts[numbers]
        bounds = np.stack([self._sentences.begins, self._sentences.ends])
        return bounds[:, first], bounds[:, first + 1]

    def _random(
        self, one: Ints, two: Ints, numbers: Ints, drawn: NDArray[np.float64], is_other: NDArray[np.bool_]
    ) -> tuple[Ints, NDArray[np.bool_]]:
        begins, ends, documents, _, _ = self._sentences
        order, lengths = self._by_length
        low, high = (np.searchsorted(lengths, two[1] - two[0], side=side) for side in ("left", "right"))
        chosen = np.full(len(numbers), -1)
        for number in drawn[8:]:
            candidate = order[low + _whole(number, high - low)]
            good = (chosen < 0) & (documents[candidate] != documents[self._firsts[numbers]])
            chosen = np.where(good, candidate, chosen)
        is_other = is_other & (chosen >= 0)
        return np.where(is_other, [begins[chosen], ends[chosen]], two), is_other


def _chunks(full: list[int], firsts: list[int]) -> list[tuple[int, int]]:
    """The sentences of each row: as many of a document as fill it, and two at least.

    `full[n]` is the sentence after the one with which a row that begins with sentence n is full. A last sentence that
    is left alone takes the one before it along; a document of one sentence gives no row.

    >>> _chunks([2, 3, 4, 5, 6, 6, 7], [0, 5, 6, 7])
    [(0, 2), (2, 4), (3, 5)]
    """
    chunks = []
    for first, stop in pairwise(firsts):
        n_sentences = stop - first
        while n_sentences > 1 and first < stop:
            last = min(max(full[first], first + 2), stop)
            chunks.append((last - 2, last) if last - first < 2 else (first, last))
            first = last
    return chunks


def _whole(numbers: NDArray[np.float64], below: Ints) -> Ints:
    """Whole numbers from 0 to before `below`, from even ones between 0 and 1."""
    return (numbers * below).astype(np.int64)
