"""The types of a text, numbered as they come, and what is known of each: the tables of `fast_tokenization`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_OF_PIECES = ("pieces", "starts", "sentences")
"""Columns with one value per piece; the others have one per type."""


def distinct_stretches(text: bytes) -> tuple[list[bytes], NDArray[np.int32]]:
    """The different stretches between two blanks, by their first occurrence, and which of them each stretch is.

    >>> stretches, numbers = distinct_stretches(b"to be or not to be")
    >>> stretches, numbers.tolist()
    ([b'to', b'be', b'or', b'not'], [0, 1, 2, 3, 0, 1])
    """
    text += b" "  # each stretch has the blank that ends it, so that the stretches fill the text
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(" ")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    encoded = pa.Array.from_buffers(pa.binary(), len(ends), buffers).dictionary_encode()
    distinct = encoded.dictionary.buffers()[2].to_pybytes()[:-1].split(b" ")
    return distinct, np.frombuffer(encoded.indices.buffers()[1], np.int32)  # `to_numpy` would import pandas


class Numbers(dict[bytes, int]):
    """Numbers of types; one that is new gets the next, and is kept to be spelled."""

    def __init__(self) -> None:
        self.new: list[bytes] = []
        self.size = 0

    def __missing__(self, stretch: bytes) -> int:
        number = self[stretch] = len(self)
        self.new.append(stretch)
        self.size += len(stretch)
        return number


class Tables:
    """What is known of each type, one column each, and the pieces of all of them one after another."""

    def __init__(self) -> None:
        self._n_types = self._n_pieces = 0
        self._columns: dict[str, NDArray[Any]] = {}

    def add(self, **columns: NDArray[Any]) -> None:
        """More of them, in order."""
        columns["firsts"] = np.cumsum(columns["counts"]) - columns["counts"] + self._n_pieces
        for name, column in columns.items():
            self._grow(name, column, self._n_pieces if name in _OF_PIECES else self._n_types)
        self._n_types += len(columns["counts"])
        self._n_pieces += len(columns["pieces"])

    def put_together(self, made_of: Mapping[int, Sequence[int]]) -> None:
        """Give types that are made of others their pieces."""
        if not made_of:
            return
        n_parts = np.fromiter(map(len, made_of.values()), np.int64, len(made_of))
        parts = np.fromiter(chain.from_iterable(made_of.values()), np.int64, int(n_parts.sum()))
        places, counts = self.gathered(parts)
        sums = np.add.reduceat(counts, np.cumsum(n_parts) - n_parts)
        numbers = np.fromiter(made_of, np.int64, len(made_of))
        self.counts[numbers] = sums
        self.firsts[numbers] = np.cumsum(sums) - sums + self._n_pieces
        for name in _OF_PIECES:
            self._grow(name, self._columns[name][places], self._n_pieces)
        self._n_pieces += len(places)

    def _grow(self, name: str, column: NDArray[Any], n: int) -> None:
        """Write values after the first `n` of a column."""
        grown = self._columns.setdefault(name, np.zeros(1024, column.dtype))
        if n + len(column) > len(grown):
            more = np.zeros(n // 2 + max(len(grown), len(column)), grown.dtype)
            grown = self._columns[name] = np.concatenate([grown[:n], more])
        grown[n : n + len(column)] = column

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(name)
        return self._columns[name]

    def gathered(self, types: NDArray[Any]) -> tuple[Ints, Ints]:
        """The places of the pieces of some types, one after another, and how many each has."""
        if not len(types):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        counts = self.counts[types]
        ends = np.cumsum(counts)
        places = np.repeat(self.firsts[types] - ends + counts, counts)
        places += np.arange(len(places))
        return places, counts
