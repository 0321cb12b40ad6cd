"""Words with their vectors of all layers, a few texts at a time, so that memory does not grow with the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.embedding.flow import Embedder
from polyseme.embedding.row_documents import document_of
from polyseme.encoders.inference import Precision
from polyseme.errors import InputError
from polyseme.files.rows import read_rows
from polyseme.files.source import Reading, source_name
from polyseme.files.source_paths import Sources
from polyseme.text.sentences import split_sentences
from polyseme.types import Document

WORDS_AT_ONCE = 4096
"""Words whose vectors are in memory together; a longer text is by itself."""


class LayersOfWords:
    """All layers of a model for every word; layers may differ in width."""

    def __init__(self, bundle: Bundle, *, name: str = "", precision: Precision = "own", **settings: Any) -> None:
        self.bundle = bundle
        self.name = name
        self.widths: Sequence[int] = bundle.config.widths
        layers = f"concat:0:{bundle.config.depth}"
        self.embedder = Embedder(bundle, layer=layers, precision=precision, **settings)

    def __call__(self, documents: Sequence[Document]) -> list[NDArray[Any]]:
        """[n, D] of each layer, layer 0 first: the words of all documents one after another."""
        vectors = np.concatenate([document.vectors for document in self.embedder(documents)])
        return np.split(vectors, np.cumsum(self.widths)[:-1], axis=1)


@dataclass(frozen=True)
class Texts:
    """Texts that can be read several times, up to a number of words."""

    sources: Sources
    reading: Mapping[str, Any]
    max_words: int

    def chunks(self) -> Iterator[list[Document]]:
        """As many texts at a time as have `WORDS_AT_ONCE`; the text that reaches the last word is read whole."""
        n_words = 0
        chunk: list[Document] = []
        with read_rows(self.sources, **self.reading, sentences=split_sentences) as rows:
            _name_of(rows)
            for row in rows:
                document = document_of(row)
                if not document.words:
                    continue
                chunk.append(document)
                n_words += len(document.words)
                if sum(len(each.words) for each in chunk) >= WORDS_AT_ONCE or n_words >= self.max_words:
                    yield chunk
                    chunk = []
                if n_words >= self.max_words:
                    return
        if chunk:
            yield chunk

    def name(self) -> str:
        """For messages; refused where texts cannot be read twice."""
        with read_rows(self.sources, **self.reading, sentences=split_sentences) as rows:
            return _name_of(rows)


def _name_of(rows: Reading[Any]) -> str:
    name = source_name(rows)
    if rows.total is None:
        raise InputError(
            f"{name} cannot be read twice, and the texts are: words are counted before vectors are computed. Write "
            "them to a file, and give that."
        )
    return name
