"""fastText's own files: `.bin`, and `.ftz` with a product-quantized table and a pruned dictionary.

A file is a magic number, the version, the settings, the dictionary, the input table and the output table, which word
vectors do not need. The dense table is not read but mapped into memory.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import ModelError
from polyseme.text.character_ngrams import CharacterNgrams

Matrix = NDArray[np.float32]
MAGIC = struct.pack("<i", 793712314)
VERSIONS = (11, 12)
SUPERVISED = 3
N_CENTROIDS = 256
LONGEST_WORD = 1 << 16
"""Bytes of a word, beyond which a dictionary is taken to be damaged."""


@dataclass(frozen=True)
class FastText:
    """Words as bytes, the table [words + buckets, D], and how n-grams find their rows; None: words have none."""

    words: list[bytes]
    table: Matrix
    ngrams: CharacterNgrams | None


class _File:
    """Reads a mapped file from its start, and says where it ends too early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            # Private pages: training writes to copies of them, never to the file.
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.place = 0

    def take(self, layout: str, part: str) -> tuple[Any, ...]:
        start = self._skip(struct.calcsize(f"<{layout}"), part)
        return struct.unpack_from(f"<{layout}", self.bytes, start)

    def array(self, dtype: str, count: int, part: str) -> NDArray[Any]:
        start = self._skip(np.dtype(dtype).itemsize * count, part)
        return np.frombuffer(self.bytes, dtype, count, start)

    def string(self, part: str) -> bytes:
        end = self.bytes.find(b"\0", self.place, self.place + LONGEST_WORD)
        if end < 0:
            raise self.damaged(part)
        start, self.place = self.place, end + 1
        return self.bytes[start:end]

    def _skip(self, size: int, part: str) -> int:
        if size < 0 or self.place + size > len(self.bytes):
            raise self.damaged(part)
        start, self.place = self.place, self.place + size
        return start

    def damaged(self, part: str) -> ModelError:
        return ModelError(
            f"The fastText model {self.path} ends, or makes no sense, in {part} (byte {self.place:,} of "
            f"{len(self.bytes):,}). The file is cut short or damaged; fetch it again."
        )


def read_fasttext(path: Path) -> FastText:
    """The words and the table of a `.bin` or `.ftz` file."""
    file = _File(path)
    _, version = file.take("4si", "its first bytes")
    if version not in VERSIONS:
        raise ModelError(
            f"The fastText model {path} has format {version}; polyseme reads {' and '.join(map(str, VERSIONS))}, as "
            "fastText has written them since 2017. Export the model again with a newer fastText."
        )
    width, *_, model, n_buckets, min_ngram, max_ngram, _ = file.take("12i", "the settings")
    file.take("d", "the settings")
    if version == min(VERSIONS) and model == SUPERVISED:
        max_ngram = 0  # classifiers of that format had no n-grams
    n_entries, n_words, _, _, n_pruned_rows = file.take("3i2q", "the dictionary")
    if n_words < 1 or n_entries < n_words or width < 1:
        raise ModelError(f"The fastText model {path} holds no words ({n_words:,} of width {width}), so no vectors.")
    words = []
    for number in range(n_entries):
        word = file.string("the dictionary")
        file.take("qb", "the dictionary")
        if number < n_words:  # labels of a classifier follow
            words.append(word)
    pairs = file.array("<i4", 2 * max(n_pruned_rows, 0), "the pruned dictionary").reshape(-1, 2)
    (quantized,) = file.take("?", "the table")
    table = _read_quantized(file) if quantized else _dense(file)
    if not quantized and n_pruned_rows >= 0:
        raise ModelError(
            f"The dictionary of the fastText model {path} is pruned and its table is not, which fastText itself "
            "refuses: n-grams have no rows there, so vectors cannot be had. Fetch the published file again."
        )
    ngrams = None
    buckets = _by_row(pairs, file) if n_pruned_rows >= 0 else None
    if max_ngram > 0 and n_buckets > 0:
        ngrams = CharacterNgrams(max(min_ngram, 1), max_ngram, n_buckets, buckets)
    n_rows = n_words + (n_buckets if n_pruned_rows < 0 else n_pruned_rows)
    if table.shape != (n_rows, width):
        raise ModelError(
            f"The table of the fastText model {path} is {table.shape[0]:,} × {table.shape[1]}, and its dictionary and "
            f"settings ask for {n_rows:,} × {width}. Vectors cannot be had from it; fetch the file again."
        )
    _check_output(file)
    return FastText(words, table if ngrams is not None else table[:n_words], ngrams)


def _by_row(pairs: NDArray[np.int32], file: _File) -> tuple[int, ...]:
    """The buckets of a pruned dictionary in the order of their rows."""
    order = np.argsort(pairs[:, 1])
    if not np.array_equal(pairs[order, 1], np.arange(len(pairs))):
        raise file.damaged("the pruned dictionary")
    return tuple(pairs[order, 0].tolist())


def _dense(file: _File) -> Matrix:
    n_rows, width = file.take("2q", "the table")
    return file.array("<f4", n_rows * width, "the table").reshape(n_rows, width)


def _check_output(file: _File) -> None:
    """Refuse a file that is cut short behind the words: it is damaged, even if their vectors are whole."""
    (quantized,) = file.take("?", "the output")
    if quantized:
        _read_quantized(file)
    else:
        _dense(file)


# --- product quantization --------------------------------------------------------------------------------------------


def _read_quantized(file: _File) -> Matrix:
    """A table of codes as numbers; a row is its centroids side by side, times its norm where that is kept apart."""
    part = "the quantized table"
    has_norms, n_rows, width, n_codes = file.take("?2qi", part)
    codes = file.array("u1", n_codes, part)
    centroids = _centroids(file, width, part)
    if n_codes != n_rows * len(centroids):
        raise file.damaged(part)
    codes = codes.reshape(n_rows, len(centroids))
    table = np.concatenate([each[codes[:, number]] for number, each in enumerate(centroids)], axis=1)
    if has_norms:
        norm_codes = file.array("u1", n_rows, part)
        [norms] = _centroids(file, 1, part)
        table *= norms[norm_codes]
    return np.ascontiguousarray(table, np.float32)


def _centroids(file: _File, width: int, part: str) -> list[Matrix]:
    """The centroids of each part of a row: [256, width of the part]."""
    total, n_parts, part_width, last_width = file.take("4i", part)
    if (
        total != width
        or n_parts < 1
        or (n_parts - 1) * part_width + last_width != width
        or min(part_width, last_width) < 1
    ):
        raise file.damaged(part)
    numbers = file.array("<f4", total * N_CENTROIDS, part)
    cuts = [number * N_CENTROIDS * part_width for number in range(1, n_parts)]
    return [each.reshape(N_CENTROIDS, -1) for each in np.split(numbers, cuts)]
