"""The uses of words with their vectors, chunk by chunk: of texts, which are embedded, or of a file of vectors.

If only certain words are selected (as by `senses`), only documents that contain them are embedded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.files.chunks import BytesDone, part_of, row_chunks
from polyseme.files.reading_options import ALL, ReadingOptions, requested_fields
from polyseme.files.rows import Row, no_field, read_rows
from polyseme.files.source import Reading, source_name
from polyseme.files.source_paths import Sources
from polyseme.files.vector_files import read_provenance, read_vectors
from polyseme.files.vector_inputs import vector_files
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, EmbeddedDocument, Progress, Word
from polyseme.verb_options.word_options import ConcordanceOptions, IndexOptions, UsesOptions
from polyseme.word_senses.index import View, view_from_json

Select = Callable[[Document], Sequence[int]]
"""A document, in its original text → the positions of the words whose uses are wanted."""
DOCUMENTS_AT_ONCE = 512
"""Documents of a file of vectors that are in memory together."""


@dataclass(frozen=True)
class UsesChunk:
    """A chunk of documents and the uses of words in them."""

    documents: Sequence[Document]
    words: list[list[Word]]
    """The selected words of each document."""
    vectors: list[NDArray[Any]]
    """[uses, D] for each embedder, documents concatenated."""


class Uses(Protocol):
    """Where uses come from."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def views(self) -> Sequence[View]:
        """What their vectors are of."""

    def card(self) -> dict[str, Any]:
        """The record by which an index recognizes what it was made of."""

    def gather(self, select: Select | None = None, progress: Progress | None = None) -> Iterator[UsesChunk]:
        """The uses of all words, or of those selected, in order."""


def use_embedder(
    bundle: Bundle, options: UsesOptions | ConcordanceOptions, *, layer: str | int | None = None, **settings: Any
) -> Embedder:
    """An embedder that gives each use one vector, of the layer of `options` or another one."""
    layer = options.layer if layer is None else layer
    embedder = Embedder(bundle, layer=layer, pool=options.pool, batch_pieces=options.batch_pieces, **settings)
    if embedder.choice.mode == "all":
        raise OptionError(f"A use is compared by one vector, and layer {layer!r} gives it several. Use concat:a:b.")
    return embedder


def index_settings(options: IndexOptions, model: str) -> dict[str, Any]:
    """How the uses of `options` are read and indexed, by the arguments of `open_index`."""
    reading = options.changed(ReadingOptions)
    return {"reading": reading, "force": options.force, "model": model, "progress": options.progress}


@contextmanager
def opened_uses(
    source: Sources, embedders: Sequence[Embedder], views: Sequence[View], reading: Mapping[str, Any]
) -> Iterator[Uses]:
    """The uses in a source. Those of a file of vectors must be of these views; without views, they are of its own."""
    files = [] if "format" in reading else vector_files(source)
    if files:
        unread = [name for name in reading if name != "fields"]
        if unread:
            raise OptionError(f"The option {unread[0]!r} is for reading texts, and {files[0]} has vectors in it.")
        yield VectorUses(files, views, fields=reading.get("fields", ()))
        return
    with read_rows(source, **reading, sentences=split_sentences) as rows:
        yield TextUses(rows, embedders, views, reading)


# --- of texts ---------------------------------------------------------------------------------------------------------


class TextUses:
    """Uses in texts, which are embedded."""

    def __init__(
        self, rows: Reading[Row], embedders: Sequence[Embedder], views: Sequence[View], reading: Mapping[str, Any]
    ) -> None:
        self.views = views
        self.name = source_name(rows)
        self._rows = rows
        self._embedders = embedders
        self._reading = reading

    def card(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes": self._rows.total,
            "reading": json.loads(json.dumps(dict(self._reading))),
        }

    def gather(self, select: Select | None = None, progress: Progress | None = None) -> Iterator[UsesChunk]:
        for chunk in gather(self._rows, self._embedders, select, progress):
            documents = [
                dataclasses.replace(each, fields=requested_fields(each.fields, self._reading))
                for each in chunk.documents
            ]
            yield UsesChunk(documents, chunk.words, chunk.vectors)
        for number, embedder in enumerate(_distinct(self._embedders)):
            warn_unread(embedder.tally, "The other model's tokenizer" if number else "The model's tokenizer")


def _distinct(embedders: Sequence[Embedder]) -> list[Embedder]:
    """One embedder of each tokenizer."""
    return list({id(embedder.tokenizer): embedder for embedder in reversed(embedders)}.values())[::-1]


def gather(
    rows: Reading[Row],
    embedders: Sequence[Embedder],
    select: Select | None = None,
    progress: Progress | None = None,
) -> Iterator[UsesChunk]:
    """The uses of all words, or of those whose positions in a document `select` returns, in the order of the rows."""
    report = BytesDone(progress, rows.total)
    for chunk in row_chunks(rows):
        on_batch = report.of(rows.done)
        documents, places = _select(map(document_of, chunk), select)
        if documents:
            encoded = {id(each.tokenizer): each.encode(documents) for each in _distinct(embedders)}
            vectors = [
                np.concatenate([each.vectors[at] for each, at in zip(embedded, places, strict=True)])
                for embedded in (
                    each.embed(documents, encoded[id(each.tokenizer)], part_of(on_batch, number, len(embedders)))
                    for number, each in enumerate(embedders)
                )
            ]
            documents = [document.in_original() for document in documents]
            yield UsesChunk(documents, _words_at(documents, places), vectors)
        report.until(rows.done)


# --- of files of vectors ----------------------------------------------------------------------------------------------


class VectorUses:
    """Uses in files of vectors that `embed` wrote."""

    def __init__(self, files: Sequence[str], views: Sequence[View] = (), *, fields: Sequence[str] = ()) -> None:
        self._files = files
        self._fields = fields
        self._own = view_of_file(files[0])
        for other in files[1:]:
            _check_fits(other, self._own, view_of_file(other))
        if not views and self._own.layer.mode == "all":
            raise OptionError(f"{files[0]} has all layers of its model. Name one with --layer (layer=…).")
        self.views = views or [self._own]
        for view in views:
            _check_fits(files[0], view, self._own)
        self.name = files[0] if len(files) == 1 else f"{len(files)} files of vectors"

    def card(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": sum(map(_size, self._files)), "reading": {}}

    def gather(self, select: Select | None = None, progress: Progress | None = None) -> Iterator[UsesChunk]:
        total = len(self._files)
        for done, name in enumerate(self._files, start=1):
            chunk: list[EmbeddedDocument] = []
            for document in read_vectors(name):
                chunk.append(dataclasses.replace(document, fields=self._fields_of(document, name)))
                if len(chunk) == DOCUMENTS_AT_ONCE:
                    yield from self._gather(chunk, select)
                    chunk = []
            yield from self._gather(chunk, select)
            if progress is not None:
                progress(done, total)

    def _gather(self, chunk: Sequence[EmbeddedDocument], select: Select | None) -> Iterator[UsesChunk]:
        documents, places = _select(chunk, select)
        if not documents:
            return
        stored = np.concatenate([each.vectors[at] for each, at in zip(documents, places, strict=True)])
        vectors = [self._layer_of(stored.astype(np.float32), view) for view in self.views]
        yield UsesChunk(documents, _words_at(documents, places), vectors)

    def _fields_of(self, document: EmbeddedDocument, name: str) -> Mapping[str, Any]:
        """The fields of a document that are wanted."""
        if tuple(self._fields) == (ALL,):
            return document.fields
        for field in self._fields:
            if field not in document.fields:
                raise no_field(field, document.fields, name)
        return {field: document.fields[field] for field in self._fields}

    def _layer_of(self, vectors: NDArray[np.float32], view: View) -> NDArray[np.float32]:
        """[uses, D] of a view; of a file with all layers, those that the view takes."""
        if self._own.layer.mode != "all":
            return vectors
        layers = self._own.layer.layers
        combined: NDArray[np.float32] = view.layer.combine(
            {layer: torch.from_numpy(vectors[:, layers.index(layer)]) for layer in view.layer.layers}
        ).numpy()
        return combined


def view_of_file(name: str) -> View:
    """What the vectors of a file are of: model, layer and pooling."""
    provenance = read_provenance(name)
    if provenance.get("per", "word") != "word":
        raise InputError(f"{name} has one vector per text, and uses of words have their own. Embed --per word.")
    try:
        return view_from_json({"pool": provenance["pool"], **provenance["view"]})
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{name} does not say which model its vectors are of (it has no {error}): an older polyseme wrote it. "
            "Embed the texts again."
        ) from None


def model_of_file(name: str) -> str | None:
    """The model that made the vectors of a file, if its folder still exists."""
    model = str(read_provenance(name).get("model") or "")
    return model if model and Path(model).is_dir() else None


def _check_fits(name: str, requested: View, own: View) -> None:
    """Refuse vectors of another model, layer or pooling. A file with all layers has every layer."""
    differing = own.differences(requested)
    if own.layer.mode == "all":
        differing = [each for each in differing if not each.startswith("layer")]
    if differing:
        raise ModelError(
            f"The vectors of {name} do not fit: they differ in {', '.join(differing)}. Give the model and the settings "
            "that made them (-m, --layer, --pool), or embed the texts again."
        )


def _size(name: str) -> int:
    path = Path(name)
    return sum(each.stat().st_size for each in path.iterdir()) if path.is_dir() else path.stat().st_size


# --- both -------------------------------------------------------------------------------------------------------------


def _select(documents: Any, select: Select | None) -> tuple[list[Any], list[Sequence[int]]]:
    """The documents that have selected words, and the positions of these."""
    chosen: list[Any] = []
    places: list[Sequence[int]] = []
    for document in documents:
        positions = range(len(document.words)) if select is None else select(document.in_original())
        if len(positions):
            chosen.append(document)
            places.append(positions)
    return chosen, places


def _words_at(documents: Sequence[Document], places: Sequence[Sequence[int]]) -> list[list[Word]]:
    return [[document.words[at] for at in indices] for document, indices in zip(documents, places, strict=True)]
