"""Vectors as `.safetensors`: the flat arrays of `flat_vectors`.

This is the one format that holds bf16; read back into NumPy, which has none, such vectors are the same numbers as
float32. How the vectors came about is JSON in the metadata `polyseme`.

The library wants all tensors in memory. Therefore the layout is written here: eight bytes with the length of the
header, the header (JSON, filled up with blanks to a multiple of eight), the tensors one after another.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from polyseme.errors import InputError
from polyseme.files.flat_vectors import ARRAYS, STRINGS, FlatSink, documents_of, rows_left
from polyseme.files.vector_files import BF16_BITS, Format, foreign_file_error, from_bf16_bits, unreadable
from polyseme.json_reading import parse_json
from polyseme.types import EmbeddedDocument

DTYPES: Mapping[np.dtype[Any], str] = {
    np.dtype(np.int64): "I64",
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    BF16_BITS: "BF16",
    np.dtype(np.uint8): "U8",
}
"""The names of types in the header, the widest first, and in this order in the file, so that all are aligned."""
METADATA_KEY = "polyseme"


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


def read_safetensors(name: str) -> Iterator[EmbeddedDocument]:
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
        raise foreign_file_error(name, METADATA_KEY)
    for needed in ("vectors", *(f"{each}_ends" for each in STRINGS if each in {"ids", "text", *names})):
        if needed not in names:
            raise foreign_file_error(name, needed)
    provenance: dict[str, Any] = parse_json(metadata[METADATA_KEY], kind=dict)
    return provenance


def _documents_of_tensors(name: str) -> Iterator[EmbeddedDocument]:
    with Path(name).open("rb") as file:
        [length] = struct.unpack("<Q", file.read(8))
        header = parse_json(file.read(length), kind=dict)
    names = (*ARRAYS, *STRINGS, *(f"{each}_ends" for each in STRINGS))
    tensors = {each: _Tensor(name, header[each], 8 + length) for each in names if each in header}
    try:
        yield from documents_of(tensors)
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
        self._n_left -= rows_left(n_rows, self._n_left)
        rows = np.array(self._rows[start : start + n_rows])
        return from_bf16_bits(rows) if rows.dtype == BF16_BITS else rows


SAFETENSORS = Format(
    sink=SafetensorsSink,
    read=read_safetensors,
    read_provenance=read_safetensors_provenance,
    stores=("fp32", "fp16", "bf16", "fp64"),
)
