"""The uses of words in a file with their vectors, chunk by chunk; and building an index of them, in bounded memory.

If only certain words are selected (as by `senses`), only documents that contain them are embedded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.files.atomic import explained, whole_folder
from polyseme.files.chunked_job import row_chunks
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import STANDARD_INPUT, Reading
from polyseme.files.source_paths import Sources
from polyseme.text.sentences import split_sentences
from polyseme.text.word_forms import form
from polyseme.types import Document, Progress, Word
from polyseme.word_senses import index as layout
from polyseme.word_senses.index import CARD, FORMAT, UseIndex, View, load_index, view_to_json
from polyseme.word_senses.nearest_neighbors import Graph, unit

AnyPath = str | PathLike[str]

_TEXTS = pa.schema([("id", pa.large_string()), ("text", pa.large_string())])
_USES = pa.schema([("document", pa.int64()), ("start", pa.int64()), ("end", pa.int64()), ("form", pa.int32())])
_FORMS = pa.schema([("form", pa.large_string())])


@dataclass(frozen=True)
class Gathered:
    """A chunk of documents and the uses of words in them."""

    documents: list[Document]
    words: list[list[Word]]
    """The selected words of each document."""
    vectors: list[NDArray[Any]]
    """[uses, D] for each embedder, documents concatenated."""


def use_embedder(bundle: Bundle, layer: str | int, **options: Any) -> Embedder:
    """An embedder that gives each use one vector."""
    embedder = Embedder(bundle, layer=layer, **options)
    if embedder.choice.mode == "all":
        raise OptionError(f"A use is compared by one vector, and layer {layer!r} gives it several. Use concat:a:b.")
    return embedder


def source_name(rows: Reading[Row]) -> str:
    """The name of the source of rows, for messages."""
    return "standard input" if rows.name == STANDARD_INPUT else rows.name


def gather(
    rows: Reading[Row],
    embedders: Sequence[Embedder],
    select: Callable[[Document], Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Iterator[Gathered]:
    """The uses of all words, or of those whose positions in a document `select` returns, in the order of the rows."""
    for chunk in row_chunks(rows):
        documents: list[Document] = []
        places: list[Sequence[int]] = []
        for document in map(document_of, chunk):
            positions = range(len(document.words)) if select is None else select(document)
            if len(positions):
                documents.append(document)
                places.append(positions)
        if documents:
            encoded = embedders[0].tokenizer.encode_many(documents)
            vectors = [
                np.concatenate([each.vectors[at] for each, at in zip(embedded, places, strict=True)])
                for embedded in (embedder.embed(documents, encoded) for embedder in embedders)
            ]
            words = [
                [document.words[at] for at in indices] for document, indices in zip(documents, places, strict=True)
            ]
            yield Gathered(documents, words, vectors)
        if progress is not None:
            progress(rows.done, rows.total)
    warn_unread(embedders[0].tally)


@contextmanager
def opened_index(
    source: Sources | None,
    folder: AnyPath | None,
    embedders: Sequence[Embedder],
    views: Sequence[View],
    *,
    reading: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Iterator[UseIndex]:
    """The index in a folder, built from `source` if it does not exist; without a folder, a temporary one.

    `reading` are options of `read_rows`. With `force` an index that does not fit is rebuilt.
    """
    reading = reading or {}
    if folder is not None and (existing := _existing_index(folder, source, views, reading, force=force)) is not None:
        yield existing
        return
    if source is None:
        place = f"There is no index {folder}" if folder is not None else "There is neither a text nor an index"
        raise InputError(f"{place}. Name the text in which to look for uses with --in.")
    with ExitStack() as stack:
        if folder is None:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="polyseme-uses-"))
            with explained(place):
                index_uses(source, Path(place), embedders, views, reading=reading, progress=progress)
            folder = place
        else:
            with whole_folder(folder, force=force or Path(folder).exists()) as target:
                index_uses(source, target, embedders, views, reading=reading, progress=progress)
        yield load_index(folder, views)


def _existing_index(
    folder: AnyPath, source: Sources | None, views: Sequence[View], reading: Mapping[str, Any], *, force: bool
) -> UseIndex | None:
    """The index in a folder, or None if it must be built: it does not exist, or does not fit and may be replaced."""
    path = Path(folder)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    if not (path / CARD).is_file():
        raise InputError(f"{folder} is no index, and is not replaced by one. Name another folder with --index.")
    try:
        index = load_index(path, views)
        if source is not None:
            _check_source(index, source, reading, folder)
    except (InputError, ModelError):
        if force and source is not None:
            return None
        raise
    return index


def index_uses(
    source: Sources,
    folder: Path,
    embedders: Sequence[Embedder],
    views: Sequence[View],
    *,
    reading: Mapping[str, Any],
    progress: Progress | None = None,
) -> None:
    """Write the index of all words of a file into a folder, with one view per embedder."""
    numbers: dict[str, int] = {}
    n_documents = n_uses = 0
    with ExitStack() as stack:
        rows = stack.enter_context(read_rows(source, **reading, sentences=split_sentences))
        texts = stack.enter_context(pa.ipc.new_file(str(folder / "texts.arrow"), _TEXTS))
        uses = stack.enter_context(pa.ipc.new_file(str(folder / "uses.arrow"), _USES))
        spools = [
            stack.enter_context((folder / layout.vectors_name(number)).open("wb")) for number in range(len(views))
        ]
        for chunk in gather(rows, embedders, progress=progress):
            columns = {name: [getattr(document, name) for document in chunk.documents] for name in _TEXTS.names}
            texts.write_table(pa.table(columns, schema=_TEXTS))
            uses.write_table(_uses(chunk, n_documents, numbers))
            for vectors, spool in zip(chunk.vectors, spools, strict=True):
                spool.write(unit(vectors).tobytes())
            n_documents += len(chunk.documents)
            n_uses += sum(map(len, chunk.words))
    if not n_uses:
        raise InputError(f"{rows.name} has no words in it: there is nothing to index.")
    with pa.ipc.new_file(str(folder / "forms.arrow"), _FORMS) as forms:
        forms.write_table(pa.table({"form": list(numbers)}, schema=_FORMS))
    widths = [embedder.choice.width(embedder.config) for embedder in embedders]
    if n_uses > layout.EXACT_UP_TO:
        for number, width in enumerate(widths):
            path = folder / layout.vectors_name(number)
            matrix = np.memmap(path, dtype=np.float32, mode="r", shape=(n_uses, width))
            Graph.build(matrix).save(folder / layout.graph_name(number))
    card = {
        "format": FORMAT,
        "uses": n_uses,
        "documents": n_documents,
        "source": _source_card(rows, reading),
        "views": [view_to_json(view, width) for view, width in zip(views, widths, strict=True)],
    }
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _source_card(rows: Reading[Row], reading: Mapping[str, Any]) -> dict[str, Any]:
    """The record by which a source is recognized: its name, its size if known, and the reading options."""
    return {"name": source_name(rows), "bytes": rows.total, "reading": json.loads(json.dumps(dict(reading)))}


def _check_source(index: UseIndex, source: Sources, reading: Mapping[str, Any], folder: AnyPath) -> None:
    """Refuse an index that was built from another source than the one named."""
    with read_rows(source, **reading, sentences=split_sentences) as rows:
        card = _source_card(rows, reading)
    if card != index.source or card["bytes"] is None:
        raise InputError(
            f"The index {folder} was made of {_describe_source(index.source)}, and --in is "
            f"{_describe_source(card)}. To query the index, leave --in out; to rebuild it, give --force; or name "
            "another folder with --index."
        )


def _describe_source(source: Mapping[str, Any]) -> str:
    size = "" if source["bytes"] is None else f", {source['bytes']:,} bytes"
    return f"{source['name']}{size}" + "".join(f", {name} {value}" for name, value in source["reading"].items())


def _uses(chunk: Gathered, n_before: int, numbers: dict[str, int]) -> pa.Table:
    """The offsets of the uses; new forms get the next number."""
    words = [word for document_words in chunk.words for word in document_words]
    documents = np.repeat(np.arange(n_before, n_before + len(chunk.documents)), list(map(len, chunk.words)))
    forms = [numbers.setdefault(form(word), len(numbers)) for word in words]
    return pa.table(
        {
            "document": documents,
            "start": [word.start for word in words],
            "end": [word.end for word in words],
            "form": pa.array(forms, pa.int32()),
        },
        schema=_USES,
    )
