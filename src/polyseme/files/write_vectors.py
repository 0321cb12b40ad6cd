"""Vectors out, and in again: documents with one vector a word, to a file whose ending says how.

`FORMATS` is the list; a new format is a file in this room and a line there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError, OutputError, nearest
from polyseme.files.atomic import AnyPath, check_output, explained, whole_file
from polyseme.files.vector_format import STORED, About, Fitter, Format, Per, Sink, Store
from polyseme.types import Embedded

FORMATS: Mapping[str, str] = {
    ".parquet": "vectors_parquet",
    ".npz": "vectors_npz",
    ".safetensors": "vectors_safetensors",
    ".h5": "vectors_hdf5",
    ".jsonl": "vectors_jsonl",
}
"""From the ending of a file, in small letters, to the module that has it as `FORMAT`; loaded when first needed."""


def open_writer(
    path: AnyPath,
    *,
    force: bool = False,
    about: About | None = None,
    per: Per = "word",
    store: Store | None = None,
) -> AbstractContextManager[VectorWriter]:
    """A writer for the format that `path` ends in; the file is there, and whole, once its block has ended well.

    What can be known beforehand is refused here, before any work: an ending that no format has, numbers that the format
    cannot hold, a folder that is not there or may not be written to, an output that exists already (unless `force`).

    `about` says how the vectors came about, in things that JSON knows, and is kept in the file. With `per="text"`,
    documents come with one vector and no words. `store` is what numbers are in the file; None: what they are.

        with open_writer("vectors.parquet", about={"model": "bert-base"}) as writer:
            for chunk in chunks:
                writer.write(chunk)
    """
    made_by = format_of(path, store)
    check_output(path, force=force)
    return opened(path, made_by, Fitter(per=per, store=store), force=force, about=about or {}, per=per)


def read_vectors(path: AnyPath) -> Iterator[Embedded]:
    """The documents of a file that `open_writer` wrote, or of a folder of shards, in their order, streamed.

    Text, words, offsets, id and vectors are exactly those that were written; fields are strings, or None. The arrays
    are the reader's own.
    """
    files = _files(path)
    if len(files) == 1:
        return format_of(files[0]).read(files[0])
    return (document for file in files for document in format_of(file).read(file))


def read_about(path: AnyPath) -> dict[str, Any]:
    """How the vectors of a file, or of a folder of shards, came about: what its writer was told."""
    file = _files(path)[0]
    return format_of(file).read_about(file)


class VectorWriter:
    """Takes documents chunk by chunk, in order; see `open_writer`."""

    def __init__(self, path: AnyPath, sink: Sink, fitted: Fitter) -> None:
        self._path = path
        self._sink = sink
        self._fitted = fitted
        self.n_documents = 0
        self.n_words = 0

    def write(self, documents: Sequence[Embedded]) -> None:
        """Add one chunk. All vectors of a file have one type and one shape, whatever the chunk."""
        documents = [self._fitted(document) for document in documents]
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
    path: AnyPath, made_by: Format, fitted: Fitter, *, force: bool, about: About, per: Per
) -> Iterator[VectorWriter]:
    """The writer of one format; `open_writer` for those who have made sure of everything beforehand."""
    with whole_file(path, force=force) as made:
        with explained(path):
            sink = made_by.sink(made, about, per)
        try:
            writer = VectorWriter(path, sink, fitted)
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
    found = _loaded(suffix)
    if store is not None and store not in STORED:
        raise OptionError(f"There is no store {store!r}. {nearest(store, STORED)}")
    if store is not None and store not in found.stores:
        able = [ending for ending in FORMATS if store in _loaded(ending).stores]
        raise OptionError(
            f"{path}: {suffix} has no {store}; it holds {' or '.join(found.stores)}. For {store}, end the name in "
            f"{' or '.join(able)}."
        )
    return found


def _loaded(suffix: str) -> Format:
    found: Format = importlib.import_module(f"polyseme.files.{FORMATS[suffix]}").FORMAT
    return found


def _files(path: AnyPath) -> list[str]:
    """The file itself, or the shards of a folder."""
    if not Path(path).is_dir():
        return [os.fspath(path)]
    shards = sorted(str(each) for each in Path(path).glob("part-*") if each.suffix in FORMATS)
    if not shards:
        raise InputError(f"The folder {path} has no shards of vectors in it (part-00000.parquet, …).")
    return shards
