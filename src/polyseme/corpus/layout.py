"""What every layout is: how rows are taken from a corpus, which objectives name (`Needs.layout`).

A layout is a record of what an objective wants of its rows; over a corpus it gives a `RowSource`. A row is a function
of corpus, layout, seed, epoch and index, so a run is resumed by a number, and any number of workers or devices sees the
same rows. Indices count on over epochs: epoch = index // n_rows. A new layout is one file; an objective names it.

Shapes: R rows, T pieces of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.random_keys import permutation_at, row_keys
from polyseme.corpus.shards import SIDE, Shard
from polyseme.errors import OptionError
from polyseme.types import Rows

Ints = NDArray[np.int64]
VariedBy = Literal["quarters", "normal"]

EVALUATION_STEPS = 8
"""How many steps' worth of held-out rows an evaluation reads at most."""


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """What a run, not an objective, decides about its rows."""

    split: str = "train"
    """"train", or "held": the rows of that come in order, and are the same in every epoch."""
    length: int = 128
    """Pieces of a row, specials included."""
    batch_size: int = 1
    """Rows of a step."""
    seed: int = 0
    """Decides cuts, order and the rows' random keys."""
    mask_documents: bool = False
    """Whether rows tell which document each piece is of, so that attention stays within it."""
    reset_positions: bool = False
    """Whether positions restart with each document."""
    sentence_starts: bool = False
    """Whether rows that are trained on begin with a sentence, as texts do that a model is used on."""
    varied: bool = False
    """Whether the length of rows changes from step to step …"""
    varied_by: VariedBy = "quarters"
    """… and how."""


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """How rows are taken from a corpus; the fields are what an objective chooses."""

    sides: ClassVar[tuple[str, ...]] = (SIDE,)
    """The sides of the corpora that it reads: plain text, or both sides of pairs."""
    carries_memory: ClassVar[bool] = False
    """Whether a row continues the one of the step before, so that a memory is carried along."""

    separates_documents: bool = False
    """Whether the options `mask_documents` and `reset_positions` can be followed."""

    def check(self, options: RowOptions, objective: str) -> None:
        """Refuse options that the layout cannot follow, before there is a corpus."""
        if options.varied:
            raise OptionError("Rows of varied lengths are for streams; packed rows are all of one length.")
        if (options.mask_documents or options.reset_positions) and not self.separates_documents:
            raise OptionError(
                f"The objective {objective!r} supports neither mask_documents nor reset_positions: leave these out. "
                "(Pairs that share a row are always hidden from each other.)"
            )

    @abstractmethod
    def rows(self, corpus: Corpus, options: RowOptions) -> RowSource:
        """The rows of one split of a corpus."""


class RowSource(ABC):
    """The rows of one split of a corpus, by their index."""

    def __init__(self, corpus: Corpus, options: RowOptions) -> None:
        self.corpus = corpus
        self.options = options
        self.split, self.length, self.seed = options.split, options.length, options.seed

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows of an epoch; 0 if the split does not fill one."""

    @property
    def mean_length(self) -> float:
        """Pieces of a row that are read, on average."""
        return float(self.length)

    @abstractmethod
    def rows(self, indices: Ints) -> Rows:
        """The rows at these indices; vectorized, and each the same whatever rows are beside it."""

    def placed(self, indices: Ints, *parts: int) -> tuple[Ints, Ints, Ints]:
        """[R] each: the epochs of indices, their places in these, and the numbers of the rows there.

        Every epoch has a random order, whose key the `parts` decide; held-out rows are those of the first epoch, in
        order.
        """
        epochs, places = np.divmod(indices, self.n_rows)
        if not self.is_shuffled:
            return np.zeros_like(epochs), places, places
        order = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            these = epochs == epoch
            order[these] = permutation_at(self.n_rows, epoch_key(self.seed, epoch, *parts), places[these])
        return epochs, places, order

    def evaluation_steps(self, batch_size: int, max_pieces: int) -> Sequence[Ints]:
        """The indices of the rows that an evaluation reads, one array per step."""
        most = min(EVALUATION_STEPS * batch_size, max(max_pieces // self.length, 1))
        return [np.arange(min(self.n_rows, most))]

    @property
    def is_shuffled(self) -> bool:
        """Whether every epoch has its own order; held-out rows come in the order of the text."""
        return self.split == "train"


class Draw(NamedTuple):
    """Which rows of which sources are at some indices."""

    keys: NDArray[np.uint64]
    """[R]: the random keys of the rows."""
    sources: Ints
    """[R]: the number of each row's source."""
    numbers: Ints
    """[R]: the number of the row among those of its source."""
    pass_keys: NDArray[np.uint64]
    """[R]: the random key of this pass through the source in this epoch; of no meaning for held-out rows."""


class WeightedRows(RowSource):
    """Rows of all sources in one random order per epoch; those of a source of weight w come w times.

    Where w is no whole number, the last pass draws as many of the source's rows as are due.
    """

    same_cuts = False
    """Whether a pass is the same in every epoch; the order of rows is not."""

    @property
    @abstractmethod
    def rows_by_source(self) -> Ints:
        """[sources]: the rows that each source has once."""

    @cached_property
    def _ends(self) -> Ints:
        """[sources]: where the rows of each end among those of an epoch, before they are put in order."""
        weights = [source.weight if self.is_shuffled else 1.0 for source in self.corpus.sources]
        return np.cumsum([round(w * n) for w, n in zip(weights, self.rows_by_source.tolist(), strict=True)])

    @property
    def n_rows(self) -> int:
        return int(self._ends[-1])

    def draw(self, indices: Ints) -> Draw:
        """The rows at some indices, where there are any."""
        epochs, places, order = self.placed(indices, 0)
        sources = np.searchsorted(self._ends, order, side="right")
        numbers = order - np.concatenate([[0], self._ends])[sources]
        passes, numbers = np.divmod(numbers, self.rows_by_source[sources])
        pass_keys = np.zeros(len(indices), np.uint64)
        if self.is_shuffled:
            for epoch, source, turn in set(zip(epochs.tolist(), sources.tolist(), passes.tolist(), strict=True)):
                these = (epochs == epoch) & (sources == source) & (passes == turn)
                key = epoch_key(self.seed, 0 if self.same_cuts else epoch, 1 + source, turn)
                pass_keys[these] = key
                numbers[these] = permutation_at(int(self.rows_by_source[source]), key, numbers[these])
        return Draw(row_keys(self.seed, epochs, places), sources, numbers, pass_keys)


def epoch_key(seed: int, epoch: int, *parts: int) -> int:
    """A key for something in an epoch that is no row; rows have indices from 0 on."""
    key = int(row_keys(seed, epoch, -1)[0])
    for part in parts:
        key = int(row_keys(key, part, -1)[0])
    return key


def gather(shards: Sequence[Shard], at: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """The pieces at some places of shards that are read as one, and whether each begins a word; as `at` is shaped."""
    pieces, starts = np.empty(at.shape, np.int64), np.empty(at.shape, np.bool_)
    ends = np.cumsum([len(shard) for shard in shards])
    numbers = np.searchsorted(ends, at, side="right")
    for number in np.unique(numbers).tolist():
        these = numbers == number
        within = at[these] - (int(ends[number]) - len(shards[number]))
        pieces[these] = shards[number].pieces[within]
        starts[these] = shards[number].starts_at(within)
    return pieces, starts


def ring(begins: Ints, n: int, around: int) -> Ints:
    """[R, n]: the places from each beginning on, in a ring of `around` places."""
    at = begins[:, None] + np.arange(n)
    at[at >= around] -= around
    return at
