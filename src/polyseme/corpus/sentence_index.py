"""Where the sentences of a corpus are, and how runs of them fill rows.

Places count through all shards of a split, one after another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from polyseme.corpus.layout import Ints
from polyseme.corpus.shards import Shard
from polyseme.text.ragged_arrays import places_within


class Sentences(NamedTuple):
    """The sentences of a split, without separators."""

    begins: Ints
    """[sentences]: where each begins."""
    ends: Ints
    """[sentences]"""
    documents: Ints
    """[sentences]: the number of each sentence's document."""
    firsts: Ints
    """[documents + 1]: the number of each document's first sentence, and that of all sentences."""
    shards: Ints
    """[shards + 1]: the number of each shard's first sentence, and that of all sentences."""

    @classmethod
    def of(cls, shards: list[Shard], *, separated: bool, longest: int | None = None) -> Sentences:
        """All of them; a sentence of more than `longest` pieces counts as several, all but the last of that length."""
        bounds = np.cumsum([0, *map(len, shards)])
        begins = np.concatenate([shard.sentences + first for shard, first in zip(shards, bounds, strict=False)])
        of_documents = np.concatenate([shard.ends + first for shard, first in zip(shards, bounds, strict=False)])
        ends = np.append(begins, 0)[1:]
        ends[np.searchsorted(begins, of_documents) - 1] = of_documents - separated
        if longest is not None:
            n_parts = np.maximum(-(-(ends - begins) // longest), 1)
            begins = np.repeat(begins, n_parts) + longest * places_within(n_parts)
            ends = np.minimum(begins + longest, np.repeat(ends, n_parts))
        documents = np.searchsorted(of_documents, begins, side="right")
        firsts = np.searchsorted(documents, np.arange(len(of_documents) + 1))
        return cls(begins, ends, documents, firsts, np.searchsorted(begins, bounds))

    @property
    def lengths(self) -> Ints:
        """[sentences]: pieces of each."""
        return self.ends - self.begins


def runs(lasts: Ints, bounds: Ints) -> Ints:
    """[runs, 2]: the first of each run of things and the one after its last, where one follows another.

    A run that begins with number n ends before `lasts[n]`, and holds one at least; none crosses one of the `bounds`.

    >>> runs(np.array([2, 3, 5, 5, 4]), np.array([0, 3, 5])).tolist()
    [[0, 2], [2, 3], [3, 5]]
    """
    all_runs, after = [], lasts.tolist()
    for first, stop in pairwise(bounds.tolist()):
        while first < stop:
            last = min(max(after[first], first + 1), stop)
            all_runs.append((first, last))
            first = last
    return np.array(all_runs, np.int64).reshape(-1, 2)


def runs_within(lengths: Ints, bounds: Ints, room: int) -> Ints:
    """[runs, 2]: runs of things of these lengths that are no longer than `room` together, if one of them is not."""
    ends = np.cumsum(lengths)
    return runs(np.searchsorted(ends, ends - lengths + room, side="right"), bounds)
