"""Vectors as `.npz`: plain arrays for `numpy.load`, without pickle, all words of all documents end to end.

The arrays are those of `growing`, and `about`: JSON that says how the vectors came about. Words and ids are arrays of
strings; texts and fields are stored as the UTF-8 of all as uint8, and `text_ends` beside it: that of document i ends at
byte `text_ends[i]`.

NumPy gives every string of an array the room of the longest, so that a single word of a megabyte would cost a megabyte
a word. If a word has more than 256 characters, `words` is therefore stored as `text` is; likewise `ids`. (So it is too
if one ends in a NUL, which NumPy would cut.)

The parts are spooled into files of their own and put together at the end, stored and not compressed; memory does not
grow with the number of documents.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.growing_arrays import BLOCK, FlatDocuments, GrowingArray, GrowingStrings, cut, documents_of
from polyseme.files.vector_files import About, Format, Per, about_to_json, not_ours
from polyseme.types import Embedded

LONGEST_INLINE = 256
"""Characters of the longest string that is still stored as an array of strings."""

_INLINE = ("ids", "words")


class NpzSink:
    """Documents to an `.npz` file, by way of one spool a part."""

    def __init__(self, path: Path, about: About, per: Per = "word") -> None:
        self._path = path
        self._about = about
        self._flat = FlatDocuments(path.parent, per)

    def write(self, documents: Sequence[Embedded]) -> None:
        self._flat.write(documents)

    def finish(self) -> None:
        with zipfile.ZipFile(self._path, "w") as archive:
            _store(archive, "about", np.array(about_to_json(self._about)))
            for name, strings in self._flat.strings.items():
                _store_strings(archive, name, strings)
            for name, rows in self._flat.arrays.items():
                _store_rows(archive, name, rows)

    def abandon(self) -> None:
        self._flat.close()


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


def _store_rows(archive: zipfile.ZipFile, name: str, rows: GrowingArray) -> None:
    with _member(archive, name, rows.dtype, rows.shape) as member:
        rows.move_to(member)


def _store_strings(archive: zipfile.ZipFile, name: str, strings: GrowingStrings) -> None:
    """As an array of strings, if that is how they are to be and none of them is too long for it."""
    if name in _INLINE and strings.longest <= LONGEST_INLINE and not strings.trailing_nul:
        dtype = np.dtype(f"<U{strings.longest}")
        with _member(archive, name, dtype, (strings.ends.n_rows,)) as member:
            for block in strings.in_blocks():
                member.write(np.array(block, dtype).tobytes())
    else:
        _store_rows(archive, name, strings.bytes)
        _store_rows(archive, f"{name}_ends", strings.ends)


def _member(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """An array in the archive, opened for its bytes. It bears no date: equal arrays make equal files."""
    member = archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
    npy.write_array_header_1_0(member, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return member


def _store(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with _member(archive, name, array.dtype, array.shape) as member:
        member.write(array.tobytes())


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
    there = {each.removesuffix(".npy") for each in archive.namelist()}
    strings = {one: _Strings(archive, name, one) for one in ("ids", "text", "words", "fields") if one in there}
    arrays = {one: _Column(archive, name, one) for one in ("vectors", "offsets", "documents") if one in there}
    for needed in ("about", "ids", "text", "vectors", *(("words", "offsets") if "documents" in there else ())):
        if needed not in there:
            raise not_ours(name, needed)
    yield from documents_of(n_documents=strings["ids"].n_strings, **arrays, **strings)


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
        self.n_strings = (self._ends or self._strings).n_rows

    def take(self, n_strings: int) -> list[str]:
        """The next strings."""
        if self._ends is None:
            strings: list[str] = self._strings.take(n_strings).tolist()
            return strings
        ends = self._ends.take(n_strings)
        stop = int(ends[-1]) if n_strings else self._start
        encoded = self._strings.take(stop - self._start).tobytes()
        bounds, self._start = ends - self._start, stop
        return cut(encoded, bounds)


def _fill(view: memoryview, member: Any) -> None:
    done = 0
    while done < len(view):
        block = member.read(min(BLOCK, len(view) - done))
        if not block:
            raise zipfile.BadZipFile("an array ends too early")
        view[done : done + len(block)] = block
        done += len(block)


FORMAT = Format(sink=NpzSink, read=read_npz, read_about=read_npz_about)
