"""Files of word vectors: GloVe's text, and word2vec's text and binary formats.

A line of text is a word and its numbers. word2vec puts a line with the number of words and the width first, and in its
binary format the word is followed by a blank and the bytes of its numbers. Text is parsed in blocks by Arrow; a block
in which anything is unusual is parsed again line by line, which finds the line that an error is about.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from polyseme.errors import ModelError

Matrix = NDArray[np.float32]
HEAD = 1 << 20
"""Bytes that are read to tell what a file is; the first lines must be within them."""
BLOCK = 1 << 23
"""Bytes of text that are parsed at once."""
LONGEST_WORD = 1 << 12
"""Bytes of a word in the binary format, beyond which the file is taken to be something else."""
MOST_DIGITS = 40
"""Of a number in a header; a longer one makes the line no header."""
BLOCK_ROWS = 1 << 16
"""Vectors of the binary format that are checked at once."""
PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class WordFile:
    """What the first lines of a file say."""

    kind: Literal["text", "binary"]
    width: int
    n_words: int | None
    """As the header says, where there is one."""
    start: int
    """Where the first word begins."""
    blank: bytes = b" "
    """What separates words and numbers."""


def recognize(head: bytes) -> WordFile | None:
    """The format of a file of word vectors, by its first bytes; None: it is none."""
    first, _, rest = head.partition(b"\n")
    blank = b"\t" if b"\t" in first and b" " not in first else b" "
    fields = first.rstrip(b" \t\r").split(blank)
    if len(fields) == 2 and all(field.isdigit() and len(field) <= MOST_DIGITS for field in fields):
        n_words, width = map(int, fields)
        line = rest.partition(b"\n")[0].rstrip(b" \t\r")
        separator = b"\t" if b"\t" in line and b" " not in line else b" "
        numbers = line.split(separator)[1:]
        is_text = bool(numbers) and _numbers(numbers[-width:]) is not None
        return WordFile("text" if is_text else "binary", width, n_words, len(first) + 1, separator if is_text else b" ")
    if len(fields) > 2 and b"\0" not in first and _numbers(fields[1:]) is not None:
        return WordFile("text", len(fields) - 1, None, 0, blank)
    return None


def packed_as(head: bytes) -> str | None:
    """What a file is compressed with, if it is."""
    return next((name for magic, name in PACKED.items() if head.startswith(magic)), None)


def read_words(path: Path, file: WordFile) -> tuple[list[bytes], Matrix]:
    """The words of a file as bytes, and their vectors [n, D]."""
    if file.width < 1 or file.n_words == 0:
        raise ModelError(f"The header of {path} announces {file.n_words} words of width {file.width}: no vectors.")
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _read_text(path, file, content) if file.kind == "text" else _read_binary(path, file, content)


# --- text ------------------------------------------------------------------------------------------------------------


def _read_text(path: Path, file: WordFile, content: mmap.mmap) -> tuple[list[bytes], Matrix]:
    end = len(content)
    while end > file.start and content[end - 1 : end] in b"\r\n ":
        end -= 1
    blocks = list(_blocks(content, file.start, end))
    counts = [content[start:stop].count(b"\n") + (stop == end) for start, stop in blocks]
    n_lines = sum(counts)
    if file.n_words not in (None, n_lines):
        raise _damage_error(path, file, f"{n_lines:,} lines")
    vectors = np.empty((n_lines, file.width), np.float32)
    firsts = [0, *itertools.accumulate(counts)]

    def parse(number: int) -> list[bytes]:
        room = vectors[firsts[number] : firsts[number + 1]]
        block = content[slice(*blocks[number])]
        words = _parse_fast(block, file, room)
        if words is None:
            first_line = firsts[number] + 1 + (file.start > 0)
            words = _parse_lines(path, block, first_line, file, room)
        return words

    with ThreadPoolExecutor(min(len(blocks) or 1, os.cpu_count() or 1)) as pool:
        words = list(itertools.chain.from_iterable(pool.map(parse, range(len(blocks)))))
    return words, vectors


def _blocks(content: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of a text that end with a line."""
    while start < end:
        stop = content.find(b"\n", min(start + BLOCK, end), end) + 1
        yield start, stop or end
        start = stop or end


def _parse_fast(block: bytes, file: WordFile, room: Matrix) -> list[bytes] | None:
    """Arrow's reader, which rounds as Python does; None where a line is not plainly a word and its numbers."""
    names = [str(number) for number in range(file.width + 1)]
    ends_in_blank = block.partition(b"\n")[0].rstrip(b"\r").endswith(file.blank)
    types = {"0": pa.binary(), **dict.fromkeys(names[1:], pa.float64())}
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            read_options=csv.ReadOptions(
                column_names=[*names, "rest"] if ends_in_blank else names, block_size=len(block) + 1, use_threads=False
            ),
            parse_options=csv.ParseOptions(
                delimiter=file.blank.decode(), quote_char=False, double_quote=False, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(
                column_types={**types, "rest": pa.null()}, null_values=[""], include_columns=names
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if len(table) != len(room) or any(column.null_count for column in table.columns):
        return None
    for number, column in enumerate(table.columns[1:]):
        room[:, number] = column.to_numpy()
    words: list[bytes] = table.column(0).to_pylist()
    return words if np.isfinite(room).all() else None


def _parse_lines(path: Path, block: bytes, first_line: int, file: WordFile, room: Matrix) -> list[bytes]:
    """Line by line. A word may hold blanks (as some of GloVe's 840B do), as long as what follows them is no number."""
    words = []
    for number, line in enumerate(block.removesuffix(b"\n").split(b"\n")):
        where = f"{path}, line {first_line + number:,}"
        fields = line.rstrip(b" \t\r").split(file.blank)
        extra = len(fields) - 1 - file.width
        if extra < 0 or any(_numbers([field]) is not None for field in fields[1 : 1 + extra]):
            raise ModelError(
                f"{where}: a word and {file.width} numbers are expected, as in the first line. Got "
                f"{len(fields) - 1} after the word {_quote(fields[0])}. The file is damaged, or of two models; fetch "
                "it again."
            )
        values = _numbers(fields[1 + extra :])
        if values is None:
            raise ModelError(
                f"{where}: what follows the word {_quote(fields[0])} are not {file.width} finite numbers. The file is "
                "damaged; fetch it again."
            )
        words.append(file.blank.join(fields[: 1 + extra]))
        room[number] = values
    return words


def _numbers(fields: Sequence[bytes]) -> NDArray[np.float64] | None:
    """Fields as finite numbers, or None."""
    try:
        values = np.array([float(field) for field in fields])
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


# --- binary ----------------------------------------------------------------------------------------------------------


def _read_binary(path: Path, file: WordFile, content: mmap.mmap) -> tuple[list[bytes], Matrix]:
    words, starts = [], []
    size, place = 4 * file.width, file.start
    n_words = file.n_words or 0
    for number in range(n_words):
        blank = content.find(b" ", place, place + LONGEST_WORD)
        if blank < 0 or blank + 1 + size > len(content):
            raise ModelError(
                f"{path} ends, or makes no sense, in word {number + 1:,} of the {n_words:,} (of width {file.width}) "
                "that its header announces. The file is cut short or its header is wrong; fetch it again."
            )
        words.append(content[place:blank].lstrip(b"\r\n"))
        starts.append(blank + 1)
        place = blank + 1 + size
    if content[place : place + LONGEST_WORD].strip(b"\r\n \0"):
        raise _damage_error(path, file, f"{len(content) - place:,} bytes more")
    rows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(content, np.uint8), size)
    vectors = rows[np.array(starts)].view("<f4").astype(np.float32, copy=False)
    for first in range(0, n_words, BLOCK_ROWS):
        finite = np.isfinite(vectors[first : first + BLOCK_ROWS]).all(axis=1)
        if not finite.all():
            number = first + int(finite.argmin())
            raise ModelError(
                f"{path}, word {number + 1:,}: the vector of {_quote(words[number])} has numbers that are none (NaN) "
                "or infinite. The file is damaged; fetch it again."
            )
    return words, vectors


def _damage_error(path: Path, file: WordFile, content: str) -> ModelError:
    return ModelError(
        f"The header of {path} announces {file.n_words:,} words of width {file.width}, and the file has {content}. It "
        "is cut short, or the header is wrong: fetch it again, or correct its first line."
    )


def _quote(word: bytes) -> str:
    return repr(word[:40].decode("utf-8", "replace"))
