"""Streams: long stretches of text side by side, for encoders that carry a memory from row to row.

Shapes: R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Ints, Layout, RowOptions, RowSource, epoch_key, gather, ring
from polyseme.corpus.random_keys import permutation_at, row_keys, uniform
from polyseme.errors import OptionError
from polyseme.types import Rows

HELD_OUT_ROWS = 8
"""How many rows of a held-out stream there are at least, where there is enough text: the first ones lack a memory."""
EVALUATION_STEPS = 64
"""How many steps an evaluation reads at most; rows of streams are short."""

_QUARTERS = (-2, -1, 0, 0, 0, 0, 1, 2)
"""By how many quarters the rows of eight steps are longer than their mean, where lengths vary; in an order drawn
for every eight. So texts are not cut at the same places in every epoch, and there are only five shapes."""
_HALVED, _SPREAD, _SHORTEST = 20, 14, 5
"""Where lengths are drawn as in AWD-LSTM: one step in 20 has rows of about half the length; lengths are normal around
that, with a standard deviation of a 14th of the full one, and at least 5."""


@dataclass(frozen=True, kw_only=True)
class Streams(Layout):
    """Every row of a step is a stream of its own, which the row of the next step continues."""

    carries_memory: ClassVar[bool] = True

    ahead: int = 1
    """How many pieces of the next row a row shows too, as targets: it has `length + ahead` pieces."""
    both_ways: bool = False
    """Whether a row is followed by one of the same stream read from its end: step after step these go towards the
    beginning, for a backward encoder. They too are in the order of the text; what they show of the next row is at their
    beginning."""
    backwards: bool = False
    """Whether all rows are such ones, and none is read from the beginning."""

    def check(self, options: RowOptions, objective: str) -> None:
        if options.mask_documents or options.reset_positions:
            raise OptionError(
                "A stream continues over the ends of documents with its memory, so mask_documents and reset_positions "
                "cannot be followed. Leave these out."
            )

    def rows(self, corpus: Corpus, options: RowOptions) -> StreamRows:
        """As many streams as a step has rows; of held-out text fewer, so that each is long."""
        if options.split != "train":
            most = max(corpus.n_pieces(options.split) // (HELD_OUT_ROWS * options.length), 1)
            options = replace(options, batch_size=min(options.batch_size, most))
        return StreamRows(corpus, options, self)


class StreamRows(RowSource):
    """A split as `n` streams that are read side by side, each in order: row step · n + k continues stream k where the
    row of the step before ended.

    Rows have no frame, only the separators between documents. The split, all sources one after another, is a ring; the
    streams begin at places equally far from each other and read on and on, so that in the next epoch each goes through
    what another has read before it, and a memory always holds the text before the row. Weights other than 1
    are refused.
    """

    def __init__(self, corpus: Corpus, options: RowOptions, layout: Streams) -> None:
        super().__init__(corpus, options)
        self.n, self.ahead = options.batch_size, layout.ahead
        self.both_ways, self.backwards = layout.both_ways, layout.backwards
        self.varied, self.varied_by = options.varied and self.is_shuffled, options.varied_by
        if self.n < 1 or self.length < 1:
            raise OptionError(
                f"Streams need at least 1 stream and rows of at least 1 piece. Got {self.n} and {self.length}."
            )
        for source in corpus.sources:
            if source.weight != 1 and self.is_shuffled:
                raise OptionError(
                    f"The source {source.name!r} has the weight {source.weight:g}, and streams read every source once, "
                    "in order. Build the corpus without weights, or choose an objective that reads packed rows."
                )
        self._shards = corpus.shards(self.split)
        self._total = sum(map(len, self._shards))

    @property
    def n_rows(self) -> int:
        """Rows of an epoch, over all streams; 0 if the split does not fill one row per stream."""
        return self.n * (max(self._total // self.n - self.ahead, 0) // self.length)

    def evaluation_steps(self, batch_size: int, max_pieces: int) -> Sequence[Ints]:
        most = min(EVALUATION_STEPS, max(max_pieces // (self.n * self.length), 1))
        return [step * self.n + np.arange(self.n) for step in range(min(self.n_rows // self.n, most))]

    def rows(self, indices: Ints) -> Rows:
        """The rows at these indices; where lengths vary, they must be of one step."""
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(
                f"The split {self.split!r} of {self.corpus.folder} has {self._total:,} pieces, which do not "
                f"fill a row of {self.length} in {self.n} streams. Choose fewer streams or shorter rows."
            )
        if not self.is_shuffled:
            indices = indices % self.n_rows
        steps, streams = np.divmod(indices, self.n)
        done, length = self._done(steps)
        first = int(uniform(row_keys(self.seed, 0, 0), "phase", 1)[0, 0] * self._total) if self.is_shuffled else 0
        begins = first + streams * (self._total // self.n)
        shown = length + self.ahead
        at = ring((begins + done) % self._total, shown, self._total)
        if self.both_ways or self.backwards:
            ends = begins + self._total // self.n - done
            from_end = ring((ends - shown) % self._total, shown, self._total)
            at = np.concatenate([at, from_end], axis=1) if self.both_ways else from_end
        pieces, starts = gather(self._shards, at)
        special = np.zeros(at.shape, np.bool_) if self.corpus.separator is None else pieces == self.corpus.separator
        epochs, places = np.divmod(indices, self.n_rows)
        return Rows(pieces=pieces, starts=starts, special=special, keys=row_keys(self.seed, epochs, places))

    def _done(self, steps: Ints) -> tuple[Ints, int]:
        """The position of each stream before these steps, and the length of their rows."""
        if not self.varied:
            return steps * self.length, self.length
        if len(steps) and (steps != steps[0]).any():
            raise ValueError("Rows of several steps differ in length, so they cannot be read together.")
        drawn = _by_quarters if self.varied_by == "quarters" else _normal
        n_steps, total = len(drawn(self.length, self.seed, 0)), int(drawn(self.length, self.seed, 0).sum())
        cycle, place = divmod(int(steps[0]) if len(steps) else 0, n_steps)
        lengths = drawn(self.length, self.seed, cycle)
        done = cycle * total + int(lengths[:place].sum())
        return np.full(len(steps), done, np.int64), int(lengths[place])

    @property
    def mean_length(self) -> float:
        if not self.varied or self.varied_by == "quarters":
            return float(self.length)
        return float(_normal(self.length, self.seed, 0).mean())


def _by_quarters(length: int, seed: int, cycle: int) -> Ints:
    """The lengths of the steps of a cycle; their sum is the same in every cycle."""
    order = permutation_at(len(_QUARTERS), epoch_key(seed, cycle, 0), np.arange(len(_QUARTERS)))
    lengths: Ints = length + (length // 4) * np.array(_QUARTERS)[order]
    return lengths


def _normal(length: int, seed: int, cycle: int) -> Ints:
    """The same as in AWD-LSTM (Merity et al. 2018), but that a cycle has exactly one halved step, and that what its
    draws add up to besides is taken back evenly: so where a step begins is known without those before it.
    """
    order = permutation_at(_HALVED, epoch_key(seed, cycle, 0), np.arange(_HALVED))
    base = np.where(order == 0, length // 2, length)
    one, other = np.split(uniform(row_keys(seed, cycle, 0), "lengths", 2 * _HALVED)[0], 2)
    normal = np.sqrt(-2 * np.log1p(-one)) * np.cos(2 * np.pi * other)
    least = min(_SHORTEST, int(base.min()))
    lengths: Ints = np.maximum(np.rint(base + normal * length / _SPREAD).astype(np.int64), least)
    while (excess := int(lengths.sum() - base.sum())) != 0:
        changed = np.flatnonzero(lengths > least)[: abs(excess)] if excess > 0 else np.arange(_HALVED)[:-excess]
        lengths[changed] -= np.sign(excess)
    return lengths
