"""Sentence pairs: BERT's rows of two segments, of which the second continues the first or is random text.

    [CLS] A [SEP] B [SEP]

A and B are whole sentences of a document that fill a row together. In half of the rows B is what follows A, in the
others as much text of another document. Pairs that are too long are truncated at either end of the longer segment, as
in the original program; shorter ones are padded.

Shapes: R rows, T pieces of a row.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Draw, Ints, Layout, RowOptions, WeightedRows, gather
from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.corpus.shards import Shard
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.types import Rows

RANDOM_SHARE = 0.5
"""The share of rows whose second segment is random text."""
SHORT_SHARE = 0.1
"""The share of rows that are truncated to a random length, so that short inputs are not unknown to the model."""


@dataclass(frozen=True, kw_only=True)
class SentencePairs(Layout):
    """Rows of two segments, and whether the second follows the first."""

    same_cuts: bool = False
    """Whether a row is split, and its second segment drawn, alike in every epoch (for masks fixed beforehand)."""

    def rows(self, corpus: Corpus, options: RowOptions) -> SentencePairRows:
        return SentencePairRows(corpus, options, self)


class Sentences(NamedTuple):
    """The sentences of a split, of all shards one after another, without separators."""

    begins: Ints
    """[sentences]: where each begins in all shards together."""
    ends: Ints
    """[sentences]"""
    documents: Ints
    """[sentences]: the number of each sentence's document."""
    firsts: Ints
    """[documents + 1]: the number of each document's first sentence, and that of all sentences."""
    shards: Ints
    """[shards]: how many sentences each shard and those before it have."""

    @classmethod
    def of(cls, shards: list[Shard], *, separated: bool) -> Sentences:
        before = np.cumsum([0, *map(len, shards)])[:-1]
        begins = np.concatenate([shard.sentences + first for shard, first in zip(shards, before, strict=True)])
        of_documents = np.concatenate([shard.ends + first for shard, first in zip(shards, before, strict=True)])
        documents = np.searchsorted(of_documents, begins, side="right")
        firsts = np.searchsorted(documents, np.arange(len(of_documents) + 1))
        ends = np.append(begins[1:], 0)
        ends[firsts[1:] - 1] = of_documents - separated
        return cls(begins, ends, documents, firsts, np.cumsum([len(shard.sentences) for shard in shards]))


class SentencePairRows(WeightedRows):
    """Rows of two segments; a row's sentences are the same in every epoch, where they are split and what the second
    segment is changes.

    A document of one sentence has no continuation. Such documents only serve as random text, and are warned of.
    """

    def __init__(self, corpus: Corpus, options: RowOptions, layout: SentencePairs) -> None:
        super().__init__(corpus, options)
        self.same_cuts = layout.same_cuts
        tokenizer = corpus.tokenizer
        framed = tokenizer.frame(np.zeros(1, np.int64), np.zeros(1, np.int64))
        first, second = framed.offset, int(framed.pair_offset or 0)
        stretches = (slice(0, first), slice(first + 1, second), slice(second + 1, None))
        self._specials = [framed.ids[each] for each in stretches]
        """The specials before, between and after the segments."""
        self._special_segments = [framed.segments[each] for each in stretches]
        self._segments = (int(framed.segments[first]), int(framed.segments[second]))
        self._room = self.length - sum(map(len, self._specials))
        """Pieces of a row that are text."""
        if self._room < 2:
            raise OptionError(
                f"Rows of {self.length} pieces have no room for two segments: specials take "
                f"{self.length - self._room}. Choose longer rows."
            )
        self._pad = tokenizer.specials.get("pad", 0)
        self._shards = corpus.shards(self.split)
        self._sentences = Sentences.of(self._shards, separated=corpus.separator is not None)
        self._check_documents()

    def _check_documents(self) -> None:
        """Refuse text to train on that has no pairs; of held-out text that is only warned of."""
        n_sentences = np.diff(self._sentences.firsts)
        n_short, n_documents = int((n_sentences < 2).sum()), len(n_sentences)
        if n_short < n_documents and n_documents > 1:
            if n_short:
                warnings.warn(
                    f"{n_short:,} of {n_documents:,} documents ({self.split}) have only one sentence, so nothing "
                    "follows it: they only serve as random text for next-sentence prediction.",
                    PolysemeWarning,
                    stacklevel=2,
                )
            return
        lack = f"{n_documents:,} documents, and none has two sentences" if n_documents > 1 else "only one document"
        reason = (
            f"Next-sentence prediction needs several documents with two sentences or more, and the split "
            f"{self.split!r} of {self.corpus.folder} has {lack}."
        )
        if self.is_shuffled:
            raise InputError(
                f"{reason} Give running text, choose what a document is (--documents), or leave out next=nsp."
            )
        if n_documents:
            warnings.warn(f"{reason} The run is not evaluated.", PolysemeWarning, stacklevel=2)

    @cached_property
    def _chunks(self) -> Ints:
        """[chunks, 2]: the first sentence of each row, and the one after its last."""
        sentences = self._sentences
        if len(sentences.firsts) < 3:
            return np.zeros((0, 2), np.int64)
        full = 1 + np.searchsorted(sentences.ends, sentences.begins + self._room)  # where a row is full
        return np.array(_chunks(full.tolist(), sentences.firsts.tolist()), np.int64).reshape(-1, 2)

    @cached_property
    def rows_by_source(self) -> Ints:
        upto = np.searchsorted(self._chunks[:, 0], self._sentences.shards)
        return np.diff(upto, prepend=0)

    def rows(self, indices: Ints) -> Rows:
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(f"The split {self.split!r} of {self.corpus.folder} has no documents to take pairs from.")
        draw = self.draw(indices)
        (first, second), labels = self._stretches(draw)
        return self._laid_out(first, second, labels, draw.keys)

    def _stretches(self, draw: Draw) -> tuple[tuple[Ints, Ints], Ints]:
        """[R, 2] each: where the segments begin and end in all shards together; [R]: 1 where the second is random."""
        begins, ends, documents, firsts, _ = self._sentences
        before = np.concatenate([[0], np.cumsum(self.rows_by_source)])
        first, last = self._chunks[before[draw.sources] + draw.numbers].T
        numbers = uniform(row_keys(self.seed, draw.pass_keys.view(np.int64), draw.numbers), "segments", 8).T
        middle = first + 1 + _drawn(numbers[0], last - first - 1)
        is_random = numbers[1] < RANDOM_SHARE
        other = _drawn(numbers[2], np.full(len(first), len(firsts) - 2))
        other += other >= documents[first]
        start = firsts[other] + _drawn(numbers[3], firsts[other + 1] - firsts[other])
        n_wanted = ends[last - 1] - begins[middle]
        stop = np.minimum(1 + np.searchsorted(ends, begins[start] + n_wanted), firsts[other + 1])
        one = np.stack([begins[first], ends[middle - 1]])
        two = np.where(is_random, [begins[start], ends[stop - 1]], [begins[middle], ends[last - 1]])
        short = 2 + _drawn(numbers[5], np.full(len(first), self._room - 1))
        room = np.where(numbers[4] < SHORT_SHARE, short, self._room)
        lengths = one[1] - one[0], two[1] - two[0]
        n_first = np.minimum(lengths[0], np.maximum(room - lengths[1], -(-room // 2)))
        n_second = np.minimum(lengths[1], room - n_first)
        for stretch, length, number in ((one, n_first, numbers[6]), (two, n_second, numbers[7])):
            stretch[0] += _drawn(number, stretch[1] - stretch[0] - length + 1)
            stretch[1] = stretch[0] + length
        return (one.T, two.T), is_random.astype(np.int64)

    def _laid_out(self, first: Ints, second: Ints, labels: Ints, keys: NDArray[np.uint64]) -> Rows:
        """Rows with the specials around both segments, and padding behind them."""
        shape = (len(keys), self.length)
        places = np.broadcast_to(np.arange(self.length), shape)
        pieces, segments = np.full(shape, self._pad, np.int64), np.zeros(shape, np.int64)
        starts, special = np.ones(shape, np.bool_), np.ones(shape, np.bool_)
        end = np.zeros((len(keys), 1), np.int64)
        for number, around in enumerate(self._specials):
            at = end + np.arange(len(around))
            np.put_along_axis(pieces, at, np.broadcast_to(around, at.shape), axis=1)
            np.put_along_axis(segments, at, np.broadcast_to(self._special_segments[number], at.shape), axis=1)
            end = end + len(around)
            if number < 2:
                begins, ends = (first if number == 0 else second).T[:, :, None]
                text = (places >= end) & (places < end + ends - begins)
                pieces[text], starts[text] = gather(self._shards, (begins + places - end)[text])
                segments[text], special[text] = self._segments[number], False
                end = end + ends - begins
        return Rows(
            pieces=pieces,
            starts=starts,
            special=special,
            keys=keys,
            segments=segments,
            lengths=end[:, 0],
            next_labels=labels,
        )


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


def _drawn(numbers: NDArray[np.float64], below: Ints) -> Ints:
    """Whole numbers from 0 to before `below`, from even ones between 0 and 1."""
    return (numbers * below).astype(np.int64)
