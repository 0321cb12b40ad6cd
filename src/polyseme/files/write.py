"""Vectors out, and in again: documents with one vector a word, to a file whose ending says how.

`FORMATS` is the list; a new format is a file in this room and a line there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError, OutputError, PolysemeWarning, nearest
from polyseme.files.atomic import AnyPath, check_output, explained, whole_file
from polyseme.files.npz import NpzSink, read_npz, read_npz_about
from polyseme.files.parquet import ParquetSink, read_parquet, read_parquet_about
from polyseme.files.sink import About, Format, Sink
from polyseme.types import Embedded, Word

FORMATS: Mapping[str, Format] = {
    ".parquet": Format(sink=ParquetSink, read=read_parquet, read_about=read_parquet_about),
    ".npz": Format(sink=NpzSink, read=read_npz, read_about=read_npz_about),
}
"""From the ending of a file, in small letters, to how it is written and read back."""

_DTYPES = ("float16", "float32", "float64")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def open_writer(
    path: AnyPath, *, force: bool = False, about: About | None = None
) -> AbstractContextManager[VectorWriter]:
    """A writer for the format that `path` ends in; the file is there, and whole, once its block has ended well.

    What can be known beforehand is refused here, before any work: an ending that no format has, a folder that is not
    there or may not be written to, an output that exists already (unless `force`).

    `about` says how the vectors came about, in things that JSON knows, and is kept in the file.

        with open_writer("vectors.parquet", about={"model": "bert-base"}) as writer:
            for chunk in chunks:
                writer.write(chunk)
    """
    made_by = _format(path)
    check_output(path, force=force)
    return _writing(path, made_by, force, about or {})


def read_vectors(path: AnyPath) -> Iterator[Embedded]:
    """The documents of a file that `open_writer` wrote, in their order, streamed.

    Text, words, offsets, id and vectors are exactly those that were written. The arrays are the reader's own.
    """
    return _format(path).read(os.fspath(path))


def read_about(path: AnyPath) -> dict[str, Any]:
    """How the vectors of a file came about: what its writer was told."""
    return _format(path).read_about(os.fspath(path))


class VectorWriter:
    """Takes documents chunk by chunk, in order; see `open_writer`."""

    def __init__(self, path: AnyPath, sink: Sink) -> None:
        self._path = path
        self._sink = sink
        self._like: Embedded | None = None
        self._repaired = False
        self.n_documents = 0
        self.n_words = 0

    def write(self, documents: Sequence[Embedded]) -> None:
        """Add one chunk. All vectors of a file have one type and one shape, whatever the chunk."""
        documents = [self._checked(document) for document in documents]
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

    def _checked(self, document: Embedded) -> Embedded:
        n_words, vectors = len(document.words), document.vectors
        if len(vectors) != n_words or document.offsets.shape != (n_words, 2):
            raise InputError(
                f"The document {document.id!r} has {n_words} words, {len(vectors)} vectors and offsets of shape "
                f"{document.offsets.shape}. Each word has one vector and one start and end."
            )
        if self._like is None:
            if vectors.ndim < 2 or vectors.dtype.name not in _DTYPES:
                raise InputError(
                    f"Vectors are [words, D] or [words, layers, D] of {', '.join(_DTYPES)}. "
                    f"Got {vectors.dtype} of shape {vectors.shape} instead."
                )
            self._like = dataclasses.replace(document, text="", words=(), vectors=vectors[:0])
        like = self._like.vectors
        if vectors.shape[1:] != like.shape[1:] or vectors.dtype != like.dtype:
            raise InputError(
                f"The vectors of document {document.id!r} are {vectors.dtype} of shape {vectors.shape}, those before "
                f"it {like.dtype} of shape (words, {', '.join(map(str, like.shape[1:]))}). One file holds one kind."
            )
        return self._well_formed(document)

    def _well_formed(self, document: Embedded) -> Embedded:
        """The document with half characters (lone surrogates), which no file can hold, as U+FFFD."""
        if not any(map(_malformed, (document.text, document.id, "".join(document.words)))):
            return document
        if not self._repaired:
            self._repaired = True
            warnings.warn(
                f"The document {document.id!r} has lone surrogates in it, which cannot be written as UTF-8; in the "
                "file they are U+FFFD. The same is done, unsaid, with those that follow.",
                PolysemeWarning,
                stacklevel=4,
            )
        words = [Word(_repaired(word), word.start, word.end) for word in document.words]
        return dataclasses.replace(document, text=_repaired(document.text), id=_repaired(document.id), words=words)


@contextlib.contextmanager
def _writing(path: AnyPath, made_by: Format, force: bool, about: About) -> Iterator[VectorWriter]:
    with whole_file(path, force=force) as made:
        with explained(path):
            sink = made_by.sink(made, about)
        try:
            writer = VectorWriter(path, sink)
            yield writer
            writer.finish()
        except BaseException:
            sink.abandon()
            raise


def _format(path: AnyPath) -> Format:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        ending = f"{suffix!r} is no format of vectors" if suffix else "its name has no ending, which says the format"
        raise OptionError(f"{path}: {ending}. {nearest(suffix, FORMATS)}")
    return FORMATS[suffix]


def _malformed(text: str) -> bool:
    return not text.isascii() and _LONE_SURROGATE.search(text) is not None


def _repaired(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)
