"""The uses of words in users' files: documents in chunks, the words that are wanted, and their vectors.

What `similar` and `senses` share. Where only some words are wanted, only the documents in which they stand are
embedded.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.embedding.embed_files import document_of, some_rows
from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.files.rows import Row
from polyseme.files.source import STANDARD_INPUT, Reading
from polyseme.types import Document, Progress, Word


@dataclass(frozen=True)
class Gathered:
    """Some documents and the uses of words in them."""

    documents: list[Document]
    words: list[list[Word]]
    """Those wanted, of each document."""
    vectors: list[NDArray[Any]]
    """[uses, D] for each embedder, all documents one after another."""


def form(word: str) -> str:
    """The word as two uses of it share it: whatever its case, and however its accents are encoded.

    >>> form("Straße") == form("STRASSE"), form("Crane") == form("cranes")
    (True, False)
    """
    return unicodedata.normalize("NFC", word).casefold()


def told_name(rows: Reading[Row]) -> str:
    """What rows come from, as it is said to users."""
    return "standard input" if rows.name == STANDARD_INPUT else rows.name


def gather(
    rows: Reading[Row],
    embedders: Sequence[Embedder],
    wanted: Callable[[Document], Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Iterator[Gathered]:
    """The uses of all words, or of those whose places in a document `wanted` picks; in the order of the rows."""
    for some in some_rows(rows):
        documents, places = _with_wanted([document_of(row) for row in some], wanted)
        if documents:
            encoded = embedders[0].tokenizer.encode_many(documents)
            vectors = [_of_places(embedder.embed(documents, encoded), places) for embedder in embedders]
            words = [[document.words[at] for at in its] for document, its in zip(documents, places, strict=True)]
            yield Gathered(documents, words, vectors)
        if progress is not None:
            progress(rows.done, rows.total)
    warn_unread(embedders[0].tally)


def _with_wanted(
    documents: Sequence[Document], wanted: Callable[[Document], Sequence[int]] | None
) -> tuple[list[Document], list[Sequence[int]]]:
    """The documents that have wanted words, and which of their words those are."""
    found = [(document, range(len(document.words)) if wanted is None else wanted(document)) for document in documents]
    kept = [(document, places) for document, places in found if len(places)]
    return [document for document, _ in kept], [places for _, places in kept]


def _of_places(embedded: Sequence[Any], places: Sequence[Sequence[int]]) -> NDArray[Any]:
    return np.concatenate([document.vectors[its] for document, its in zip(embedded, places, strict=True)])
