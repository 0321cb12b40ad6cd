"""Rows of whole sentences (RoBERTa): across documents (FULL-SENTENCES), or each input of one document (DOC-SENTENCES).

A row holds as many sentences as fit, and padding behind them. Where inputs may not cross the ends of documents, the
last one of a document is shorter; several then share a row, as `framed_inputs` has it, so that a step reads as many
pieces as with rows across documents. Sentences longer than a row are cut. The sentences of a row are the same in every
epoch, its place in the order is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.framed_inputs import InputRows, Inputs
from polyseme.corpus.layout import Draw, Ints, Layout, RowOptions
from polyseme.corpus.sentence_index import Sentences, runs, runs_within
from polyseme.text.ragged_arrays import numbers_in


@dataclass(frozen=True, kw_only=True)
class WholeSentences(Layout):
    """Rows that begin and end with a sentence."""

    across_documents: bool = True
    """Whether an input continues with the next document."""

    def rows(self, corpus: Corpus, options: RowOptions) -> WholeSentenceRows:
        return WholeSentenceRows(corpus, options, self)


class WholeSentenceRows(InputRows):
    """Rows of one input across documents, or of several that are of one document each."""

    n_stretches = 1

    def __init__(self, corpus: Corpus, options: RowOptions, layout: WholeSentences) -> None:
        super().__init__(corpus, options)
        self.several = not layout.across_documents
        self._sentences = Sentences.of(self._shards, separated=corpus.separator is not None, longest=self.room)

    @cached_property
    def _inputs(self) -> Ints:
        """[inputs, 2]: the first sentence of each, and the one after its last."""
        begins, ends, _, firsts, shards = self._sentences
        lasts = np.searchsorted(ends, begins + self.room, side="right")
        return runs(lasts, firsts if self.several else shards)

    @cached_property
    def _rows(self) -> Ints:
        """[rows, 2]: the first input of each row, and the one after its last."""
        first, last = self._inputs.T
        if not self.several:
            numbers = np.arange(len(first))
            return np.stack([numbers, numbers + 1], axis=1)
        sizes = self._sentences.ends[last - 1] - self._sentences.begins[first] + self._frame.size
        return runs_within(sizes, np.searchsorted(first, self._sentences.shards), self.length)

    @cached_property
    def rows_by_source(self) -> Ints:
        firsts = self._inputs[self._rows[:, 0], 0]
        return np.diff(np.searchsorted(firsts, self._sentences.shards))

    def inputs(self, draw: Draw) -> Inputs:
        rows, numbers = numbers_in(self._rows[self._numbers(draw)])
        first, last = self._inputs[numbers].T
        return Inputs(rows, np.stack([self._sentences.begins[first], self._sentences.ends[last - 1]], axis=1)[:, None])
