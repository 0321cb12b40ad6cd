"""Making an index of the uses of words: a file's words through the flow, into a folder, in bounded memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from polyseme import files
from polyseme.embedding.flow import Embedder
from polyseme.errors import InputError, ModelError
from polyseme.files.atomic import explained, whole_folder
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.files.source_paths import Sources
from polyseme.text.sentences import split_sentences
from polyseme.types import Progress
from polyseme.word_senses import index as layout
from polyseme.word_senses.gather_uses import Gathered, form, gather, told_name
from polyseme.word_senses.index import CARD, FORMAT, UseIndex, View, load_index, view_to_json
from polyseme.word_senses.nearest_neighbors import Graph, unit

AnyPath = str | PathLike[str]

_TEXTS = pa.schema([("id", pa.large_string()), ("text", pa.large_string())])
_USES = pa.schema([("document", pa.int64()), ("start", pa.int64()), ("end", pa.int64()), ("form", pa.int32())])
_FORMS = pa.schema([("form", pa.large_string())])


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
    """The index in a folder, made first of `source` if it is not there; without a folder, one that goes afterwards.

    `reading` is how the source is read: options of `files.read_rows`. With `force` an index that does not fit is made
    anew.
    """
    reading = reading or {}
    if folder is not None and (found := _there(folder, source, views, reading, force=force)) is not None:
        yield found
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
            with whole_folder(folder, force=force or Path(folder).exists()) as made:
                index_uses(source, made, embedders, views, reading=reading, progress=progress)
        yield load_index(folder, views)


def _there(
    folder: AnyPath, source: Sources | None, views: Sequence[View], reading: Mapping[str, Any], *, force: bool
) -> UseIndex | None:
    """The index in a folder, or None if it is to be made: it is not there, or does not fit and may be replaced."""
    path = Path(folder)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    if not (path / CARD).is_file():
        raise InputError(f"{folder} is no index, and is not replaced by one. Name another folder with --index.")
    try:
        found = load_index(path, views)
        if source is not None:
            _check_source(found, source, reading, folder)
    except (InputError, ModelError):
        if force and source is not None:
            return None
        raise
    return found


def index_uses(
    source: Sources,
    folder: Path,
    embedders: Sequence[Embedder],
    views: Sequence[View],
    *,
    reading: Mapping[str, Any],
    progress: Progress | None = None,
) -> None:
    """Write the index of all words of a file into a folder: a view of them for each embedder."""
    numbers: dict[str, int] = {}
    n_documents = n_uses = 0
    with ExitStack() as stack:
        rows = stack.enter_context(files.read_rows(source, **reading, sentences=split_sentences))
        texts = stack.enter_context(pa.ipc.new_file(str(folder / "texts.arrow"), _TEXTS))
        uses = stack.enter_context(pa.ipc.new_file(str(folder / "uses.arrow"), _USES))
        spools = [
            stack.enter_context((folder / layout.vectors_name(number)).open("wb")) for number in range(len(views))
        ]
        for some in gather(rows, embedders, progress=progress):
            texts.write_table(_texts(some))
            uses.write_table(_uses(some, n_documents, numbers))
            for vectors, spool in zip(some.vectors, spools, strict=True):
                spool.write(unit(vectors).tobytes())
            n_documents += len(some.documents)
            n_uses += sum(map(len, some.words))
    if not n_uses:
        raise InputError(f"{rows.name} has no words in it: there is nothing to index.")
    with pa.ipc.new_file(str(folder / "forms.arrow"), _FORMS) as forms:
        forms.write_table(pa.table({"form": list(numbers)}, schema=_FORMS))
    widths = [embedder.choice.width(embedder.config) for embedder in embedders]
    if n_uses > layout.EXACT_UP_TO:
        _write_graphs(folder, n_uses, widths)
    card = {
        "format": FORMAT,
        "uses": n_uses,
        "documents": n_documents,
        "source": _source_card(rows, reading),
        "views": [view_to_json(view, width) for view, width in zip(views, widths, strict=True)],
    }
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _source_card(rows: Reading[Row], reading: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a source, to know it again: its name, its size where that is known, and how it was read."""
    return {"name": told_name(rows), "bytes": rows.total, "reading": json.loads(json.dumps(dict(reading)))}


def _check_source(found: UseIndex, source: Sources, reading: Mapping[str, Any], folder: AnyPath) -> None:
    """Refuse to answer from an index that was made of something else than what was named."""
    with files.read_rows(source, **reading, sentences=split_sentences) as rows:
        given = _source_card(rows, reading)
    if given != found.source or given["bytes"] is None:
        raise InputError(
            f"The index {folder} was made of {_told(found.source)}, and --in is {_told(given)}. To ask the index, "
            "leave --in out; to make it anew, give --force; or name another folder with --index."
        )


def _told(source: Mapping[str, Any]) -> str:
    size = "" if source["bytes"] is None else f", {source['bytes']:,} bytes"
    return f"{source['name']}{size}" + "".join(f", {name} {value}" for name, value in source["reading"].items())


def _texts(some: Gathered) -> pa.Table:
    return pa.table(
        {"id": [document.id for document in some.documents], "text": [document.text for document in some.documents]},
        schema=_TEXTS,
    )


def _uses(some: Gathered, n_before: int, numbers: dict[str, int]) -> pa.Table:
    """Where the uses stand; forms that are new get the next number."""
    words = [word for its in some.words for word in its]
    documents = np.repeat(np.arange(n_before, n_before + len(some.documents)), [len(its) for its in some.words])
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


def _write_graphs(folder: Path, n_uses: int, widths: Iterable[int]) -> None:
    for number, width in enumerate(widths):
        path = folder / layout.vectors_name(number)
        vectors = np.memmap(path, dtype=np.float32, mode="r", shape=(n_uses, width))
        Graph.build(vectors).save(folder / layout.graph_name(number))
