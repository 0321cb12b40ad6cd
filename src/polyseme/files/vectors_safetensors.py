"""Vectors as `.safetensors`: the flat arrays of `growing` as tensors, for every library that reads them.

Strings are two tensors: the UTF-8 of all of them end to end (`words`, uint8) and where each ends (`words_ends`). How
the vectors came about is JSON under `polyseme` in the file's metadata. This is the one format that holds bf16; read
back into NumPy, which has none, such vectors are the same numbers as float32.

The layout is written here and not by the library, which wants all tensors in memory: eight bytes with the length of the
header, the header (JSON, filled up with blanks to a multiple of eight), the tensors one after another.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from polyseme.errors import InputError
from polyseme.files.growing_arrays import FlatDocuments, GrowingArray, cut, documents_of
from polyseme.files.vector_files import BF16_BITS, About, Format, Per, about_to_json, from_bf16_bits, not_ours
from polyseme.types import Embedded

DTYPES: Mapping[np.dtype[Any], str] = {
    np.dtype(np.int64): "I64",
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    BF16_BITS: "BF16",
    np.dtype(np.uint8): "U8",
}
"""What types are called in the header; the widest first, and in this order in the file, so that all are aligned."""

ABOUT_KEY = "polyseme"


class SafetensorsSink:
    """Documents to a `.safetensors` file, by way of one spool a tensor."""

    def __init__(self, path: Path, about: About, per: Per = "word") -> None:
        self._path = path
        self._about = about
        self._flat = FlatDocuments(path.parent, per)

    def write(self, documents: Sequence[Embedded]) -> None:
        self._flat.write(documents)

    def finish(self) -> None:
        tensors = dict(self._flat.arrays)
        for name, strings in self._flat.strings.items():
            tensors |= {name: strings.bytes, f"{name}_ends": strings.ends}
        order = list(DTYPES)
        named = sorted(tensors.items(), key=lambda one: (order.index(one[1].dtype), one[0]))
        with self._path.open("wb") as file:
            file.write(_header(named, self._about))
            for _, tensor in named:
                tensor.move_to(file)

    def abandon(self) -> None:
        self._flat.close()


def read_safetensors(name: str) -> Iterator[Embedded]:
    """The documents of a file that `SafetensorsSink` wrote, one in memory at a time."""
    _check(name)
    return _documents(name)


def read_safetensors_about(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    return _check(name)


def _header(named: Sequence[tuple[str, GrowingArray]], about: About) -> bytes:
    header: dict[str, Any] = {"__metadata__": {ABOUT_KEY: about_to_json(about)}}
    end = 0
    for name, tensor in named:
        start, end = end, end + tensor.n_bytes
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": tensor.shape, "data_offsets": [start, end]}
    encoded = json.dumps(header, ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded


def _open(name: str) -> Any:
    if not Path(name).is_file():
        raise InputError(f"There is no file {name}.")
    try:
        return safe_open(name, framework="np")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{name} cannot be read as .safetensors: {error}") from error


def _check(name: str) -> dict[str, Any]:
    """What the file says of itself; one that is not ours is refused."""
    with _open(name) as file:
        metadata, there = file.metadata() or {}, set(file.keys())
    if ABOUT_KEY not in metadata:
        raise not_ours(name, ABOUT_KEY)
    for needed in ("vectors", "ids", "text"):
        if needed not in there:
            raise not_ours(name, needed)
    about: dict[str, Any] = json.loads(metadata[ABOUT_KEY])
    return about


def _documents(name: str) -> Iterator[Embedded]:
    with Path(name).open("rb") as file:
        [length] = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        start = 8 + length
        arrays = {one: _Rows(name, header[one], start) for one in ("vectors", "offsets", "documents") if one in header}
        strings = {
            one: _Strings(_Rows(name, header[one], start), _Rows(name, header[f"{one}_ends"], start))
            for one in ("ids", "text", "words", "fields")
            if one in header
        }
    try:
        yield from documents_of(n_documents=strings["ids"].n_strings, **arrays, **strings)
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{name} is damaged: {error}") from error


class _Rows:
    """One tensor of a file, taken row by row; only what is taken is read."""

    def __init__(self, name: str, entry: Mapping[str, Any], start: int) -> None:
        dtype = next(numpy for numpy, called in DTYPES.items() if called == entry["dtype"])
        shape = tuple(entry["shape"])
        self.n_rows = shape[0]
        self._taken = 0
        empty = 0 in shape
        where = start + entry["data_offsets"][0]
        self._rows: NDArray[Any] = (
            np.empty(shape, dtype) if empty else np.memmap(name, dtype, mode="r", offset=where, shape=shape)
        )

    def take(self, n_rows: int) -> NDArray[Any]:
        """The next rows."""
        rows = np.array(self._rows[self._taken : self._taken + n_rows])
        self._taken += n_rows
        return from_bf16_bits(rows) if rows.dtype == BF16_BITS else rows


class _Strings:
    """Strings of a file, taken one after another."""

    def __init__(self, spelled: _Rows, ends: _Rows) -> None:
        self._spelled = spelled
        self._ends = ends
        self._start = 0
        self.n_strings = ends.n_rows

    def take(self, n_strings: int) -> list[str]:
        """The next strings."""
        ends = self._ends.take(n_strings)
        stop = int(ends[-1]) if n_strings else self._start
        encoded = self._spelled.take(stop - self._start).tobytes()
        bounds, self._start = ends - self._start, stop
        return cut(encoded, bounds)


FORMAT = Format(
    sink=SafetensorsSink, read=read_safetensors, read_about=read_safetensors_about, stores=("fp32", "fp16", "bf16")
)
