"""Layouts: which stretch of a corpus a row is.

A row is a function of corpus, layout, seed, epoch and index, so that a run is resumed by a number, and any number of
workers or devices sees the same rows. Indices count on over epochs: epoch = index // n_rows.

Shapes: R rows, T pieces of a row, L of them from the corpus (the others are of the frame).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.random_keys import permutation_at, row_keys, uniform
from polyseme.corpus.shards import Shard
from polyseme.errors import OptionError
from polyseme.types import Rows

Ints = NDArray[np.int64]


class Layout(Protocol):
    """Rows by their index."""

    @property
    def n_rows(self) -> int:
        """Of an epoch."""

    @property
    def length(self) -> int:
        """Pieces of a row, specials included."""

    def rows(self, indices: Ints) -> Rows:
        """Some rows, in the order asked for; vectorized, and each the same whatever rows are beside it."""


class Packed:
    """Full rows: the frame's specials around a stretch of a source, whose documents stand one after another.

    Rows begin anywhere, in the middle of a sentence if need be, and run on over the ends of documents; nothing is
    padding. In each epoch the cuts are elsewhere and the rows in another order. A source is a ring for that purpose:
    the row at its end goes on at its beginning; what does not fill a row, less than one, is left out, in each epoch
    another stretch. A source of weight w has each of its rows w times in an epoch, with other cuts each time; of a
    fraction, as many rows as it comes to are drawn. Of the split "held" all rows are there once, in order, and an index
    means the same row in every epoch.

    Args:
        corpus: where the pieces are.
        split: "train" or "held".
        length: pieces of a row, specials included.
        seed: what cuts, order and the rows' keys are drawn from.
        apart: whether rows say which document each piece is of, so that attention can be kept within it. By default
            a piece sees what is left and right of it in its row, over the ends of documents.
        reset: whether positions are counted anew from the beginning of each document.
        same_cuts: whether rows are cut alike in every epoch (for masks that are fixed beforehand); their order is not.
        sentences: whether rows say which pieces begin a sentence.
    """

    def __init__(
        self,
        corpus: Corpus,
        split: str = "train",
        length: int = 128,
        seed: int = 0,
        mask_documents: bool = False,
        reset_positions: bool = False,
        same_cuts: bool = False,
        sentences: bool = False,
    ) -> None:
        frame = corpus.tokenizer.frame(np.zeros(0, np.int64))
        if length <= len(frame.ids):
            raise OptionError(
                f"Rows of {length} pieces have no room for text: the frame takes {len(frame.ids)}. Choose longer rows."
            )
        self.corpus = corpus
        self.split = split
        self.length = length
        self.seed = seed
        self.mask_documents = mask_documents
        self.reset_positions = reset_positions
        self.same_cuts = same_cuts
        self.sentences = sentences
        self._frame = frame
        self._shards = corpus.shards(split)
        whole = np.array([len(shard) // self._stretch for shard in self._shards], np.int64)
        weights = [1.0 if self._is_fixed else source.weight for source in corpus.sources]
        self._whole = whole
        """[sources]: the rows that a source has once."""
        self._ends = np.cumsum([round(weight * n) for weight, n in zip(weights, whole.tolist(), strict=True)])
        """[sources]: where the rows of each end among those of an epoch, before they are put in order."""

    @cached_property
    def n_rows(self) -> int:
        """Of an epoch; 0 if the split does not fill a row."""
        return int(self._ends[-1])

    def rows(self, indices: Ints) -> Rows:
        """Some rows, in the order asked for."""
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(
                f"The split {self.split!r} of {self.corpus.folder} has {self.corpus.n_pieces(self.split):,} pieces, "
                f"which do not fill a row of {self.length}. Choose shorter rows, or give more text."
            )
        if self._is_fixed:
            indices = indices % self.n_rows
        epochs, places = np.divmod(indices, self.n_rows)
        sources, begins = self._cuts(epochs, places)
        pieces = np.empty((len(indices), self._stretch), np.int64)
        starts = np.empty(pieces.shape, np.bool_)
        documents = np.empty(pieces.shape, np.int64) if self.mask_documents or self.reset_positions else None
        sentences = np.empty(pieces.shape, np.bool_) if self.sentences else None
        for number in np.unique(sources).tolist():
            these = np.flatnonzero(sources == number)
            shard = self._shards[number]
            at = _ring(begins[these], self._stretch, len(shard))
            pieces[these] = shard.pieces[at]
            starts[these] = shard.starts_at(at)
            if documents is not None:
                documents[these] = _documents_at(shard, at)
            if sentences is not None:
                sentences[these] = shard.sentences_at(at)
        return self._framed(pieces, starts, documents, sentences, row_keys(self.seed, epochs, places))

    @property
    def _is_fixed(self) -> bool:
        return self.split != "train"

    @property
    def _stretch(self) -> int:
        """L: pieces of a row that are the corpus's."""
        return self.length - len(self._frame.ids)

    def _cuts(self, epochs: Ints, places: Ints) -> tuple[Ints, Ints]:
        """The source of each row, and where in it the row begins."""
        order = places if self._is_fixed else np.empty_like(places)
        if not self._is_fixed:
            for epoch in np.unique(epochs).tolist():
                these = epochs == epoch
                order[these] = permutation_at(self.n_rows, _key(self.seed, epoch, 0), places[these])
        sources = np.searchsorted(self._ends, order, side="right")
        numbers = order - np.concatenate([[0], self._ends])[sources]
        passes, numbers = np.divmod(numbers, self._whole[sources])
        begins = numbers * self._stretch
        if not self._is_fixed:
            for epoch, source, turn in set(zip(epochs.tolist(), sources.tolist(), passes.tolist(), strict=True)):
                these = (epochs == epoch) & (sources == source) & (passes == turn)
                key = _key(self.seed, 0 if self.same_cuts else epoch, 1 + source, turn)
                drawn = permutation_at(int(self._whole[source]), key, numbers[these])
                n_pieces = len(self._shards[source])
                phase = int(uniform(np.array([key], np.uint64), "phase", 1)[0, 0] * n_pieces)
                begins[these] = (drawn * self._stretch + phase) % n_pieces
        return sources, begins

    def _framed(
        self,
        pieces: NDArray[Any],
        starts: NDArray[np.bool_],
        documents: Ints | None,
        sentences: NDArray[np.bool_] | None,
        keys: NDArray[np.uint64],
    ) -> Rows:
        """Rows with the specials of the frame around their stretches."""
        before, around = self._frame.offset, self._frame.ids
        text = slice(before, before + self._stretch)
        shape = (len(pieces), self.length)
        framed = np.empty(shape, np.int64)
        framed[:, :before] = around[:before]
        framed[:, text] = pieces
        framed[:, text.stop :] = around[before:]
        special = np.ones(shape, np.bool_)
        special[:, text] = False if self.corpus.separator is None else pieces == self.corpus.separator
        begins = np.ones(shape, np.bool_)
        begins[:, text] = starts
        numbers = positions = None
        if documents is not None:
            numbers = np.zeros(
                shape, np.int64
            )  # the specials before are of the first document, those after of the last
            numbers[:, text] = np.cumsum(np.diff(documents, axis=1, prepend=documents[:, :1]) != 0, axis=1)
            numbers[:, text.stop :] = numbers[:, text.stop - 1 : text.stop]
            if self.reset_positions:
                positions = _counted_anew(numbers)
        return Rows(
            pieces=framed,
            starts=begins,
            special=special,
            keys=keys,
            documents=numbers if self.mask_documents else None,
            positions=positions,
            sentences=None if sentences is None else self._around(sentences),
        )

    def _around(self, of_text: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What holds for the pieces of the text; for those of the frame it does not."""
        before = self._frame.offset
        return np.pad(of_text, ((0, 0), (before, self.length - before - self._stretch)))


class Streams:
    """A split as `n` streams that are read side by side, each in order: row step · n + k goes on where the one of
    the step before ended in stream k. For encoders that carry a memory from row to row.

    Rows have no frame, only the separators between documents. The split, all sources one after another, is a ring; the
    streams begin at places equally far apart in it and read on and on, so that in the next epoch each goes through
    what another has read before it, and what a memory holds is always what stands before the row. Weights have no
    meaning here, and other than 1 are refused.

    Args:
        corpus: where the pieces are.
        n: streams.
        split: "train" or "held"; of the latter a row is the same one in every epoch.
        length: pieces by which a stream goes on in a step.
        seed: what the place of the first stream is drawn from, and the lengths where they vary.
        ahead: pieces of the next row that a row shows too, as targets: its length is then `length + ahead`.
        back: whether a row is followed by one of the same stream read from its end: step after step these go towards
            the beginning, for a backward encoder. They too are in the order of the text; what they show of the next
            row, `ahead` pieces of it, stands at their beginning.
        varied: whether lengths change from step to step, in eight steps half of `length` once, three quarters,
            five quarters and one and a half times it, and `length` four times, in an order drawn anew for every eight.
            So texts are not cut at the same places in every epoch, and there are only five shapes.
    """

    def __init__(
        self,
        corpus: Corpus,
        n: int,
        split: str = "train",
        length: int = 128,
        seed: int = 0,
        *,
        ahead: int = 0,
        back: bool = False,
        varied: bool = False,
    ) -> None:
        if n < 1 or length < 1:
            raise OptionError(f"Streams need at least 1 stream and rows of at least 1 piece. Got {n} and {length}.")
        for source in corpus.sources:
            if source.weight != 1 and split == "train":
                raise OptionError(
                    f"The source {source.name!r} has the weight {source.weight:g}, and streams read every source once, "
                    "in order. Build the corpus without weights, or choose an objective that reads packed rows."
                )
        self.corpus = corpus
        self.split = split
        self.length = length
        self.seed = seed
        self.n = n
        self.ahead = ahead
        self.back = back
        self.varied = varied and split == "train"
        self._shards = corpus.shards(split)
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    @cached_property
    def n_rows(self) -> int:
        """Of an epoch, over all streams; 0 if the split does not fill one row a stream."""
        return self.n * self._steps

    @property
    def _steps(self) -> int:
        return max(int(self._ends[-1]) // self.n - self.ahead, 0) // self.length

    def rows(self, indices: Ints) -> Rows:
        """Some rows, in the order asked for; where lengths vary, they must be of one step."""
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(
                f"The split {self.split!r} of {self.corpus.folder} has {int(self._ends[-1]):,} pieces, which do not "
                f"fill a row of {self.length} in {self.n} streams. Choose fewer streams or shorter rows."
            )
        if self.split != "train":
            indices = indices % self.n_rows
        steps, streams = np.divmod(indices, self.n)
        done, length = self._done(steps)
        total = int(self._ends[-1])
        first = int(uniform(row_keys(self.seed, 0, 0), "phase", 1)[0, 0] * total) if self.split == "train" else 0
        begins = first + streams * (total // self.n)
        shown = length + self.ahead
        at = _ring((begins + done) % total, shown, total)
        if self.back:
            ends = begins + total // self.n - done
            at = np.concatenate([at, _ring((ends - shown) % total, shown, total)], axis=1)
        pieces = np.empty(at.shape, np.int64)
        starts = np.empty(at.shape, np.bool_)
        shards = np.searchsorted(self._ends, at, side="right")
        for number in np.unique(shards).tolist():
            these = shards == number
            shard = self._shards[number]
            within = at[these] - (int(self._ends[number]) - len(shard))
            pieces[these] = shard.pieces[within]
            starts[these] = shard.starts_at(within)
        special = np.zeros(at.shape, np.bool_) if self.corpus.separator is None else pieces == self.corpus.separator
        epochs, places = np.divmod(indices, self.n_rows)
        return Rows(pieces=pieces, starts=starts, special=special, keys=row_keys(self.seed, epochs, places))

    def _done(self, steps: Ints) -> tuple[Ints, int]:
        """How far each stream has come before these steps, and the length of their rows."""
        if not self.varied:
            return steps * self.length, self.length
        if len(steps) and (steps != steps[0]).any():
            raise ValueError("Rows of several steps differ in length, so they cannot be had at once.")
        cycle, place = divmod(int(steps[0]) if len(steps) else 0, len(_VARIED))
        order = permutation_at(len(_VARIED), _key(self.seed, cycle, 0), np.arange(len(_VARIED)))
        lengths = self.length + (self.length // 4) * np.array(_VARIED)[order]
        done = cycle * len(_VARIED) * self.length + int(lengths[:place].sum())
        return np.full(len(steps), done, np.int64), int(lengths[place])


_VARIED = (-2, -1, 0, 0, 0, 0, 1, 2)
"""By how many quarters the rows of eight steps are longer than their mean."""


def _key(seed: int, epoch: int, *parts: int) -> int:
    """A key for something in an epoch that is no row; rows have indices from 0 on."""
    key = int(row_keys(seed, epoch, -1)[0])
    for part in parts:
        key = int(row_keys(key, part, -1)[0])
    return key


def _ring(begins: Ints, n: int, around: int) -> Ints:
    """[R, n]: the places from each beginning on, in a ring of so many."""
    at = begins[:, None] + np.arange(n)
    at[at >= around] -= around
    return at


def _documents_at(shard: Shard, at: Ints) -> Ints:
    """[R, L]: the number of the document of each piece; another one where a row has come around the ring."""
    return np.searchsorted(shard.ends, at, side="right") + len(shard.ends) * (at < at[:, :1])


def _counted_anew(numbers: Ints) -> Ints:
    """[R, T]: how many pieces stand before each in its row that have the same number."""
    places = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    begins = np.diff(numbers, axis=1, prepend=-1) != 0
    return places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
