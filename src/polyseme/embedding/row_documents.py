"""Rows of files as documents. Importing this does not load torch."""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.errors import InputError
from polyseme.files.rows import Row
from polyseme.text.documents import make_document
from polyseme.types import Document, Pieces, Tokenizer


def document_of(row: Row) -> Document:
    """A row with its words; errors name its place."""
    try:
        return make_document(row.content, id=row.id, fields=row.fields, spans=row.spans, original=row.text)
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None


def encoded_rows(rows: Sequence[Row], tokenizer: Tokenizer) -> list[tuple[Document, Pieces]]:
    """Rows with their words and their pieces."""
    documents = [document_of(row) for row in rows]
    return list(zip(documents, tokenizer.encode_many(documents), strict=True))
