"""Vectors as HDF5: one dataset per sentence, as the `elmo` command of AllenNLP wrote it, for its readers.

| key | |
|---|---|
| `0`, `1`, … | [words, D]; with all layers [layers, words, D], lowest first; with one vector per text without `words` |
| `sentence_to_index` | one string: JSON from each text to its key (of equal texts the last) |
| `documents` | one string per document: JSON with its id, text, words, offsets and fields |

`sentence_to_index` has all texts in one string and so in memory: past 64 MiB of text it is left out, with a warning;
`documents` has them one by one. How the vectors came about is JSON in the attribute `polyseme` of the file.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.hdf5_reading import read_dataset
from polyseme.files.vector_files import Format, Per, Provenance, foreign_file_error, provenance_to_json, unreadable
from polyseme.json_reading import parse_json
from polyseme.types import EmbeddedDocument, Word

METADATA_KEY = "polyseme"
MOST_INDEX_BYTES = 1 << 26
"""Bytes of all texts up to which `sentence_to_index` is written."""

_TEXT = h5py.string_dtype()
_AT_ONCE = 256
"""Documents whose words are read together."""


class Hdf5Sink:
    """Documents to an HDF5 file."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word") -> None:
        self._per = per
        self._bytes = _Bytes(path)
        self._file = h5py.File(self._bytes, "w", libver=("earliest", "v108"))
        self._file.attrs[METADATA_KEY] = provenance_to_json(provenance)
        self._documents = self._file.create_dataset("documents", (0,), _TEXT, maxshape=(None,), chunks=(_AT_ONCE,))
        self._index: dict[str, str] | None = {}
        self._index_bytes = 0
        self._n_documents = 0

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        for number, document in enumerate(documents, start=self._n_documents):
            self._file.create_dataset(str(number), data=self._laid_out(document.vectors))
            self._add_to_index(document, str(number))
        first, self._n_documents = self._n_documents, self._n_documents + len(documents)
        self._documents.resize((self._n_documents,))
        self._documents[first:] = [
            json.dumps(_beside(document), ensure_ascii=False, default=str) for document in documents
        ]
        self._bytes.check()

    def finish(self) -> None:
        if self._index is not None:
            self._file.create_dataset("sentence_to_index", (1,), _TEXT, data=[json.dumps(self._index)])
        self._file.close()
        self._bytes.close()
        self._bytes.check()

    def abandon(self) -> None:
        self._file.close()
        self._bytes.close()

    def _laid_out(self, vectors: NDArray[Any]) -> NDArray[Any]:
        vectors = vectors[0] if self._per == "text" else np.moveaxis(vectors, 0, -2)
        return np.ascontiguousarray(vectors)

    def _add_to_index(self, document: EmbeddedDocument, key: str) -> None:
        if self._index is None:
            return
        self._index[document.text] = key
        self._index_bytes += len(document.text.encode())
        if self._index_bytes > MOST_INDEX_BYTES:
            self._index = None
            warnings.warn(
                "The texts are too many for 'sentence_to_index', which holds them all in one string; the .h5 file is "
                "without it. Each text is in 'documents'.",
                PolysemeWarning,
                stacklevel=4,
            )


class _Bytes(io.RawIOBase):
    """The file below HDF5, which cannot stand a write that fails (it breaks down on closing).

    So none does: what cannot be written is dropped, and `check` raises the reason.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        self._at = 0
        self._size = 0
        self._failed: OSError | None = None

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._failed is not None:
            raise self._failed

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self._failed is None and done < len(view):
                done += os.pwrite(self._handle, view[done:], self._at + done)
        except OSError as error:
            self._failed = error
        self._at += len(view)
        self._size = max(self._size, self._at)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        block = os.pread(self._handle, len(view), self._at)
        view[:] = block.ljust(len(view), b"\0")
        self._at += len(view)
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        try:
            os.ftruncate(self._handle, self._size)
        except OSError as error:
            self._failed = self._failed or error
        return self._size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()


def read_hdf5(name: str) -> Iterator[EmbeddedDocument]:
    """The documents of a file that `Hdf5Sink` wrote, a few in memory at a time."""
    return _documents(name, _open(name))


def read_hdf5_provenance(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    with _open(name) as file:
        provenance: dict[str, Any] = parse_json(file.attrs[METADATA_KEY], kind=dict)
        return provenance


def _beside(document: EmbeddedDocument) -> dict[str, Any]:
    return {
        "id": document.id,
        "text": document.text,
        "words": list(document.words),
        "offsets": document.offsets.tolist(),
        "fields": document.fields,
    }


def _open(name: str) -> Any:
    try:
        file = h5py.File(name, "r")
    except OSError as error:
        raise unreadable(name, "HDF5", error) from error
    for missing in [*({METADATA_KEY} - set(file.attrs)), *({"documents"} - set(file))]:
        file.close()
        raise foreign_file_error(name, missing)
    return file


def _documents(name: str, file: Any) -> Iterator[EmbeddedDocument]:
    try:
        with file:
            documents = read_dataset(file, "documents")
            for first in range(0, len(documents), _AT_ONCE):
                texts = documents.asstr()[first : first + _AT_ONCE]
                for number, beside in enumerate(texts, start=first):
                    yield _document(parse_json(beside, kind=dict), _vectors(file, str(number)))
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} is damaged: {error}") from error


def _vectors(file: Any, name: str) -> NDArray[Any]:
    item = read_dataset(file, name)
    if item.dtype.kind != "f" or not 1 <= item.ndim <= 3:
        raise ValueError(f"{name!r} does not hold vectors but {item.dtype} of {item.ndim} axes")
    stored: NDArray[Any] = item[()]
    return stored


def _document(beside: dict[str, Any], stored: NDArray[Any]) -> EmbeddedDocument:
    offsets = np.array(beside["offsets"], np.int64).reshape(-1, 2)
    n_words = len(beside["words"])
    of_words = stored.ndim > 1 and (n_words > 0 or stored.shape[-2] == 0)
    return EmbeddedDocument(
        id=beside["id"],
        text=beside["text"],
        words=[Word(word, *place) for word, place in zip(beside["words"], offsets.tolist(), strict=True)],
        fields=beside["fields"],
        offsets=offsets,
        vectors=np.ascontiguousarray(np.moveaxis(stored, -2, 0)) if of_words else stored[None],
    )


FORMAT = Format(sink=Hdf5Sink, read=read_hdf5, read_provenance=read_hdf5_provenance)
