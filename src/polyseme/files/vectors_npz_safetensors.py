"""Vectors as `.npz`, for `numpy.load` without pickle, and as `.safetensors`: flat arrays, all words end to end.

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

Strings are two arrays: the UTF-8 of all of them end to end (`text`, uint8) and where each ends (`text_ends`). In `.npz`
words and ids are arrays of strings. NumPy gives every string of an array the room of the longest, so that a single word
of a megabyte would cost a megabyte for each: if one has more than 256 characters, they are stored as `text` is, and so
they are if one ends in a NUL, which NumPy would cut.

How the vectors came about is JSON: the array `about` of an `.npz`, the metadata `polyseme` of a `.safetensors`. The
latter is the one format that holds bf16; read back into NumPy, which has none, such vectors are the same numbers as
float32.

Arrays grow in files of their own and are put together at the end, uncompressed; memory does not grow with the number of
documents. That is why the layout of `.safetensors` is written here and not by the library, which wants all tensors in
memory: eight bytes with the length of the header, the header (JSON, filled up with blanks to a multiple of eight), the
tensors one after another.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import shutil
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError, safe_open

from polyseme.errors import InputError
from polyseme.files.vector_files import (
    BF16_BITS,
    Format,
    Per,
    Provenance,
    from_bf16_bits,
    not_ours,
    provenance_to_json,
    unreadable,
)
from polyseme.json_reading import parse_json
from polyseme.types import Embedded, Word

BLOCK = 1 << 20
LONGEST_INLINE = 256
"""Characters of the longest string that is still stored as an array of strings."""
DTYPES: Mapping[np.dtype[Any], str] = {
    np.dtype(np.int64): "I64",
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    BF16_BITS: "BF16",
    np.dtype(np.uint8): "U8",
}
"""The names of types in the header of `.safetensors`, the widest first, and in this order in the file, so that all are
aligned."""
METADATA_KEY = "polyseme"

_STRINGS_AT_ONCE = 10_000
_TYPES_OF = {
    "vectors": "fu",
    "offsets": "i",
    "documents": "i",
    **{f"{name}_ends": "i" for name in ("ids", "text", "words")},
}
"""The kinds of numbers of arrays; bf16 is read as its bits."""
_ARRAYS = ("vectors", "offsets", "documents")
_STRINGS = ("ids", "text", "words", "fields")


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

    def write(self, documents: Sequence[Embedded]) -> None:
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


def _documents(arrays: Mapping[str, Rows]) -> Iterator[Embedded]:
    """Documents from the flat arrays of a file."""
    strings = {name: _Strings(arrays[name], arrays.get(f"{name}_ends")) for name in _STRINGS if name in arrays}
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
        yield Embedded(
            id=ids.take(1)[0],
            text=text.take(1)[0],
            words=[Word(word, *span) for word, span in zip(spellings, spans.tolist(), strict=True)],
            fields={} if fields is None else parse_json(fields.take(1)[0], kind=dict),
            offsets=spans,
            vectors=vectors.take(n_vectors),
        )
    if first != vectors.n_rows:
        raise ValueError(f"its documents have {first:,} vectors, and there are {vectors.n_rows:,}")


def _rows_left(n_rows: int, n_left: int) -> int:
    """The rows that are taken, of those that are left; a damaged file asks for more, or for fewer than none."""
    if not 0 <= n_rows <= n_left:
        raise ValueError(f"{n_rows:,} rows of an array should follow, and {n_left:,} do")
    return n_rows


def _split(encoded: bytes, ends: NDArray[np.int64]) -> list[str]:
    """Strings out of their UTF-8 end to end."""
    return [encoded[start:end].decode() for start, end in itertools.pairwise([0, *ends.tolist()])]


# --- .npz -------------------------------------------------------------------------------------------------------------


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


def read_npz(name: str) -> Iterator[Embedded]:
    """The documents of a file that `NpzSink` wrote, one in memory at a time."""
    return _documents_of_archive(name, _open_archive(name))


def read_npz_provenance(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    with _open_archive(name) as archive:
        if "about.npy" not in archive.namelist():
            raise not_ours(name, "about")
        provenance: dict[str, Any] = parse_json(str(_Column(archive, "about").take(1)[0]), kind=dict)
        return provenance


def _open_archive(name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise unreadable(name, ".npz", error) from error


def _documents_of_archive(name: str, archive: zipfile.ZipFile) -> Iterator[Embedded]:
    try:
        with archive:
            names = {each.removesuffix(".npy") for each in archive.namelist()}
            for needed in ("about", "ids", "text", "vectors", *(("words", "offsets") if "documents" in names else ())):
                if needed not in names:
                    raise not_ours(name, needed)
            columns = names.intersection(_ARRAYS) | {each for each in names if each.removesuffix("_ends") in _STRINGS}
            yield from _documents({each: _Column(archive, each) for each in columns})
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
        self._n_left -= _rows_left(n_rows, self._n_left)
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


# --- .safetensors -----------------------------------------------------------------------------------------------------


class SafetensorsSink(FlatSink):
    """Documents to a `.safetensors` file."""

    def finish(self) -> None:
        tensors = dict(self.arrays)
        for name, strings in self.strings.items():
            tensors |= {name: strings.bytes, f"{name}_ends": strings.ends}
        order = list(DTYPES)
        named = sorted(tensors.items(), key=lambda each: (order.index(each[1].dtype), each[0]))
        header: dict[str, Any] = {"__metadata__": {METADATA_KEY: self._provenance}}
        end = 0
        for name, tensor in named:
            start, end = end, end + tensor.n_bytes
            header[name] = {"dtype": DTYPES[tensor.dtype], "shape": tensor.shape, "data_offsets": [start, end]}
        encoded = json.dumps(header, ensure_ascii=False).encode()
        encoded += b" " * (-len(encoded) % 8)
        with self._path.open("wb") as file:
            file.write(struct.pack("<Q", len(encoded)) + encoded)
            for _, tensor in named:
                tensor.move_to(file)


def read_safetensors(name: str) -> Iterator[Embedded]:
    """The documents of a file that `SafetensorsSink` wrote, one in memory at a time."""
    read_safetensors_provenance(name)
    return _documents_of_tensors(name)


def read_safetensors_provenance(name: str) -> dict[str, Any]:
    """How the vectors of a file came about; a file that polyseme did not write is refused."""
    try:
        with safe_open(name, framework="np") as file:
            metadata, names = file.metadata() or {}, set(file.keys())
    except (OSError, SafetensorError) as error:
        raise unreadable(name, ".safetensors", error) from error
    if METADATA_KEY not in metadata:
        raise not_ours(name, METADATA_KEY)
    for needed in ("vectors", *(f"{each}_ends" for each in _STRINGS if each in {"ids", "text", *names})):
        if needed not in names:
            raise not_ours(name, needed)
    provenance: dict[str, Any] = parse_json(metadata[METADATA_KEY], kind=dict)
    return provenance


def _documents_of_tensors(name: str) -> Iterator[Embedded]:
    with Path(name).open("rb") as file:
        [length] = struct.unpack("<Q", file.read(8))
        header = parse_json(file.read(length), kind=dict)
    names = (*_ARRAYS, *_STRINGS, *(f"{each}_ends" for each in _STRINGS))
    tensors = {each: _Tensor(name, header[each], 8 + length) for each in names if each in header}
    try:
        yield from _documents(tensors)
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{name} is damaged: {error}") from error


class _Tensor:
    """One tensor of a file, read row by row, and no further than needed."""

    def __init__(self, name: str, entry: Mapping[str, Any], start: int) -> None:
        dtype = next((numpy for numpy, each in DTYPES.items() if each == entry["dtype"]), None)
        if dtype is None:
            raise ValueError(f"an array holds {entry['dtype']}")
        shape = tuple(entry["shape"])
        offset = start + entry["data_offsets"][0]
        self.n_rows = shape[0]
        self._n_left = self.n_rows
        self.dtype = dtype
        self._rows: NDArray[Any] = (
            np.empty(shape, dtype) if 0 in shape else np.memmap(name, dtype, mode="r", offset=offset, shape=shape)
        )

    def take(self, n_rows: int) -> NDArray[Any]:
        start = self.n_rows - self._n_left
        self._n_left -= _rows_left(n_rows, self._n_left)
        rows = np.array(self._rows[start : start + n_rows])
        return from_bf16_bits(rows) if rows.dtype == BF16_BITS else rows


NPZ = Format(sink=NpzSink, read=read_npz, read_provenance=read_npz_provenance)
SAFETENSORS = Format(
    sink=SafetensorsSink,
    read=read_safetensors,
    read_provenance=read_safetensors_provenance,
    stores=("fp32", "fp16", "bf16", "fp64"),
)
