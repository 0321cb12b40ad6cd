"""`embed` over a file: rows in, chunks through the flow, vectors out, in bounded memory.

Batches never cross a chunk. The next chunk is split into words and pieces while the network runs over this one; it is
read by the thread that asks for it, so that an interrupt ends a read that waits for someone to type.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from typing import Any

from polyseme import files
from polyseme.cost import Cost, peak_memory
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.text.words import document
from polyseme.types import Document, Pieces, Progress
from polyseme.vectors.flow import Embedder

CHUNK_CHARACTERS = 1 << 19
"""A chunk ends with the row that brings it to so many characters; a longer row is a chunk by itself."""


@dataclass
class _Chunk:
    """Rows that are embedded together, and how far the input was read when the last of them had been."""

    documents: list[Document]
    encoded: list[Pieces]
    read_until: int


def embed_file(
    embedder: Embedder,
    source: str | PathLike[str],
    output: str | PathLike[str],
    *,
    force: bool = False,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Cost:
    """Embed every word of a file and write the vectors; what it cost is returned."""
    started = time.perf_counter()
    with (
        files.open_writer(output, force=force, about=dict(about or {})) as writer,
        files.read_rows(source) as rows,
        closing(_chunks(rows, embedder)) as chunks,
    ):
        if progress is not None:
            progress(0, rows.total)
        before = 0
        for chunk in chunks:

            def told(done: int, total: int, chunk: _Chunk = chunk, before: int = before) -> None:
                if progress is not None:
                    progress(before + (chunk.read_until - before) * done // max(total, 1), rows.total)

            writer.write(embedder.embed(chunk.documents, chunk.encoded, told))
            before = chunk.read_until
    if embedder.tally.vanished:
        warn_vanished(embedder.tally.vanished)
    return cost_so_far(embedder, time.perf_counter() - started)


def cost_so_far(embedder: Embedder, seconds: float) -> Cost:
    """The bill of what an embedder has done."""
    tally = embedder.tally
    return Cost(
        pieces=tally.pieces,
        words=tally.words,
        documents=tally.documents,
        seconds=seconds,
        flops=tally.flops,
        peak_memory=peak_memory(),
        device=str(embedder.device),
    )


def warn_vanished(count: int) -> None:
    """Say, once, that the tokenizer made nothing of some words."""
    warnings.warn(
        f"The model's tokenizer makes nothing of {count:,} word{'' if count == 1 else 's'} (control or zero-width "
        "characters); each was given the unknown piece, so that it has a vector.",
        PolysemeWarning,
        stacklevel=3,
    )


def _chunks(rows: Reading[Row], embedder: Embedder) -> Generator[_Chunk, None, None]:
    """Chunks in order, the next one prepared while this one is at work."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="polyseme-pieces") as ahead:
        pending: Future[_Chunk] | None = None
        for some in some_rows(rows):
            following = ahead.submit(_prepared, some, rows.done, embedder)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()


def some_rows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """As many rows at a time as make a chunk."""
    taken: list[Row] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(row.content) if isinstance(row.content, str) else sum(map(len, row.content))
        if size >= CHUNK_CHARACTERS:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken


def _prepared(rows: Sequence[Row], read_until: int, embedder: Embedder) -> _Chunk:
    documents = [document_of(row) for row in rows]
    return _Chunk(documents, embedder.tokenizer.encode_many(documents), read_until)


def document_of(row: Row) -> Document:
    """A row with its words; what is wrong with it is said with its place."""
    try:
        return document(row.content, id=row.id, fields=row.fields)
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None
