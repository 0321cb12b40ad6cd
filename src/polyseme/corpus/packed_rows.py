"""Packed rows: full rows across the ends of documents (RoBERTa's FULL-SENTENCES, GPT's contexts).

Shapes: R rows, T pieces of a row, L of them from the corpus (the others are of the frame).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Draw, Ints, Layout, RowOptions, WeightedRows, ring
from polyseme.corpus.random_keys import uniform
from polyseme.corpus.shards import Shard
from polyseme.errors import OptionError
from polyseme.types import Rows


@dataclass(frozen=True, kw_only=True)
class Packed(Layout):
    """Full rows, cut at other places in every epoch."""

    same_cuts: bool = False
    """Whether rows are cut alike in every epoch (for masks that are fixed beforehand); their order changes."""
    sentences: bool = False
    """Whether rows tell which pieces begin a sentence."""
    separates_documents: bool = True

    def rows(self, corpus: Corpus, options: RowOptions) -> PackedRows:
        return PackedRows(corpus, options, self)


class PackedRows(WeightedRows):
    """The frame's specials around a stretch of a source, whose documents follow one another.

    Rows begin anywhere, in the middle of a sentence if need be, and continue over the ends of documents; nothing is
    padding. A source is a ring for that purpose: the row at its end continues at its beginning. What does not fill a
    row, less than one, is left out, in each epoch another stretch.

    With `sentence_starts` a row that is trained on begins with the first sentence that starts in its stretch, so that
    rows overlap a little and leave a little out, in each epoch elsewhere. Where the frame is empty (GPT-2), such rows
    begin with the start piece, as a text that is scored does.
    """

    def __init__(self, corpus: Corpus, options: RowOptions, layout: Packed) -> None:
        super().__init__(corpus, options)
        self.same_cuts, self.sentences = layout.same_cuts, layout.sentences
        frame = corpus.tokenizer.frame(np.zeros(0, np.int64))
        self._before, self._after = frame.ids[: frame.offset], frame.ids[frame.offset :]
        if options.sentence_starts and not len(frame.ids) and "start" in corpus.tokenizer.specials:
            self._before = np.array([corpus.tokenizer.specials["start"]])
        n_specials = len(self._before) + len(self._after)
        if self.length <= n_specials:
            raise OptionError(
                f"Rows of {self.length} pieces have no room for text: the frame takes {n_specials}. Choose longer rows."
            )
        self._shards = corpus.shards(self.split)
        self._stretch = self.length - n_specials
        """L: pieces of a row that are the corpus's."""

    @property
    def rows_by_source(self) -> Ints:
        return np.array([len(shard) // self._stretch for shard in self._shards], np.int64)

    def rows(self, indices: Ints) -> Rows:
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(
                f"The split {self.split!r} of {self.corpus.folder} has {self.corpus.n_pieces(self.split):,} pieces, "
                f"which do not fill a row of {self.length}. Choose shorter rows, or give more text."
            )
        draw = self.draw(indices)
        begins = self._begins(draw)
        pieces = np.empty((len(indices), self._stretch), np.int64)
        starts = np.empty(pieces.shape, np.bool_)
        documents = (
            np.empty(pieces.shape, np.int64) if self.options.mask_documents or self.options.reset_positions else None
        )
        sentences = np.empty(pieces.shape, np.bool_) if self.sentences else None
        for number in np.unique(draw.sources).tolist():
            these = np.flatnonzero(draw.sources == number)
            shard = self._shards[number]
            at = ring(begins[these], self._stretch, len(shard))
            pieces[these] = shard.pieces[at]
            starts[these] = shard.starts_at(at)
            if documents is not None:
                documents[these] = _documents_at(shard, at)
            if sentences is not None:
                sentences[these] = shard.sentences_at(at)
        return self._framed(pieces, starts, documents, sentences, draw.keys)

    def _begins(self, draw: Draw) -> Ints:
        """[R]: where in its source each row begins; every pass through a source is shifted by a random phase."""
        begins = draw.numbers * self._stretch
        if not self.is_shuffled:
            return begins
        n_pieces = np.array([len(shard) for shard in self._shards], np.int64)[draw.sources]
        phases = (uniform(draw.pass_keys, "phase", 1)[:, 0] * n_pieces).astype(np.int64)
        begins = (begins + phases) % n_pieces
        return self._at_sentences(begins, draw.sources) if self.options.sentence_starts else begins

    def _at_sentences(self, begins: Ints, sources: Ints) -> Ints:
        """[R]: the first start of a sentence from each beginning on, if there is one within a row's stretch."""
        moved: Ints = begins.copy()
        for number in np.unique(sources).tolist():
            sentences = self._shards[number].sentences
            these = np.flatnonzero(sources == number)
            if len(sentences):
                starts = sentences[np.minimum(np.searchsorted(sentences, begins[these]), len(sentences) - 1)]
                near = (starts >= begins[these]) & (starts - begins[these] < self._stretch)
                moved[these] = np.where(near, starts, begins[these])
        return moved

    def _framed(
        self,
        pieces: NDArray[Any],
        starts: NDArray[np.bool_],
        documents: Ints | None,
        sentences: NDArray[np.bool_] | None,
        keys: NDArray[np.uint64],
    ) -> Rows:
        """Rows with the specials of the frame around their stretches."""
        before = len(self._before)
        text = slice(before, before + self._stretch)
        shape = (len(pieces), self.length)
        framed = np.empty(shape, np.int64)
        framed[:, :before] = self._before
        framed[:, text] = pieces
        framed[:, text.stop :] = self._after
        special = np.ones(shape, np.bool_)
        special[:, text] = False if self.corpus.separator is None else pieces == self.corpus.separator
        begins = np.ones(shape, np.bool_)
        begins[:, text] = starts
        numbers = positions = None
        if documents is not None:
            numbers = np.zeros(shape, np.int64)  # specials before are of the first document, those after of the last
            numbers[:, text] = np.cumsum(np.diff(documents, axis=1, prepend=documents[:, :1]) != 0, axis=1)
            numbers[:, text.stop :] = numbers[:, text.stop - 1 : text.stop]
            if self.options.reset_positions:
                positions = _restarted(numbers)
        if sentences is not None:
            sentences = np.pad(sentences, ((0, 0), (before, self.length - text.stop)))
        return Rows(
            pieces=framed,
            starts=begins,
            special=special,
            keys=keys,
            documents=numbers if self.options.mask_documents else None,
            positions=positions,
            sentences=sentences,
        )


def _documents_at(shard: Shard, at: Ints) -> Ints:
    """[R, L]: the number of the document of each piece; another one where a row has passed the end of the ring."""
    return np.searchsorted(shard.ends, at, side="right") + len(shard.ends) * (at < at[:, :1])


def _restarted(numbers: Ints) -> Ints:
    """[R, T]: how many pieces of the same number come before each in its row."""
    places = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    begins = np.diff(numbers, axis=1, prepend=-1) != 0
    return places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
