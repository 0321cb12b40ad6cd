"""Building an index of the uses of words, of texts or of a file of vectors, in bounded memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from polyseme.embedding.flow import Embedder
from polyseme.errors import InputError, ModelError
from polyseme.files.atomic import AnyPath, explained, whole_folder
from polyseme.files.checksums import checksums_in
from polyseme.files.source_paths import Sources
from polyseme.text.word_forms import form
from polyseme.types import Progress
from polyseme.word_senses import index as layout
from polyseme.word_senses.gather_uses import Uses, UsesChunk, opened_uses
from polyseme.word_senses.index import CARD, FORMAT, UseIndex, View, load_index, view_to_json
from polyseme.word_senses.nearest_neighbors import Graph, unit

_TEXTS = pa.schema([(name, pa.large_string()) for name in ("id", "text", "fields")])
_USES = pa.schema([("document", pa.int64()), ("start", pa.int64()), ("end", pa.int64()), ("form", pa.int32())])
_FORMS = pa.schema([("form", pa.large_string())])


@contextmanager
def open_index(
    source: Sources | None,
    folder: AnyPath | None,
    embedders: Sequence[Embedder],
    views: Sequence[View],
    *,
    reading: Mapping[str, Any] | None = None,
    force: bool = False,
    model: str = "",
    progress: Progress | None = None,
) -> Iterator[UseIndex]:
    """The index in a folder, built from `source` if it does not exist; without a folder, a temporary one.

    `reading` are options of `read_rows`. With `force` an index that does not fit is rebuilt. Without views, an index or
    a file of vectors has its own.
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
            with explained(place), opened_uses(source, embedders, views, reading) as uses:
                index_uses(uses, Path(place), model=model, progress=progress)
            folder = place
        else:
            replace = force or Path(folder).exists()
            with whole_folder(folder, force=replace) as target, opened_uses(source, embedders, views, reading) as uses:
                index_uses(uses, target, model=model, progress=progress)
        yield load_index(folder, views or None)


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
        index = load_index(path, views or None)
        if source is not None:
            _check_source(index, source, reading, folder)
    except (InputError, ModelError):
        if force and source is not None:
            return None
        raise
    return index


def index_uses(uses: Uses, folder: Path, *, model: str = "", progress: Progress | None = None) -> None:
    """Write the index of all words into a folder, with one view per view of the uses; `model` is the path it names."""
    numbers: dict[str, int] = {}
    n_documents = n_uses = 0
    widths = [0] * len(uses.views)
    with ExitStack() as stack:
        texts = stack.enter_context(pa.ipc.new_file(str(folder / "texts.arrow"), _TEXTS))
        places = stack.enter_context(pa.ipc.new_file(str(folder / "uses.arrow"), _USES))
        spools = [
            stack.enter_context((folder / layout.vectors_name(number)).open("wb")) for number in range(len(uses.views))
        ]
        for chunk in uses.gather(progress=progress):
            texts.write_table(_texts(chunk))
            places.write_table(_uses(chunk, n_documents, numbers))
            widths = [vectors.shape[1] for vectors in chunk.vectors]
            for vectors, spool in zip(chunk.vectors, spools, strict=True):
                spool.write(unit(vectors).tobytes())
            n_documents += len(chunk.documents)
            n_uses += sum(map(len, chunk.words))
    if not n_uses:
        raise InputError(f"{uses.name} has no words in it: there is nothing to index.")
    with pa.ipc.new_file(str(folder / "forms.arrow"), _FORMS) as forms:
        forms.write_table(pa.table({"form": list(numbers)}, schema=_FORMS))
    if n_uses > layout.EXACT_UP_TO:
        for number, width in enumerate(widths):
            path = folder / layout.vectors_name(number)
            matrix = np.memmap(path, dtype=np.float32, mode="r", shape=(n_uses, width))
            Graph.build(matrix).save(folder / layout.graph_name(number))
    card = {
        "format": FORMAT,
        "uses": n_uses,
        "documents": n_documents,
        "source": uses.card(),
        "model": model,
        "views": [{**view_to_json(view), "width": width} for view, width in zip(uses.views, widths, strict=True)],
        "checksums": checksums_in(folder),
    }
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _check_source(index: UseIndex, source: Sources, reading: Mapping[str, Any], folder: AnyPath) -> None:
    """Refuse an index that was built from another source than the one named."""
    with opened_uses(source, (), index.views, reading) as uses:
        card = uses.card()
    if card != index.source or card["bytes"] is None:
        raise InputError(
            f"The index {folder} was made of {_describe_source(index.source)}, and --in is "
            f"{_describe_source(card)}. To query the index, leave --in out; to rebuild it, give --force; or name "
            "another folder with --index."
        )


def _describe_source(source: Mapping[str, Any]) -> str:
    size = "" if source["bytes"] is None else f", {source['bytes']:,} bytes"
    return f"{source['name']}{size}" + "".join(f", {name} {value}" for name, value in source["reading"].items())


def _texts(chunk: UsesChunk) -> pa.Table:
    """The documents of a chunk."""
    columns = {
        "id": [document.id for document in chunk.documents],
        "text": [document.text for document in chunk.documents],
        "fields": [json.dumps(dict(document.fields), ensure_ascii=False, default=str) for document in chunk.documents],
    }
    return pa.table(columns, schema=_TEXTS)


def _uses(chunk: UsesChunk, n_before: int, numbers: dict[str, int]) -> pa.Table:
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
