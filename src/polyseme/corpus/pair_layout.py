"""Rows of pairs: texts of two sides that belong together, several in a row, each hidden from the others.

Pairs are of all lengths. Rows that hold one each would be padding for the most part, so a row takes as many as fit on
both sides; which piece is of which pair, and where in it, the row says. All rows are of one shape.

Shapes: R rows, T pieces of a row, on either side.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.random_keys import permutation_at, row_keys
from polyseme.corpus.shards import SIDES, Shard
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.types import Rows

Ints = NDArray[np.int64]

NOBODY = -1
"""The number of the pair that padding belongs to."""


class Side(NamedTuple):
    """One side of all pairs, without separators."""

    shards: list[Shard]
    source: Ints
    """[pairs]: the number of the shard that each is in."""
    begins: Ints
    """[pairs]: where it begins there …"""
    lengths: Ints
    """[pairs]: … and how many pieces it has."""


class Pairs:
    """Rows that hold pairs; the pairs of a row stay together, and rows come in another order in every epoch.

    Which pairs share a row is drawn from the seed. A pair that is longer than a row on either side is left out, which
    is said. Of the split "held" rows come in order, and an index means the same row in every epoch.

    Args:
        corpus: one of pairs.
        split: "train" or "held".
        length: pieces of a row on either side, specials included.
        seed: what order and keys are drawn from.
    """

    def __init__(self, corpus: Corpus, split: str = "train", length: int = 128, seed: int = 0) -> None:
        self.corpus = corpus
        self.split = split
        self.length = length
        self.seed = seed
        frame = corpus.tokenizer.frame(np.zeros(0, np.int64))
        self._before, self._after = frame.ids[: frame.offset], frame.ids[frame.offset :]
        self._pad = corpus.tokenizer.specials.get("pad", 0)
        self._sides = {side: _side(corpus, split, side) for side in SIDES}
        self._framed = {side: each.lengths + len(frame.ids) for side, each in self._sides.items()}
        """[pairs]: pieces with those of the frame, by side."""

    @cached_property
    def n_rows(self) -> int:
        """Of an epoch; 0 if there is no pair that a row can hold."""
        return len(self._packed[0]) - 1

    @cached_property
    def _packed(self) -> tuple[Ints, Ints]:
        """[rows + 1]: where the pairs of each row begin among those that fit, and these in the order of the rows."""
        source, target = (self._framed[side] for side in SIDES)
        fitting = np.flatnonzero((source <= self.length) & (target <= self.length))
        n_long = len(source) - len(fitting)
        if n_long:
            warnings.warn(
                f"{n_long:,} of {len(source):,} pairs ({self.split}) are longer than a row of {self.length} pieces on "
                "either side, and are left out. Longer rows (--length) would take them in.",
                PolysemeWarning,
                stacklevel=2,
            )
        order = fitting
        if self.split == "train" and len(fitting):
            key = int(row_keys(self.seed, -1, 0)[0])
            order = fitting[permutation_at(len(fitting), key, np.arange(len(fitting)))]
        return _filled(source[order], target[order], self.length), order

    def rows(self, indices: Ints) -> Rows:
        """Some rows, in the order asked for."""
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(
                f"The split {self.split!r} of {self.corpus.folder} has no pair that fits into rows of {self.length} "
                "pieces. Choose longer rows, or give more pairs."
            )
        epochs, places = np.divmod(indices, self.n_rows)
        if self.split == "train":
            numbers = np.empty_like(places)
            for epoch in np.unique(epochs).tolist():
                these = epochs == epoch
                numbers[these] = permutation_at(self.n_rows, int(row_keys(self.seed, epoch, -1)[0]), places[these])
        else:
            numbers, epochs = places, np.zeros_like(epochs)
        keys = row_keys(self.seed, epochs, places)
        begins, order = self._packed
        counts = begins[numbers + 1] - begins[numbers]
        rows = np.repeat(np.arange(len(numbers)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        pairs = order[np.repeat(begins[numbers], counts) + within]
        source, target = (self._laid_out(side, rows, within, pairs, keys) for side in SIDES)
        return Rows(
            pieces=source.pieces,
            starts=source.starts,
            special=source.special,
            keys=keys,
            documents=source.documents,
            positions=source.positions,
            target=target,
        )

    def _laid_out(self, side: str, rows: Ints, within: Ints, pairs: Ints, keys: NDArray[np.uint64]) -> Rows:
        """One side of some rows: pair number `pairs[n]` is number `within[n]` in row `rows[n]`."""
        its = self._sides[side]
        lengths = self._framed[side][pairs]
        ends = np.cumsum(lengths)
        first = np.zeros(len(pairs), np.int64)  # where each pair begins in its row
        new = np.flatnonzero(within == 0)
        first[:] = ends - lengths - np.repeat((ends - lengths)[new], np.diff(new, append=len(pairs)))
        inside = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)  # [pieces]: place in the pair
        owner = np.repeat(np.arange(len(pairs)), lengths)
        at = (rows[owner], first[owner] + inside)

        shape = (len(keys), self.length)
        pieces = np.full(shape, self._pad, np.int64)
        starts, special = np.ones(shape, np.bool_), np.ones(shape, np.bool_)
        documents, positions = np.full(shape, NOBODY, np.int64), np.zeros(shape, np.int64)
        documents[at], positions[at] = within[owner], inside

        n_before = len(self._before)
        text = (inside >= n_before) & (inside < n_before + its.lengths[pairs][owner])
        flat = np.empty(len(inside), np.int64)
        flat_starts = np.ones(len(inside), np.bool_)
        for number, piece in enumerate(self._before):
            flat[inside == number] = piece
        from_end = lengths[owner] - inside  # 1: the last
        for number, piece in enumerate(self._after[::-1], start=1):
            flat[from_end == number] = piece
        sources = its.source[pairs][owner]
        places = its.begins[pairs][owner] + inside - n_before
        for number in np.unique(sources).tolist():
            these = text & (sources == number)
            flat[these] = its.shards[number].pieces[places[these]]
            flat_starts[these] = its.shards[number].starts_at(places[these])
        pieces[at], starts[at], special[at] = flat, flat_starts, ~text
        return Rows(pieces=pieces, starts=starts, special=special, keys=keys, documents=documents, positions=positions)


def _side(corpus: Corpus, split: str, side: str) -> Side:
    shards = corpus.shards(split, side)
    n_last = 0 if corpus.separator is None else 1
    begins = [np.concatenate([np.zeros(1, np.int64), shard.ends[:-1]])[: len(shard.ends)] for shard in shards]
    lengths = [shard.ends - begin - n_last for shard, begin in zip(shards, begins, strict=True)]
    numbers = [np.full(len(shard.ends), number) for number, shard in enumerate(shards)]
    return Side(shards, np.concatenate(numbers), np.concatenate(begins), np.concatenate(lengths))


def _filled(source: Ints, target: Ints, length: int) -> Ints:
    """[rows + 1]: where each row begins, if each takes as many pairs, one after another, as fit on both sides.

    >>> _filled(np.array([3, 3, 3, 5]), np.array([1, 1, 5, 5]), 6).tolist()
    [0, 2, 3, 4]
    """
    ends = [np.cumsum(side) for side in (source, target)]
    begins = [0]
    while begins[-1] < len(source):
        done = begins[-1]
        room = [length + (int(end[done - 1]) if done else 0) for end in ends]
        begins.append(int(min(np.searchsorted(end, most, side="right") for end, most in zip(ends, room, strict=True))))
    return np.array(begins, np.int64)
