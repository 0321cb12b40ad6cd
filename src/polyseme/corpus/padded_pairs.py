"""Parallel text with one pair in a row, for stacks that cannot hide the pairs of a row from each other.

Rows of a step hold pairs of like length, and all that are requested together are cut to the longest of them, so that
little is padding. What a row holds does not depend on the rows beside it, but for how much padding follows.

Shapes: R rows, T pieces of a row, on either side.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Ints, Layout, RowOptions, epoch_key
from polyseme.corpus.parallel_text import ParallelRows
from polyseme.corpus.random_keys import permutation_at
from polyseme.corpus.shards import SIDES
from polyseme.types import Rows

BATCHES_SORTED = 64
"""Steps whose pairs are sorted by length together."""
ROUND_LENGTH = 8
"""Rows are cut to a multiple of so many pieces, so that few shapes serve all steps."""


@dataclass(frozen=True, kw_only=True)
class PaddedPairs(Layout):
    """Rows of one pair each."""

    sides: ClassVar[tuple[str, ...]] = SIDES

    def rows(self, corpus: Corpus, options: RowOptions) -> OnePairRows:
        return OnePairRows(corpus, options)


class OnePairRows(ParallelRows):
    """One pair in a row; in every epoch other ones share a step.

    The pairs that do not fill a last step are left out; which ones they are changes with the epoch.
    """

    def __init__(self, corpus: Corpus, options: RowOptions) -> None:
        super().__init__(corpus, options)
        self._order = lru_cache(maxsize=2)(self._new_order)

    @cached_property
    def _packed(self) -> tuple[Ints, Ints]:
        order = self.fitting
        return np.arange(len(order) + 1), order

    @cached_property
    def _longest(self) -> Ints:
        """[pairs that fit]: the pieces of the longer side."""
        return np.maximum(*(self._framed[side][self._packed[1]] for side in SIDES))

    @property
    def n_rows(self) -> int:
        n_pairs, batch_size = super().n_rows, self.options.batch_size
        return n_pairs - n_pairs % batch_size if self.is_shuffled and n_pairs >= batch_size else n_pairs

    @property
    def mean_length(self) -> float:
        return float(np.mean([self._framed[side][self._packed[1]].mean() for side in SIDES])) if self.n_rows else 0.0

    def placed(self, indices: Ints, *parts: int) -> tuple[Ints, Ints, Ints]:
        epochs, places = np.divmod(indices, self.n_rows)
        if not self.is_shuffled:
            return np.zeros_like(epochs), places, places
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            these = epochs == epoch
            numbers[these] = self._order(epoch)[places[these]]
        return epochs, places, numbers

    def _new_order(self, epoch: int) -> Ints:
        """[rows]: the pairs of an epoch, drawn at random, sorted by length within some steps, these in random order."""
        n_pairs, batch_size = super().n_rows, self.options.batch_size
        drawn = permutation_at(n_pairs, epoch_key(self.seed, epoch), np.arange(n_pairs))[: self.n_rows]
        together = BATCHES_SORTED * batch_size
        parts = [drawn[start : start + together] for start in range(0, len(drawn), together)]
        ordered = np.concatenate([part[np.argsort(self._longest[part], kind="stable")] for part in parts])
        n_batches = len(ordered) // batch_size
        if n_batches < 2:
            return ordered
        order = permutation_at(n_batches, epoch_key(self.seed, epoch, 1), np.arange(n_batches))
        shuffled: Ints = ordered.reshape(n_batches, batch_size)[order].reshape(-1)
        return shuffled

    def rows(self, indices: Ints) -> Rows:
        source = super().rows(indices)
        target = source.target
        assert target is not None
        lengths = [np.sum(side.documents == 0, axis=1) for side in (source, target)]
        longest = -(-max(int(each.max()) for each in lengths) // ROUND_LENGTH) * ROUND_LENGTH
        source, target = (
            dataclasses.replace(
                side,
                **{name: getattr(side, name)[:, :longest] for name in ("pieces", "starts", "special")},
                documents=None,
                positions=None,
                lengths=length,
                target=None,
            )
            for side, length in zip((source, target), lengths, strict=True)
        )
        return dataclasses.replace(source, target=target)
