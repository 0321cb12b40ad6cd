"""Vectors as flat arrays, all words end to end: the layout of `.npz` and `.safetensors` files.

| array | shape | |
|---|---|---|
| vectors | [N, D], or [N, layers, D] | one vector per word |
| words | N strings | |
| offsets | [N, 2] int64 | where each word starts and ends in its document's text, in characters |
| documents | [n + 1] int64 | the words of document i are `documents[i]:documents[i + 1]` |
| ids | n strings | |
| text | n strings | |
| fields | n strings | the fields copied from the input, one JSON object per document, where there are any |

Where a text has one vector, there are no words, offsets and documents, and `vectors` has one row per text.

Strings are two arrays: the UTF-8 of all of them end to end (`text`, uint8) and where each ends (`text_ends`).

Arrays grow in files of their own and are put together at the end, uncompressed; memory does not grow with the number of
documents.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from polyseme.files.vector_files import Per, Provenance, provenance_to_json
from polyseme.json_reading import parse_json
from polyseme.types import EmbeddedDocument, Word

BLOCK = 1 << 20
ARRAYS = ("vectors", "offsets", "documents")
STRINGS = ("ids", "text", "words", "fields")
_STRINGS_AT_ONCE = 10_000
_TYPES_OF = {
    "vectors": "fu",
    "offsets": "i",
    "documents": "i",
    **{f"{name}_ends": "i" for name in ("ids", "text", "words")},
}
"""The kinds of numbers of arrays; bf16 is read as its bits."""


class GrowingArray:
    """Rows of one array, of one type and shape, added to a file until all are known."""

    def __init__(self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self._path = path
        self._file = path.open("wb", buffering=BLOCK)
        self._row_shape = row_shape
        self.dtype = np.dtype(dtype)
        self.n_rows = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n_rows, *self._row_shape)

    @property
    def n_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))

    def add(self, rows: NDArray[Any]) -> None:
        if rows.size:
            self._file.write(np.ascontiguousarray(rows, self.dtype).data.cast("B"))
        self.n_rows += len(rows)

    def move_to(self, file: Any) -> None:
        """Write all rows to an open file, and remove them here."""
        with self.reopened() as rows:
            shutil.copyfileobj(rows, file, BLOCK)
        self._path.unlink()

    def reopened(self) -> BinaryIO:
        """The rows from their beginning; no more can be added."""
        self._file.close()
        return self._path.open("rb", buffering=BLOCK)

    def close(self) -> None:
        """Close the file; there may be no room for the rest of its buffer, which is no longer needed."""
        with contextlib.suppress(OSError):
            self._file.close()


class GrowingStrings:
    """Strings, as their UTF-8 end to end and where each ends."""

    def __init__(self, path: Path) -> None:
        self.bytes = GrowingArray(path, np.uint8)
        self.ends = GrowingArray(path.with_name(path.name + "_ends"), np.int64)
        self.longest = 1
        """Characters of the longest string."""
        self.trailing_nul = False

    def add(self, strings: Sequence[str]) -> None:
        encoded = [string.encode() for string in strings]
        ends = np.cumsum([len(string) for string in encoded], dtype=np.int64) + self.bytes.n_rows
        self.longest = max(self.longest, max(map(len, strings), default=0))
        self.trailing_nul = self.trailing_nul or any(string.endswith(b"\0") for string in encoded)
        self.bytes.add(np.frombuffer(b"".join(encoded), np.uint8))
        self.ends.add(ends)

    def in_blocks(self) -> Iterator[list[str]]:
        """All strings, read back; no more can be added."""
        n_strings, start = self.ends.n_rows, 0
        with self.bytes.reopened() as encoded, self.ends.reopened() as all_ends:
            for first in range(0, n_strings, _STRINGS_AT_ONCE):
                ends = np.frombuffer(all_ends.read(8 * min(_STRINGS_AT_ONCE, n_strings - first)), np.int64)
                yield _split(encoded.read(int(ends[-1]) - start), ends - start)
                start = int(ends[-1])


class FlatSink:
    """Documents as growing arrays, by their names, beside the file that they will be in."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word") -> None:
        self._path = path
        self._provenance = provenance_to_json(provenance)
        self.strings = {name: GrowingStrings(path.with_name(name)) for name in ("ids", "text")}
        self.arrays: dict[str, GrowingArray] = {}
        if per == "word":
            self.strings["words"] = GrowingStrings(path.with_name("words"))
            self.arrays["offsets"] = GrowingArray(path.with_name("offsets"), np.int64, (2,))
            self.arrays["documents"] = GrowingArray(path.with_name("documents"), np.int64)
            self.arrays["documents"].add(np.zeros(1, np.int64))

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        if documents and "vectors" not in self.arrays:
            first = documents[0].vectors
            self.arrays["vectors"] = GrowingArray(self._path.with_name("vectors"), first.dtype, first.shape[1:])
        for document in documents:
            self.arrays["vectors"].add(document.vectors)
            if "words" in self.strings:
                self.arrays["offsets"].add(document.offsets)
                self.arrays["documents"].add(np.array([self.arrays["vectors"].n_rows], np.int64))
                self.strings["words"].add(document.words)
        if "fields" not in self.strings and any(document.fields for document in documents):
            self.strings["fields"] = GrowingStrings(self._path.with_name("fields"))
            self.strings["fields"].add(["{}"] * self.strings["ids"].ends.n_rows)
        self.strings["ids"].add([document.id for document in documents])
        self.strings["text"].add([document.text for document in documents])
        if "fields" in self.strings:
            fields = [json.dumps(document.fields, ensure_ascii=False, default=str) for document in documents]
            self.strings["fields"].add(fields)

    def abandon(self) -> None:
        strings = self.strings.values()
        for array in (*self.arrays.values(), *(each.bytes for each in strings), *(each.ends for each in strings)):
            array.close()


class Rows(Protocol):
    """One array of a file, read row by row."""

    n_rows: int
    dtype: np.dtype[Any]

    def take(self, n_rows: int) -> NDArray[Any]:
        """The next rows."""


class _Strings:
    """Strings of a file, read one after another: an array of strings, or their UTF-8 and where each ends."""

    def __init__(self, strings: Rows, ends: Rows | None) -> None:
        self._strings = strings
        self._ends = ends
        self._start = 0
        self.n_strings = (ends or strings).n_rows

    def take(self, n_strings: int) -> list[str]:
        """The next strings."""
        if self._ends is None:
            strings: list[str] = self._strings.take(n_strings).tolist()
            return strings
        ends = self._ends.take(n_strings)
        stop = int(ends[-1]) if n_strings else self._start
        encoded = self._strings.take(stop - self._start).tobytes()
        bounds, self._start = ends - self._start, stop
        return _split(encoded, bounds)


def documents_of(arrays: Mapping[str, Rows]) -> Iterator[EmbeddedDocument]:
    """Documents from the flat arrays of a file."""
    strings = {name: _Strings(arrays[name], arrays.get(f"{name}_ends")) for name in STRINGS if name in arrays}
    for name, kinds in _TYPES_OF.items():
        if name in arrays and arrays[name].dtype.kind not in kinds:
            raise ValueError(f"{name!r} holds {arrays[name].dtype}")
    ids, text, words, fields = strings["ids"], strings["text"], strings.get("words"), strings.get("fields")
    vectors, offsets, documents = arrays["vectors"], arrays.get("offsets"), arrays.get("documents")
    first = 0 if documents is None else int(documents.take(1)[0])
    for _ in range(ids.n_strings):
        stop = first + 1 if documents is None else int(documents.take(1)[0])
        n_vectors, first = stop - first, stop
        spans = np.zeros((0, 2), np.int64) if offsets is None else offsets.take(n_vectors)
        spellings: Iterable[str] = () if words is None else words.take(n_vectors)
        yield EmbeddedDocument(
            id=ids.take(1)[0],
            text=text.take(1)[0],
            words=[Word(word, *span) for word, span in zip(spellings, spans.tolist(), strict=True)],
            fields={} if fields is None else parse_json(fields.take(1)[0], kind=dict),
            offsets=spans,
            vectors=vectors.take(n_vectors),
        )
    if first != vectors.n_rows:
        raise ValueError(f"its documents have {first:,} vectors, and there are {vectors.n_rows:,}")


def rows_left(n_rows: int, n_left: int) -> int:
    """The rows that are taken, of those that are left; a damaged file asks for more, or for fewer than none."""
    if not 0 <= n_rows <= n_left:
        raise ValueError(f"{n_rows:,} rows of an array should follow, and {n_left:,} do")
    return n_rows


def _split(encoded: bytes, ends: NDArray[np.int64]) -> list[str]:
    """Strings out of their UTF-8 end to end."""
    return [encoded[start:end].decode() for start, end in itertools.pairwise([0, *ends.tolist()])]
