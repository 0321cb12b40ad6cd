"""Vectors out, and in again: documents with one vector per word, to a file whose ending says how.

`FORMATS` is the list of formats; a new one is a file `vectors_*.py` with a `Format`, and a line there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError, OptionError, OutputError, PolysemeWarning, nearest
from polyseme.files.atomic import AnyPath, check_output, explained, whole_file
from polyseme.files.field_names import ColumnNames
from polyseme.json_reading import damage_reported
from polyseme.types import EmbeddedDocument, Word

FORMATS: Mapping[str, str] = {
    ".parquet": "vectors_parquet:FORMAT",
    ".npz": "vectors_npz:NPZ",
    ".safetensors": "vectors_safetensors:SAFETENSORS",
    ".h5": "vectors_hdf5:FORMAT",
    ".jsonl": "vectors_jsonl:FORMAT",
}
"""From the ending of a file, in small letters, to the module and the name of its `Format`; loaded when first needed."""

ADVICE = "Copy it again, or write it again with embed."
"""What is to be done about a damaged file of vectors."""

Provenance = Mapping[str, Any]
"""How the vectors came about: model, layer, pooling, versions; stored in the file as JSON."""

Per = Literal["word", "text"]
"""What has a vector of its own: every word, or every text. Documents of the latter kind have one vector, [1, D], and
no words."""

Store = Literal["fp32", "fp16", "bf16", "fp64"]
"""What numbers are in the file. NumPy has no bf16: a sink that can store it is given the bits as uint16."""


class Sink(Protocol):
    """A file of vectors that is being written. It may leave parts in the folder of the path it was given."""

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        """Write one chunk of documents as `Fitter` returns them: all of one kind, their fields by names of columns."""

    def finish(self) -> None:
        """Complete the file; called once, after at least one document."""

    def abandon(self) -> None:
        """Close whatever is open; the caller removes the file."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one kind of file is written, and read back."""

    sink: Callable[[Path, Provenance, Per], Sink]
    read: Callable[[str], Iterator[EmbeddedDocument]]
    read_provenance: Callable[[str], dict[str, Any]]
    stores: tuple[Store, ...] = ("fp32", "fp16", "fp64")
    """What it can hold."""


def provenance_to_json(provenance: Provenance) -> str:
    """The same text for the same facts."""
    return json.dumps(provenance, ensure_ascii=False, sort_keys=True)


def unreadable(name: str, format: str, error: Exception) -> InputError:
    """The error for a file that its library cannot read."""
    reason = str(error).rstrip(".")
    return InputError(
        f"{name} cannot be read as {format} ({reason}). Check that it is complete, and has the suffix of its format."
    )


def foreign_file_error(name: str, missing: str) -> InputError:
    """The error for a file that has the right ending and the wrong content."""
    return InputError(f"{name} was not written by polyseme, or not as a file of vectors: it has no {missing!r} in it.")


# --- documents made to fit a file: of one kind, in its numbers, in letters that UTF-8 can hold ------------------------


OWN = ("id", "text", "words", "start", "end", "vectors", "vector", "offsets")
"""Names that files of vectors have for what is in them; a field that bears one gets another."""

BF16_BITS = np.dtype(np.uint16)

_DTYPES = ("float16", "float32", "float64")
_SHARD_NAME = re.compile(r"part-\d{5,}\.\w+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Fitter:
    """Takes the documents of one file, in order, and gives each as the file will hold it, or refuses it."""

    def __init__(
        self,
        *,
        per: Per = "word",
        store: Store | None = None,
        as_bits: bool = False,
        own: Collection[str] = OWN,
    ) -> None:
        """With no `store`, numbers stay what they are; `as_bits`, they may be those of bf16 already.

        `own` are the names that no field has in the file.
        """
        self._per = per
        self._store = store
        self._dtypes = (*_DTYPES, BF16_BITS.name) if as_bits else _DTYPES
        self._like: NDArray[Any] | None = None
        self._names = ColumnNames(own)
        self._repaired = False

    def __call__(self, document: EmbeddedDocument) -> EmbeddedDocument:
        self._check_counts(document)
        if self._like is None:
            self._check_first(document)
            self._like = document.vectors[:0]
        self._check_kind(document, self._like)
        fitting = dataclasses.replace(document, fields=self._fields(document), vectors=self._stored(document))
        return self._well_formed(fitting)

    def _check_counts(self, document: EmbeddedDocument) -> None:
        n_words, n_vectors = len(document.words), len(document.vectors)
        if self._per == "text" and (n_words, n_vectors) != (0, 1):
            raise InputError(
                f"The document {document.id!r} has {n_words} words and {n_vectors} vectors. Where a text has one "
                "vector, it is kept without words."
            )
        if self._per == "word" and (n_vectors != n_words or document.offsets.shape != (n_words, 2)):
            raise InputError(
                f"The document {document.id!r} has {n_words} words, {n_vectors} vectors and offsets of shape "
                f"{document.offsets.shape}. Each word has one vector and one start and end."
            )

    def _check_first(self, document: EmbeddedDocument) -> None:
        vectors = document.vectors
        if vectors.ndim < 2 or vectors.dtype.name not in self._dtypes:
            raise InputError(
                f"Vectors are [words, D] or [words, layers, D] of {', '.join(_DTYPES)}. "
                f"Got {vectors.dtype} of shape {vectors.shape} instead."
            )

    def _check_kind(self, document: EmbeddedDocument, like: NDArray[Any]) -> None:
        vectors = document.vectors
        if vectors.shape[1:] != like.shape[1:] or vectors.dtype != like.dtype:
            raise InputError(
                f"The vectors of document {document.id!r} are {vectors.dtype} of shape {vectors.shape}, those before "
                f"it {like.dtype} of shape (words, {', '.join(map(str, like.shape[1:]))}). One file holds one kind."
            )

    def _fields(self, document: EmbeddedDocument) -> dict[str, Any]:
        """By the names of columns; those that other documents had before are None."""
        columns = self._names.of(document.fields)
        return {column: document.fields.get(name) for name, column in columns.items()}

    def _stored(self, document: EmbeddedDocument) -> NDArray[Any]:
        if self._store is None:
            return document.vectors
        stored = STORED[self._store](document.vectors)
        lost = ~_finite(stored) & np.isfinite(document.vectors)
        if lost.any():
            worst = np.abs(document.vectors[lost]).max()
            raise OutputError(
                f"The vectors of document {document.id!r} do not fit {self._store}: {worst:.6g} is more than it can "
                "hold. Store them as fp32 or, in .safetensors, as bf16."
            )
        return stored

    def _well_formed(self, document: EmbeddedDocument) -> EmbeddedDocument:
        """The document with half characters (lone surrogates), which no file can hold, as U+FFFD."""
        strings = (document.text, document.id, "".join(document.words))
        if not any(map(_malformed, strings)) and not any(map(_malformed_within, document.fields.values())):
            return document
        if not self._repaired:
            self._repaired = True
            warnings.warn(
                f"The document {document.id!r} has lone surrogates in it, which cannot be written as UTF-8; in the "
                "file they are U+FFFD. The same is done, unsaid, with those that follow.",
                PolysemeWarning,
                stacklevel=4,
            )
        return dataclasses.replace(
            document,
            text=_repaired(document.text),
            id=_repaired(document.id),
            words=[Word(_repaired(word), word.start, word.end) for word in document.words],
            fields={name: _repaired_within(value) for name, value in document.fields.items()},
        )


def to_bf16_bits(vectors: NDArray[Any]) -> NDArray[np.uint16]:
    """The nearest bf16 to each number, a tie to the even one, as its bits."""
    bits = np.ascontiguousarray(vectors, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(vectors), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bf16_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers themselves, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_fp16(vectors: NDArray[Any]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):  # looked for, and said with the document's id
        return vectors.astype(np.float16)


STORED: Mapping[Store, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "fp64": lambda vectors: vectors.astype(np.float64, copy=False),
    "fp32": lambda vectors: vectors.astype(np.float32, copy=False),
    "fp16": _to_fp16,
    "bf16": to_bf16_bits,
}
"""From what is to be in the file to how numbers become that."""


def _finite(stored: NDArray[Any]) -> NDArray[np.bool_]:
    is_finite: NDArray[np.bool_] = np.isfinite(from_bf16_bits(stored) if stored.dtype == BF16_BITS else stored)
    return is_finite


def _malformed(text: str) -> bool:
    return not text.isascii() and _LONE_SURROGATE.search(text) is not None


def _repaired(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


def _malformed_within(value: Any) -> bool:
    if isinstance(value, str):
        return _malformed(value)
    if isinstance(value, Mapping):
        return any(_malformed_within(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(map(_malformed_within, value))


def _repaired_within(value: Any) -> Any:
    if isinstance(value, str):
        return _repaired(value)
    if isinstance(value, Mapping):
        return {_repaired_within(name): _repaired_within(each) for name, each in value.items()}
    return [_repaired_within(each) for each in value] if isinstance(value, list | tuple) else value


# --- writing and reading ----------------------------------------------------------------------------------------------


def open_writer(
    path: AnyPath,
    *,
    force: bool = False,
    provenance: Provenance | None = None,
    per: Per = "word",
    store: Store | None = None,
) -> AbstractContextManager[VectorWriter]:
    """A writer for the format that `path` ends in; the file is there, and whole, once its block has ended well.

    What can be known beforehand is refused here, before any work: an ending that no format has, numbers that the format
    cannot hold, a folder that is not there or may not be written to, an output that exists already (unless `force`).

    `provenance` says how the vectors came about, in types that JSON has, and is stored in the file. With `per="text"`,
    documents have one vector and no words. `store` is the type of numbers in the file; None: the type that they have.

        with open_writer("vectors.parquet", provenance={"model": "bert-base"}) as writer:
            for chunk in chunks:
                writer.write(chunk)
    """
    format = format_of(path, store)
    check_output(path, force=force)
    fitter = Fitter(per=per, store=store)
    return opened(path, format, fitter, force=force, provenance=provenance or {}, per=per)


def read_vectors(path: AnyPath) -> Iterator[EmbeddedDocument]:
    """Read the documents of a file of vectors, or of a folder of shards, one after another in bounded memory.

    `embed` writes such files. Text, words, offsets, id and vectors are exactly those that were written; fields are
    too, as far as the format has their types. The arrays belong to the caller.
    """
    files = _files(path)
    formats = [_format_of_input(file) for file in files[:1]]
    with damage_reported(files[0], ADVICE):
        first = formats[0].read(files[0])
    return _checked(files, first)


def _checked(files: Sequence[str], first: Iterator[EmbeddedDocument]) -> Iterator[EmbeddedDocument]:
    """The documents of files; whatever damage makes a library raise is one error about the file."""
    for number, file in enumerate(files):
        with damage_reported(file, ADVICE):
            for document in first if number == 0 else _format_of_input(file).read(file):
                offsets = document.offsets
                if offsets.size and not 0 <= offsets.min() <= offsets.max() <= len(document.text):
                    raise InputError(f"{file} is damaged: words of {document.id!r} are outside of its text. {ADVICE}")
                yield document


def read_provenance(path: AnyPath) -> dict[str, Any]:
    """How the vectors of a file, or of a folder of shards, came about: the `provenance` of its writer."""
    file = _files(path)[0]
    format = _format_of_input(file)
    with damage_reported(file, ADVICE):
        return format.read_provenance(file)


def is_shard(path: Path) -> bool:
    """Whether a file is a shard that polyseme wrote: by its name, and by the provenance in it."""
    if path.is_symlink() or not path.is_file() or not _SHARD_NAME.fullmatch(path.name) or path.suffix not in FORMATS:
        return False
    try:
        read_provenance(path)
    except (InputError, OSError, ValueError):
        return False
    return True


class VectorWriter:
    """Takes documents chunk by chunk, in order; see `open_writer`."""

    def __init__(self, path: AnyPath, sink: Sink, fitter: Fitter) -> None:
        self._path = path
        self._sink = sink
        self._fitter = fitter
        self.n_documents = 0
        self.n_words = 0

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        """Add one chunk. All vectors of a file have one type and one shape, whatever the chunk."""
        documents = [self._fitter(document) for document in documents]
        with explained(self._path):
            self._sink.write(documents)
        self.n_documents += len(documents)
        self.n_words += sum(len(document.words) for document in documents)

    def finish(self) -> None:
        """Complete the file; called by the block of `open_writer`."""
        if not self.n_documents:
            raise OutputError(f"{self._path} was not written: there were no documents to put into it.")
        with explained(self._path):
            self._sink.finish()


@contextlib.contextmanager
def opened(
    path: AnyPath, format: Format, fitter: Fitter, *, force: bool, provenance: Provenance, per: Per
) -> Iterator[VectorWriter]:
    """The writer of one format; `open_writer` for those who have made sure of everything beforehand."""
    with whole_file(path, force=force) as new_file:
        with explained(path):
            sink = format.sink(new_file, provenance, per)
        try:
            writer = VectorWriter(path, sink, fitter)
            yield writer
            writer.finish()
        except BaseException:
            sink.abandon()
            raise


def format_of(path: AnyPath, store: Store | None = None) -> Format:
    """The format that a name ends in; refused if there is none, or it cannot hold such numbers."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        ending = f"{suffix!r} is no format of vectors" if suffix else "its name has no ending, which says the format"
        raise OptionError(f"{path}: {ending}. {nearest(suffix, FORMATS)}")
    format = _loaded(suffix)
    if store is not None and store not in STORED:
        raise OptionError(f"There is no store {store!r}. {nearest(store, STORED)}")
    if store is not None and store not in format.stores:
        able = [ending for ending in FORMATS if store in _loaded(ending).stores]
        raise OptionError(
            f"{path}: {suffix} has no {store}; it holds {' or '.join(format.stores)}. For {store}, end the name in "
            f"{' or '.join(able)}."
        )
    return format


def _format_of_input(name: str) -> Format:
    format = format_of(name)
    if not Path(name).is_file():
        raise InputError(f"There is no file {name}.")
    return format


def _loaded(suffix: str) -> Format:
    module, _, name = FORMATS[suffix].partition(":")
    format: Format = getattr(importlib.import_module(f"polyseme.files.{module}"), name)
    return format


def _files(path: AnyPath) -> list[str]:
    """The file itself, or the shards of a folder."""
    if not Path(path).is_dir():
        return [os.fspath(path)]
    shards = sorted(str(each) for each in Path(path).glob("part-*") if each.suffix in FORMATS)
    if not shards:
        raise InputError(f"The folder {path} has no shards of vectors in it (part-00000.parquet, …).")
    return shards
