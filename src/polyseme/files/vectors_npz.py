"""Vectors as `.npz`, for `numpy.load` without pickle: the flat arrays of `flat_vectors`.

Words and ids are arrays of strings. NumPy gives every string of an array the room of the longest, so that a single word
of a megabyte would cost a megabyte for each: if one has more than 256 characters, they are stored as `text` is, and so
they are if one ends in a NUL, which NumPy would cut.

How the vectors came about is JSON in the array `about`.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.flat_vectors import ARRAYS, BLOCK, STRINGS, FlatSink, documents_of, rows_left
from polyseme.files.vector_files import Format, foreign_file_error, unreadable
from polyseme.json_reading import parse_json
from polyseme.types import EmbeddedDocument

LONGEST_INLINE = 256
"""Characters of the longest string that is still stored as an array of strings."""


class NpzSink(FlatSink):
    """Documents to an `.npz` file."""

    def finish(self) -> None:
        with zipfile.ZipFile(self._path, "w") as archive:
            provenance = np.array(self._provenance)
            with _member(archive, "about", provenance.dtype, provenance.shape) as member:
                member.write(provenance.tobytes())
            arrays = dict(self.arrays)
            for name, strings in self.strings.items():
                if name in ("ids", "words") and strings.longest <= LONGEST_INLINE and not strings.trailing_nul:
                    dtype = np.dtype(f"<U{strings.longest}")
                    with _member(archive, name, dtype, (strings.ends.n_rows,)) as member:
                        for block in strings.in_blocks():
                            member.write(np.array(block, dtype).tobytes())
                else:
                    arrays |= {name: strings.bytes, f"{name}_ends": strings.ends}
            for name, rows in arrays.items():
                with _member(archive, name, rows.dtype, rows.shape) as member:
                    rows.move_to(member)


def _member(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """An array in the archive, opened for its bytes. It bears no date: equal arrays make equal files."""
    member = archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
    npy.write_array_header_1_0(member, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return member


def read_npz(name: str) -> Iterator[EmbeddedDocument]:
    """The documents of a file that `NpzSink` wrote, one in memory at a time."""
    return _documents_of_archive(name, _open_archive(name))


def read_npz_provenance(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    with _open_archive(name) as archive:
        if "about.npy" not in archive.namelist():
            raise foreign_file_error(name, "about")
        provenance: dict[str, Any] = parse_json(str(_Column(archive, "about").take(1)[0]), kind=dict)
        return provenance


def _open_archive(name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise unreadable(name, ".npz", error) from error


def _documents_of_archive(name: str, archive: zipfile.ZipFile) -> Iterator[EmbeddedDocument]:
    try:
        with archive:
            names = {each.removesuffix(".npy") for each in archive.namelist()}
            for needed in ("about", "ids", "text", "vectors", *(("words", "offsets") if "documents" in names else ())):
                if needed not in names:
                    raise foreign_file_error(name, needed)
            columns = names.intersection(ARRAYS) | {each for each in names if each.removesuffix("_ends") in STRINGS}
            yield from documents_of({each: _Column(archive, each) for each in columns})
    except (zipfile.BadZipFile, ValueError) as error:
        raise InputError(f"{name} is damaged: {error}") from error


class _Column:
    """One array of an archive, read row by row."""

    def __init__(self, archive: zipfile.ZipFile, column: str) -> None:
        self._member = archive.open(f"{column}.npy")
        npy.read_magic(self._member)
        shape, _, self.dtype = npy.read_array_header_1_0(self._member)
        claimed = math.prod(shape) * self.dtype.itemsize
        present = archive.getinfo(f"{column}.npy").file_size - self._member.tell()
        if self.dtype.hasobject or claimed != present:
            raise ValueError(f"{column!r} should have {claimed:,} bytes of numbers or texts, and has {present:,}")
        self.n_rows = shape[0] if shape else 1
        self._row_shape = shape[1:]
        self._n_left = self.n_rows

    def take(self, n_rows: int) -> NDArray[Any]:
        self._n_left -= rows_left(n_rows, self._n_left)
        rows = np.empty((n_rows, *self._row_shape), self.dtype)
        view = rows.reshape(-1).view(np.uint8).data if rows.size else memoryview(b"")
        done = 0
        while done < len(view):
            block = self._member.read(min(BLOCK, len(view) - done))
            if not block:
                raise zipfile.BadZipFile("an array ends too early")
            view[done : done + len(block)] = block
            done += len(block)
        return rows


NPZ = Format(sink=NpzSink, read=read_npz, read_provenance=read_npz_provenance)
