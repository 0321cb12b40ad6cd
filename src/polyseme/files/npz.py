"""Vectors as `.npz`: plain arrays for `numpy.load`, without pickle, all words of all documents end to end.

| array | shape | |
|---|---|---|
| vectors | [N, D], or [N, layers, D] | one vector a word |
| words | [N] of str | |
| offsets | [N, 2] int64 | where each word starts and ends in its document's text, in characters |
| documents | [n + 1] int64 | the words of document i are `documents[i]:documents[i + 1]` |
| ids | [n] of str | |
| text, text_ends | uint8, [n] int64 | the UTF-8 of all texts; that of document i ends at byte `text_ends[i]` |
| about | str | JSON: how the vectors came about |

NumPy gives every string of an array the room of the longest, so that a single word of a megabyte would cost a megabyte
a word. If a word has more than 256 characters, `words` is therefore stored as `text` is: the UTF-8 of all words as
uint8, and `words_ends` beside it; likewise `ids`. (So it is too if one ends in a NUL, which NumPy would cut.)

The parts are spooled into files of their own and put together at the end, stored and not compressed; memory does not
grow with the number of documents.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from polyseme.errors import InputError
from polyseme.files.sink import About, about_to_json, not_ours
from polyseme.types import Embedded, Word

LONGEST_INLINE = 256
"""Characters of the longest string that is still stored as an array of strings."""

_BLOCK = 1 << 20
_STRINGS_AT_ONCE = 10_000


class NpzSink:
    """Documents to an `.npz` file, by way of one spool a part."""

    def __init__(self, path: Path, about: About) -> None:
        self._path = path
        self._about = about
        folder = path.parent
        self._ids = _StringSpool(folder / "ids")
        self._texts = _StringSpool(folder / "text")
        self._words = _StringSpool(folder / "words")
        self._offsets = _Spool(folder / "offsets", np.int64, (2,))
        self._documents = _Spool(folder / "documents", np.int64, ())
        self._vectors: _Spool | None = None

    def write(self, documents: Sequence[Embedded]) -> None:
        if self._vectors is None and documents:
            first = documents[0].vectors
            self._vectors = _Spool(self._path.parent / "vectors", first.dtype, first.shape[1:])
            self._documents.add(np.zeros(1, np.int64))
        for document in documents:
            assert self._vectors is not None
            self._vectors.add(document.vectors)
            self._offsets.add(document.offsets)
            self._words.add(document.words)
            self._documents.add(np.array([self._vectors.n_rows], np.int64))
        self._ids.add([document.id for document in documents])
        self._texts.add([document.text for document in documents])

    def finish(self) -> None:
        assert self._vectors is not None
        with zipfile.ZipFile(self._path, "w") as archive:
            _store(archive, "about", np.array(about_to_json(self._about)))
            self._ids.store(archive, "ids", inline=True)
            self._documents.store(archive, "documents")
            self._words.store(archive, "words", inline=True)
            self._offsets.store(archive, "offsets")
            self._texts.store(archive, "text", inline=False)
            self._vectors.store(archive, "vectors")

    def abandon(self) -> None:
        for spool in (self._ids, self._texts, self._words, self._offsets, self._documents, self._vectors):
            if spool is not None:
                spool.close()


def read_npz(name: str) -> Iterator[Embedded]:
    """The documents of a file that `NpzSink` wrote, one in memory at a time."""
    archive = _open(name)
    return _documents(name, archive)


def read_npz_about(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    with _open(name) as archive, _Column(archive, name, "about") as column:
        about: dict[str, Any] = json.loads(str(column.take(1)[0]))
        return about


# --- writing ---------------------------------------------------------------------------------------------------------


class _Spool:
    """Rows of one array, of one type and shape, added to a file until all are known."""

    def __init__(self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...]) -> None:
        self._path = path
        self._file = path.open("wb", buffering=_BLOCK)
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self.n_rows = 0

    def add(self, rows: NDArray[Any]) -> None:
        if rows.size:
            self._file.write(np.ascontiguousarray(rows, self._dtype).data.cast("B"))
        self.n_rows += len(rows)

    def store(self, archive: zipfile.ZipFile, name: str) -> None:
        """Move the rows into the archive, as one array."""
        with _member(archive, name, self._dtype, (self.n_rows, *self._row_shape)) as member, self.reopened() as spooled:
            shutil.copyfileobj(spooled, member, _BLOCK)
        self._path.unlink()

    def reopened(self) -> Any:
        self._file.close()
        return self._path.open("rb", buffering=_BLOCK)

    def close(self) -> None:
        """Let go of the file; what its buffer still holds may find no room, and is not wanted any more."""
        with contextlib.suppress(OSError):
            self._file.close()


class _StringSpool:
    """Strings, as their UTF-8 end to end and where each ends."""

    def __init__(self, path: Path) -> None:
        self._bytes = _Spool(path, np.uint8, ())
        self._ends = _Spool(path.with_name(path.name + "_ends"), np.int64, ())
        self._longest = 1
        self._trailing_nul = False

    def add(self, strings: Sequence[str]) -> None:
        encoded = [string.encode() for string in strings]
        ends = np.cumsum([len(string) for string in encoded], dtype=np.int64) + self._bytes.n_rows
        self._longest = max(self._longest, max(map(len, strings), default=0))
        self._trailing_nul = self._trailing_nul or any(string.endswith(b"\0") for string in encoded)
        self._bytes.add(np.frombuffer(b"".join(encoded), np.uint8))
        self._ends.add(ends)

    def store(self, archive: zipfile.ZipFile, name: str, *, inline: bool) -> None:
        """Move the strings into the archive: as an array of strings if `inline` and none of them is too long for it."""
        if inline and self._longest <= LONGEST_INLINE and not self._trailing_nul:
            self._store_inline(archive, name)
        else:
            self._bytes.store(archive, name)
            self._ends.store(archive, f"{name}_ends")

    def _store_inline(self, archive: zipfile.ZipFile, name: str) -> None:
        dtype = np.dtype(f"<U{self._longest}")
        n_strings = self._ends.n_rows
        with (
            _member(archive, name, dtype, (n_strings,)) as member,
            self._bytes.reopened() as spooled,
            self._ends.reopened() as spooled_ends,
        ):
            start = 0
            for first in range(0, n_strings, _STRINGS_AT_ONCE):
                n_now = min(_STRINGS_AT_ONCE, n_strings - first)
                ends = np.frombuffer(spooled_ends.read(8 * n_now), np.int64)
                strings = _cut(spooled.read(int(ends[-1]) - start), ends - start)
                start = int(ends[-1])
                member.write(np.array(strings, dtype).tobytes())

    def close(self) -> None:
        self._bytes.close()
        self._ends.close()


def _member(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """An array in the archive, opened for its bytes. It bears no date: equal arrays make equal files."""
    member = archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
    npy.write_array_header_1_0(member, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return member


def _store(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with _member(archive, name, array.dtype, array.shape) as member:
        member.write(array.tobytes())


def _cut(encoded: bytes, ends: NDArray[np.int64]) -> list[str]:
    bounds = [0, *ends.tolist()]
    return [encoded[start:end].decode() for start, end in itertools.pairwise(bounds)]


# --- reading ---------------------------------------------------------------------------------------------------------


def _open(name: str) -> zipfile.ZipFile:
    try:
        if not Path(name).is_file():
            raise InputError(f"There is no file {name}.")
        return zipfile.ZipFile(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{name} cannot be read as .npz: {error}") from error


def _documents(name: str, archive: zipfile.ZipFile) -> Iterator[Embedded]:
    try:
        with archive:
            yield from _documents_in(name, archive)
    except (zipfile.BadZipFile, ValueError) as error:
        raise InputError(f"{name} is damaged: {error}") from error


def _documents_in(name: str, archive: zipfile.ZipFile) -> Iterator[Embedded]:
    ids, texts, words = (_Strings(archive, name, column) for column in ("ids", "text", "words"))
    offsets, documents, vectors = (_Column(archive, name, column) for column in ("offsets", "documents", "vectors"))
    first = int(documents.take(1)[0])
    for _ in range(documents.n_rows - 1):
        stop = int(documents.take(1)[0])
        n_words, first = stop - first, stop
        places = offsets.take(n_words)
        yield Embedded(
            id=ids.take(1)[0],
            text=texts.take(1)[0],
            words=[Word(word, *place) for word, place in zip(words.take(n_words), places.tolist(), strict=True)],
            offsets=places,
            vectors=vectors.take(n_words),
        )


class _Column:
    """One array of an archive, taken row by row."""

    def __init__(self, archive: zipfile.ZipFile, name: str, column: str) -> None:
        try:
            self._member = archive.open(f"{column}.npy")
        except KeyError:
            raise not_ours(name, column) from None
        npy.read_magic(self._member)
        shape, _, self._dtype = npy.read_array_header_1_0(self._member)
        self.n_rows = shape[0] if shape else 1
        self._row_shape = shape[1:]

    def take(self, n_rows: int) -> NDArray[Any]:
        """The next rows."""
        rows = np.empty((n_rows, *self._row_shape), self._dtype)
        if rows.size:
            _fill(rows.reshape(-1).view(np.uint8).data, self._member)
        return rows

    def __enter__(self) -> _Column:
        return self

    def __exit__(self, *_: object) -> None:
        self._member.close()


class _Strings:
    """Strings of an archive, however they are stored."""

    def __init__(self, archive: zipfile.ZipFile, name: str, column: str) -> None:
        self._strings = _Column(archive, name, column)
        spelled = f"{column}_ends.npy" in archive.namelist()
        self._ends = _Column(archive, name, f"{column}_ends") if spelled else None
        self._start = 0

    def take(self, n_strings: int) -> list[str]:
        """The next strings."""
        if self._ends is None:
            strings: list[str] = self._strings.take(n_strings).tolist()
            return strings
        ends = self._ends.take(n_strings)
        stop = int(ends[-1]) if n_strings else self._start
        encoded = self._strings.take(stop - self._start).tobytes()
        bounds, self._start = ends - self._start, stop
        return _cut(encoded, bounds)


def _fill(view: memoryview, member: Any) -> None:
    done = 0
    while done < len(view):
        block = member.read(min(_BLOCK, len(view) - done))
        if not block:
            raise zipfile.BadZipFile("an array ends too early")
        view[done : done + len(block)] = block
        done += len(block)
