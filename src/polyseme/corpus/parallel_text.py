"""Parallel text: line n of one side belongs to line n of the other, as a translation belongs to what it translates.

Sides are files of plain text, compressed or not, one text per line. Pairs are documents of two sides (`shards`).

Pairs are of all lengths. Rows that hold one each would mostly be padding, so a row takes as many as fit on both sides
and tells which piece is of which pair, and where in it. All rows are of one shape.

Shapes: R rows, T pieces of a row, on either side.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.document_reader import DocumentStretch, Tally, in_stretches, plain_lines
from polyseme.corpus.layout import Ints, Layout, RowOptions, RowSource, gather
from polyseme.corpus.random_keys import permutation_at, row_keys
from polyseme.corpus.shards import SIDES, Shard
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.readers import ENDINGS
from polyseme.files.source import STANDARD_INPUT, suffixes
from polyseme.files.source_paths import InputFiles, Sources, find_files
from polyseme.text.ragged_arrays import places_within
from polyseme.types import Rows

ALL = 2.0
"""A share above every document's random number: all are held out."""
NOBODY = -1
"""The number of the pair that padding belongs to."""


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass
class PairSource:
    """Files of two sides that belong together; read as `document_reader.TextSource` is."""

    name: str
    files: Mapping[str, InputFiles]
    """By side."""
    held_out: float | None = None
    """The share that is held out for evaluation; None: the share of the whole corpus."""
    weight: float = 1.0
    tally: Tally = dataclasses.field(default_factory=Tally)

    @property
    def sides(self) -> Sequence[str]:
        return tuple(self.files)

    @property
    def paths(self) -> InputFiles:
        """The files of all sides."""
        return InputFiles(*(list(chain(*columns)) for columns in zip(*self.files.values(), strict=True)))

    @property
    def total(self) -> int:
        """Bytes of the files, as they lie on the disk."""
        return self.paths.total or 0

    def stretches(self) -> Iterator[DocumentStretch]:
        """The pairs, source and target in turn; those that are empty on both sides left out."""
        self.tally = Tally()
        return in_stretches(self._pairs())

    def _pairs(self) -> Iterator[tuple[tuple[bytes, bytes], int]]:
        before = 0
        one, other = self.files.values()
        for *names, size, other_size in zip(one.names, other.names, one.sizes, other.sizes, strict=True):
            sides = [plain_lines(name) for name in names]
            for number, lines in enumerate(zip_longest(*sides), start=1):
                if lines[0] is None or lines[1] is None:
                    short, long = names if lines[0] is None else names[::-1]
                    raise InputError(
                        f"{short} has {number - 1:,} lines, and {long} continues with line {number:,}. The sides of "
                        "pairs must have equally many lines: line n of one belongs to line n of the other."
                    )
                pair = (lines[0][0], lines[1][0])
                empty = [not text.strip() for text in pair]
                if all(empty):
                    self.tally.empty += 1
                elif any(empty):
                    blank, full = names if empty[0] else names[::-1]
                    raise InputError(
                        f"{blank}, line {number:,}: it is empty, and line {number:,} of {full} is not. A source needs "
                        "its target: write what is missing, or take the line out of both files."
                    )
                else:
                    yield pair, before + lines[0][1] + lines[1][1]
            before += (size or 0) + (other_size or 0)


def pair_sources(
    source: Sources | None, target: Sources | None, held_source: Sources | None, held_target: Sources | None
) -> list[PairSource]:
    """What the user names, checked as far as it can be before anything is read."""
    train = {"source": source, "target": target}
    held = {"held_source": held_source, "held_target": held_target}
    _refuse_one_side(train)
    if held_source is not None or held_target is not None:
        _refuse_one_side(held)
        held_pairs = PairSource("held", _files(dict(zip(SIDES, held.values(), strict=True))), held_out=ALL)
        return [PairSource("text", _files(train), held_out=0.0), held_pairs]
    return [PairSource("text", _files(train))]


def _refuse_one_side(sides: Mapping[str, Sources | None]) -> None:
    missing = [name for name, files in sides.items() if files is None]
    if missing:
        there = next(name for name in sides if name not in missing)
        raise OptionError(
            f"Pairs have two sides: {there!r} was given without {missing[0]!r}. Name the files of both "
            f"(--{there.replace('_', '-')} … --{missing[0].replace('_', '-')} …)."
        )


def _files(sides: Mapping[str, Sources | None]) -> dict[str, InputFiles]:
    files = {side: find_files(paths or (), endings=None) for side, paths in sides.items()}
    for name in chain.from_iterable(each.names for each in files.values()):
        kind = ENDINGS.get(suffixes(name)[0], "text")
        if name == STANDARD_INPUT or kind != "text":
            input_name = "standard input" if name == STANDARD_INPUT else f"{name} ({kind})"
            raise InputError(
                f"The sides of pairs are files of plain text, one text per line. Got {input_name} instead."
            )
    counts = [len(each.names) for each in files.values()]
    if counts[0] != counts[1]:
        raise InputError(
            f"The sides of pairs must have equally many files. Got {counts[0]} of the one and {counts[1]} of the other."
        )
    return files


# --- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ParallelPairs(Layout):
    """Rows of pairs; which pairs share a row is decided by the seed, the order of rows by the epoch."""

    sides: ClassVar[tuple[str, ...]] = SIDES

    def rows(self, corpus: Corpus, options: RowOptions) -> ParallelRows:
        return ParallelRows(corpus, options)


class Side(NamedTuple):
    """One side of all pairs, without separators."""

    shards: list[Shard]
    begins: Ints
    """[pairs]: where each begins in all shards together …"""
    lengths: Ints
    """[pairs]: … and how many pieces it has."""

    @classmethod
    def of(cls, corpus: Corpus, split: str, side: str) -> Side:
        shards = corpus.shards(split, side)
        before = np.cumsum([0, *map(len, shards)])
        ends = np.concatenate([shard.ends + first for shard, first in zip(shards, before[:-1], strict=True)])
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
        return cls(shards, begins, ends - begins - (corpus.separator is not None))


class ParallelRows(RowSource):
    """Rows that hold pairs, each hidden from the others; the pairs of a row stay together in every epoch.

    A pair that is longer than a row on either side is left out, with a warning.
    """

    def __init__(self, corpus: Corpus, options: RowOptions) -> None:
        super().__init__(corpus, options)
        frame = corpus.tokenizer.frame(np.zeros(0, np.int64))
        self._before, self._after = frame.ids[: frame.offset], frame.ids[frame.offset :]
        self._pad = corpus.tokenizer.specials.get("pad", 0)
        self._sides = {side: Side.of(corpus, self.split, side) for side in SIDES}
        self._framed = {side: each.lengths + len(frame.ids) for side, each in self._sides.items()}
        """[pairs]: pieces with those of the frame, by side."""

    @property
    def n_rows(self) -> int:
        """Rows of an epoch; 0 if no pair fits into a row."""
        return len(self._packed[0]) - 1

    @cached_property
    def _packed(self) -> tuple[Ints, Ints]:
        """[rows + 1]: where the pairs of each row begin among those that fit, and these in the order of the rows."""
        order = self.fitting
        if self.is_shuffled and len(order):
            key = int(row_keys(self.seed, -1, 0)[0])
            order = order[permutation_at(len(order), key, np.arange(len(order)))]
        source, target = (self._framed[side][order] for side in SIDES)
        return _filled(source, target, self.length), order

    @cached_property
    def fitting(self) -> Ints:
        """The pairs that fit into a row."""
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
        return fitting

    def rows(self, indices: Ints) -> Rows:
        indices = np.asarray(indices, np.int64)
        if not self.n_rows:
            raise OptionError(
                f"The split {self.split!r} of {self.corpus.folder} has no pair that fits into rows of {self.length} "
                "pieces. Choose longer rows, or give more pairs."
            )
        epochs, places, numbers = self.placed(indices)
        keys = row_keys(self.seed, epochs, places)
        begins, order = self._packed
        counts = begins[numbers + 1] - begins[numbers]
        rows = np.repeat(np.arange(len(numbers)), counts)
        within = places_within(counts)
        pairs = order[np.repeat(begins[numbers], counts) + within]
        source, target = (self._laid_out(side, rows, within, pairs, keys) for side in SIDES)
        return dataclasses.replace(source, target=target)

    def _laid_out(self, side: str, rows: Ints, within: Ints, pairs: Ints, keys: NDArray[np.uint64]) -> Rows:
        """One side of some rows: pair number `pairs[n]` is number `within[n]` in row `rows[n]`."""
        shards, begins, side_lengths = self._sides[side]
        lengths = self._framed[side][pairs]
        ends = np.cumsum(lengths)
        new = np.flatnonzero(within == 0)
        first = ends - lengths - np.repeat((ends - lengths)[new], np.diff(new, append=len(pairs)))  # place in the row
        inside = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)  # [pieces]: place in the pair
        owner = np.repeat(np.arange(len(pairs)), lengths)
        at = (rows[owner], first[owner] + inside)

        shape = (len(keys), self.length)
        pieces = np.full(shape, self._pad, np.int64)
        starts, special = np.ones(shape, np.bool_), np.ones(shape, np.bool_)
        documents, positions = np.full(shape, NOBODY, np.int64), np.zeros(shape, np.int64)
        documents[at], positions[at] = within[owner], inside

        n_before = len(self._before)
        text = (inside >= n_before) & (inside < n_before + side_lengths[pairs][owner])
        flat = np.empty(len(inside), np.int64)
        flat_starts = np.ones(len(inside), np.bool_)
        for number, piece in enumerate(self._before):
            flat[inside == number] = piece
        from_end = lengths[owner] - inside  # 1: the last
        for number, piece in enumerate(self._after[::-1], start=1):
            flat[from_end == number] = piece
        places = begins[pairs][owner] + inside - n_before
        flat[text], flat_starts[text] = gather(shards, places[text])
        pieces[at], starts[at], special[at] = flat, flat_starts, ~text
        return Rows(pieces=pieces, starts=starts, special=special, keys=keys, documents=documents, positions=positions)


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
