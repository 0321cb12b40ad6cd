"""Exact counts of the n-grams of a corpus, in bounded memory.

The corpus is read as one stream: each document behind the piece that begins texts. Order by order, each place has the
number of the n-gram of the order below that ends before it, so that an n-gram is a key of 64 bits (`tables`), whatever
the order. Keys are sorted block by block, the sorted runs lie on the disk, and are merged range by range; then every
place is given the number of its n-gram, from which the next order begins.

No n-gram goes from one document into the next. Below the highest order the Kneser–Ney count of an n-gram is the number
of different pieces before it, but for n-grams that begin a text, which nothing precedes: they keep their occurrences.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.shards import Shard
from polyseme.errors import InputError
from polyseme.ngrams.tables import Ints, find

BLOCK = 1 << 22
"""Places of the stream, or n-grams, that are in memory at once."""
OnOrder = Callable[[int, int], None]
"""Called with each order, once it is counted, and the number of its n-grams."""


@dataclass(frozen=True)
class NGramCounts:
    """The n-grams of a corpus. Arrays are mapped from files, which are in the folder that was counted in."""

    n_pieces: int
    keys: Sequence[Ints]
    """Of the orders 2 to O, as in `tables`."""
    counts: Sequence[Ints]
    """Of the orders 1 to O: how often it occurs in the highest order, else how many different pieces precede it."""
    suffixes: Sequence[Ints]
    """Of the orders 2 to O: the number of each n-gram without its first piece."""
    arrays: Arrays

    @property
    def order(self) -> int:
        return len(self.counts)


class Arrays:
    """New arrays in files of a folder, mapped into memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0

    def new(self, n: int, dtype: Any) -> NDArray[Any]:
        """N numbers, all 0."""
        if not n:
            return np.zeros(0, dtype)
        self._number += 1
        return np.memmap(self.folder / f"{self._number}.array", dtype, "w+", shape=(n,))

    def drop(self, array: NDArray[Any]) -> None:
        """Remove the file of an array that is not needed any more."""
        if isinstance(array, np.memmap) and array.filename is not None:
            with contextlib.suppress(OSError):  # some systems keep files that are mapped; the folder goes in the end
                Path(array.filename).unlink()


def blocks(n: int) -> Iterator[slice]:
    """The numbers below n, some at a time."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def count_ngrams(
    shards: Sequence[Shard], *, order: int, n_pieces: int, lead: int, folder: Path, on_order: OnOrder | None = None
) -> NGramCounts:
    """The n-grams of all documents up to an order. `lead` is what begins a text; files go to `folder`."""
    arrays = Arrays(folder)
    stream = _stream(shards, n_pieces, arrays)
    if not len(stream):
        raise InputError("There is no text to count n-grams in: the corpus has no pieces.")
    report = on_order or (lambda order, n: None)
    raw = np.zeros(n_pieces, np.int64)
    numbers = arrays.new(len(stream), np.int64)
    for block in blocks(len(stream)):
        raw += np.bincount(stream[block], minlength=n_pieces + 1)[:n_pieces]
        numbers[block] = np.where(stream[block] == n_pieces, lead, stream[block])
    report(1, int(np.count_nonzero(raw)))
    keys: list[Ints] = []
    counts: list[Ints] = [raw]
    suffixes: list[Ints] = []
    begins = np.zeros(n_pieces, np.bool_)  # unigrams are words that come next: none begins a text
    for n in range(2, order + 1):
        own, occurrences = _merge_runs(_runs(stream, numbers, n_pieces, arrays), arrays)
        suffix, first = arrays.new(len(own), np.int64), arrays.new(len(own), np.bool_)
        continuations = arrays.new(len(counts[-1]), np.int64)
        for block in blocks(len(own)):
            prefixes, last = np.divmod(own[block], n_pieces)
            suffix[block] = last if n == 2 else _find_unsorted(keys[-1], suffixes[-1][prefixes] * n_pieces + last)
            first[block] = prefixes == lead if n == 2 else begins[prefixes]
            np.add.at(continuations, suffix[block], 1)
        for block in blocks(len(continuations)):
            counts[-1][block] = np.where(begins[block], counts[-1][block], continuations[block])
        arrays.drop(continuations)
        if n < order:
            numbers = _numbered(stream, numbers, own, n_pieces)
        keys, counts, suffixes, begins = [*keys, own], [*counts, occurrences], [*suffixes, suffix], first
        report(n, len(own))
    return NGramCounts(n_pieces, keys, counts, suffixes, arrays)


def _stream(shards: Sequence[Shard], n_pieces: int, arrays: Arrays) -> NDArray[Any]:
    """The pieces of all documents, with `n_pieces`, which is no piece, where a text begins."""
    stream = arrays.new(sum(shard.counts.pieces + shard.counts.documents for shard in shards), np.uint32)
    at = 0
    for shard in shards:
        document = start = 0
        while document < len(shard.ends):
            after = max(int(np.searchsorted(shard.ends, start + BLOCK, side="right")), document + 1)
            end = int(shard.ends[after - 1])
            starts = np.concatenate([[start], shard.ends[document : after - 1]]) - start
            part = np.insert(shard.pieces[start:end].astype(np.uint32), starts, n_pieces)
            stream[at : at + len(part)] = part
            at, document, start = at + len(part), after, end
    return stream


def _keys(stream: NDArray[Any], numbers: Ints, block: slice, n_pieces: int) -> Ints:
    """The key of the n-gram that ends at each place of a block; -1 where there is none."""
    before = np.full(block.stop - block.start, -1, np.int64)
    first = max(block.start, 1)
    before[first - block.start :] = numbers[first - 1 : block.stop - 1]
    pieces = stream[block].astype(np.int64)
    return np.where((before < 0) | (pieces == n_pieces), -1, before * n_pieces + pieces)


def _runs(stream: NDArray[Any], numbers: Ints, n_pieces: int, arrays: Arrays) -> list[tuple[Ints, Ints]]:
    """The different keys of each block, sorted, and how often each occurs in it."""
    runs = []
    for block in blocks(len(stream)):
        keys, counts = np.unique(_keys(stream, numbers, block, n_pieces), return_counts=True)
        valid = slice(int(len(keys) > 0 and keys[0] < 0), None)
        run = arrays.new(len(keys[valid]), np.int64), arrays.new(len(keys[valid]), np.int64)
        run[0][:], run[1][:] = keys[valid], counts[valid]
        runs.append(run)
    return runs


def _merge_runs(runs: Sequence[tuple[Ints, Ints]], arrays: Arrays) -> tuple[Ints, Ints]:
    """The different keys of all runs, sorted, and how often each occurs in all."""
    if len(runs) == 1:
        return runs[0]
    sampled_every = max(BLOCK // (2 * len(runs)), 1)
    samples = np.sort(np.concatenate([keys[sampled_every::sampled_every] for keys, _ in runs]))
    bounds = samples[len(runs) :: len(runs)]  # between two of them, a run has about as many keys as lie between samples
    parts = [np.searchsorted(keys, bounds).tolist() for keys, _ in runs]
    ends = [[0, *part, len(keys)] for part, (keys, _) in zip(parts, runs, strict=True)]
    merged: list[tuple[Ints, Ints]] = []
    for number in range(len(bounds) + 1):
        theirs = [slice(end[number], end[number + 1]) for end in ends]
        keys = np.concatenate([run[0][part] for run, part in zip(runs, theirs, strict=True)])
        counts = np.concatenate([run[1][part] for run, part in zip(runs, theirs, strict=True)])
        order = np.argsort(keys, kind="stable")
        firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        if len(firsts):
            part = arrays.new(len(firsts), np.int64), arrays.new(len(firsts), np.int64)
            part[0][:], part[1][:] = keys[order][firsts], np.add.reduceat(counts[order], firsts)
            merged.append(part)
    for array in (each for run in runs for each in run):
        arrays.drop(array)
    total = sum(len(keys) for keys, _ in merged)
    whole = arrays.new(total, np.int64), arrays.new(total, np.int64)
    at = 0
    for keys, counts in merged:
        whole[0][at : at + len(keys)], whole[1][at : at + len(keys)] = keys, counts
        at += len(keys)
        arrays.drop(keys)
        arrays.drop(counts)
    return whole


def _numbered(stream: NDArray[Any], numbers: Ints, keys: Ints, n_pieces: int) -> Ints:
    """The number of the n-gram that ends at each place; -1 where there is none. Written over those of the order below.

    Blocks go from the end to the beginning, since a block reads the number at the place before its first.
    """
    for block in reversed(list(blocks(len(stream)))):
        numbers[block] = _find_unsorted(keys, _keys(stream, numbers, block, n_pieces))
    return numbers


def _find_unsorted(keys: Ints, queries: Ints) -> Ints:
    """`find`, in the order of the keys, which memory and disk are quicker with."""
    order = np.argsort(queries)
    places = np.empty(len(queries), np.int64)
    places[order] = find(keys, queries[order])
    return places
