"""Arrays that grow on the disk until all their rows are known: what the flat formats (.npz, .safetensors) are made of.

All words of all documents stand end to end:

| array | shape | |
|---|---|---|
| vectors | [N, D], or [N, layers, D] | one vector a word |
| words | N strings | |
| offsets | [N, 2] int64 | where each word starts and ends in its document's text, in characters |
| documents | [n + 1] int64 | the words of document i are `documents[i]:documents[i + 1]` |
| ids | n strings | |
| text | n strings | |
| fields | n strings | what was kept beside the texts, a JSON object each; where something was |

Where a text has one vector, there are no words, offsets and documents, and `vectors` has a row a text.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from polyseme.files.vector_files import Per
from polyseme.types import Embedded, Word

BLOCK = 1 << 20
_STRINGS_AT_ONCE = 10_000


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
        """Write all rows to a file that is open, and let go of them here."""
        with self.reopened() as rows:
            shutil.copyfileobj(rows, file, BLOCK)
        self._path.unlink()

    def reopened(self) -> BinaryIO:
        """The rows from their beginning; no more can be added."""
        self._file.close()
        return self._path.open("rb", buffering=BLOCK)

    def close(self) -> None:
        """Let go of the file; what its buffer still holds may find no room, and is not wanted any more."""
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
        with self.bytes.reopened() as spelled, self.ends.reopened() as all_ends:
            for first in range(0, n_strings, _STRINGS_AT_ONCE):
                ends = np.frombuffer(all_ends.read(8 * min(_STRINGS_AT_ONCE, n_strings - first)), np.int64)
                yield cut(spelled.read(int(ends[-1]) - start), ends - start)
                start = int(ends[-1])

    def close(self) -> None:
        self.bytes.close()
        self.ends.close()


class FlatDocuments:
    """Documents as growing arrays, by their names."""

    def __init__(self, folder: Path, per: Per) -> None:
        self._folder = folder
        self.strings = {name: GrowingStrings(folder / name) for name in ("ids", "text")}
        self.arrays: dict[str, GrowingArray] = {}
        if per == "word":
            self.strings["words"] = GrowingStrings(folder / "words")
            self.arrays["offsets"] = GrowingArray(folder / "offsets", np.int64, (2,))
            self.arrays["documents"] = GrowingArray(folder / "documents", np.int64)
            self.arrays["documents"].add(np.zeros(1, np.int64))

    def write(self, documents: Sequence[Embedded]) -> None:
        if documents and "vectors" not in self.arrays:
            first = documents[0]
            self.arrays["vectors"] = GrowingArray(
                self._folder / "vectors", first.vectors.dtype, first.vectors.shape[1:]
            )
            if first.fields:
                self.strings["fields"] = GrowingStrings(self._folder / "fields")
        for document in documents:
            self.arrays["vectors"].add(document.vectors)
            if "words" in self.strings:
                self.arrays["offsets"].add(document.offsets)
                self.arrays["documents"].add(np.array([self.arrays["vectors"].n_rows], np.int64))
                self.strings["words"].add(document.words)
        self.strings["ids"].add([document.id for document in documents])
        self.strings["text"].add([document.text for document in documents])
        if "fields" in self.strings:
            self.strings["fields"].add([json.dumps(document.fields, ensure_ascii=False) for document in documents])

    def close(self) -> None:
        for strings in self.strings.values():
            strings.close()
        for array in self.arrays.values():
            array.close()


def documents_of(
    *,
    vectors: Any,
    ids: Any,
    text: Any,
    n_documents: int,
    fields: Any = None,
    words: Any = None,
    offsets: Any = None,
    documents: Any = None,
) -> Iterator[Embedded]:
    """Documents from flat arrays, each of which has a `take` that gives its next rows or strings."""
    first = int(documents.take(1)[0]) if documents is not None else 0
    for _ in range(n_documents):
        stop = first + 1 if documents is None else int(documents.take(1)[0])
        n_vectors, first = stop - first, stop
        places = np.zeros((0, 2), np.int64) if offsets is None else offsets.take(n_vectors)
        spelled: Iterable[str] = () if words is None else words.take(n_vectors)
        yield Embedded(
            id=ids.take(1)[0],
            text=text.take(1)[0],
            words=[Word(word, *place) for word, place in zip(spelled, places.tolist(), strict=True)],
            fields={} if fields is None else json.loads(fields.take(1)[0]),
            offsets=places,
            vectors=vectors.take(n_vectors),
        )


def cut(encoded: bytes, ends: NDArray[np.int64]) -> list[str]:
    """Strings out of their UTF-8 end to end."""
    bounds = [0, *ends.tolist()]
    return [encoded[start:end].decode() for start, end in itertools.pairwise(bounds)]
