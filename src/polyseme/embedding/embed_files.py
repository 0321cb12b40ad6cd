"""`embed` over files: rows in, chunks through the flow, vectors out, in bounded memory.

Batches never cross a chunk. The next chunk is split into words and pieces while the network runs over this one; it is
read by the thread that asks for it, so that an interrupt ends a read that waits for someone to type.

Input of one chunk goes straight to the output. Of longer input every chunk is kept whole in a spool beside the output
(`files.spool`) until all are there, so that work which was stopped can be gone on with; and the weights are laid out
before the first one, so that a chunk has the same bits whether or not others went before it. What cannot be read twice
(standard input, pipes) cannot be gone on with, and goes straight to the output, too; nor can what carries its state
from text to text, since that would have to be known where the work was stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any, Protocol

from polyseme import files
from polyseme.cost import Cost, peak_memory
from polyseme.embedding.flow import ROWS_CARRIED, Embedder, Tally, warn_unread
from polyseme.embedding.pooling import per_text, warn_wordless
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.chunk_spool import Assembly, Kept, Spool, open_shards, open_spool
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.files.source_paths import Sources
from polyseme.files.vector_format import Fitter, Per, Store
from polyseme.text.documents import make_document
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, Embedded, Pieces, Progress

CHUNK_CHARACTERS = 1 << 19
"""A chunk ends with the row that brings it to so many characters; a longer row is a chunk by itself."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the vectors go, and as what."""

    output: str | PathLike[str]
    per: Per = "word"
    store: Store = "fp32"
    shard_rows: int | None = None
    """Rows of a shard, where the output is a folder of shards."""
    shard_format: str = "parquet"
    force: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Chunk:
    """Rows that are embedded together, and how far the input was read when the last of them had been."""

    number: int
    documents: list[Document]
    read_until: int
    encoded: list[Pieces]
    digest: str = ""
    kept: Kept | None = None
    """What is known of it, if it was embedded by an earlier run; then it is not in pieces."""


class _Writer(Protocol):
    def write(self, documents: Sequence[Embedded]) -> None: ...


def embed_files(
    embedder: Embedder,
    sources: Sources,
    target: Target,
    *,
    reading: Mapping[str, Any] | None = None,
    settings: Callable[[], Mapping[str, Any]] = dict,
    progress: Progress | None = None,
    started: float | None = None,
) -> Cost:
    """Embed every word of some files and write the vectors; what it cost, since it was `started`, is returned.

    `settings` gives all that decides the result; it is asked for only if the input is long enough to be gone on with.
    """
    started = time.perf_counter() if started is None else started
    with files.read_rows(sources, **(reading or {}), sentences=split_sentences) as rows:
        if progress is not None:
            progress(0, rows.total)
        told = _Told(progress, rows.total)
        chunked = _numbered(rows)
        first_two = list(itertools.islice(chunked, 2))
        chunked = itertools.chain(first_two, chunked)
        if len(first_two) > 1 and rows.total is not None and embedder.carried is None:
            earlier = _through_a_spool(embedder, chunked, target, settings(), told)
        else:
            earlier = _straight(embedder, chunked, target, told)
    warn_unread(embedder.tally)
    if embedder.tally.wordless and target.per == "text":
        warn_wordless(embedder.tally.wordless)
    return cost_so_far(embedder, time.perf_counter() - started + earlier)


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


# --- to the output ----------------------------------------------------------------------------------------------------


def _straight(embedder: Embedder, chunked: Iterator[_Some], target: Target, told: _Told) -> float:
    """Chunks to the output as they come."""
    with (
        _writer(target) as writer,
        closing(_ahead(chunked, lambda some: _in_pieces(some, embedder))) as chunks,
    ):
        for chunk in chunks if embedder.carried is None else _in_whole_batches(chunks):
            writer.write(_embedded(embedder, chunk, target.per, told))
    return 0.0


def _in_whole_batches(chunks: Iterator[_Chunk]) -> Iterator[_Chunk]:
    """The same texts in chunks that end where a batch of carried state does, so that batches run on over all texts.

    Texts without words are in no batch.
    """
    documents: list[Document] = []
    encoded: list[Pieces] = []
    chunk: _Chunk | None = None
    for chunk in chunks:
        documents, encoded = documents + chunk.documents, encoded + chunk.encoded
        read = [number for number, pieces in enumerate(encoded) if len(pieces.words)]
        begun = len(read) % ROWS_CARRIED
        until = read[-begun] if begun else len(encoded)  # the first text of a batch that is not whole yet
        yield replace(chunk, documents=documents[:until], encoded=encoded[:until])
        documents, encoded = documents[until:], encoded[until:]
    if chunk is not None and documents:
        yield replace(chunk, documents=documents, encoded=encoded)


def _through_a_spool(
    embedder: Embedder, chunked: Iterator[_Some], target: Target, settings: Mapping[str, Any], told: _Told
) -> float:
    """Chunks to a spool, those of an earlier run left as they are; the seconds that these took are returned."""
    earlier = Tally()
    seconds = 0.0
    n_texts = 0
    embedder.inference.prepare()
    fitted = Fitter(per=target.per, store=target.store)
    with open_spool(target.output, settings, fitted, per=target.per, force=target.force) as spool:
        assembly = Assembly(
            spool,
            target.output,
            about=target.about,
            per=target.per,
            shard_rows=target.shard_rows,
            shard_format=target.shard_format,
            force=target.force,
        )
        with closing(_ahead(chunked, lambda some: _unless_kept(some, embedder, spool))) as chunks:
            for chunk in chunks:
                kept = chunk.kept
                if kept is None:
                    kept = _keep(embedder, chunk, spool, target.per, told)
                else:
                    n_texts += kept.documents
                    seconds += kept.tally["seconds"]
                    _count(earlier, kept.tally)
                    told.until(chunk.read_until)
                spool.add(chunk.number, kept)
                assembly.advance()
        if n_texts:
            warnings.warn(
                f"Gone on with what an earlier run had done: {n_texts:,} texts.", PolysemeWarning, stacklevel=3
            )
        assembly.finish()
    _count(embedder.tally, asdict(earlier))
    return seconds


def _keep(embedder: Embedder, chunk: _Chunk, spool: Spool, per: Per, told: _Told) -> Kept:
    before, started = asdict(embedder.tally), time.perf_counter()
    embedded = _embedded(embedder, chunk, per, told)
    took = {name: value - before[name] for name, value in asdict(embedder.tally).items()}
    took["seconds"] = time.perf_counter() - started
    return spool.keep(chunk.number, embedded, chunk.digest, took)


def _count(tally: Tally, more: Mapping[str, float]) -> None:
    for name in asdict(tally):
        setattr(tally, name, getattr(tally, name) + more[name])


def _embedded(embedder: Embedder, chunk: _Chunk, per: Per, told: _Told) -> list[Embedded]:
    found = embedder.embed(chunk.documents, chunk.encoded, told.of(chunk.read_until))
    told.until(chunk.read_until)
    return per_text(found) if per == "text" else found


def _writer(target: Target) -> AbstractContextManager[_Writer]:
    if target.shard_rows is None:
        return files.open_writer(
            target.output, force=target.force, about=target.about, per=target.per, store=target.store
        )
    return open_shards(
        target.output,
        Fitter(per=target.per, store=target.store),
        about=target.about,
        per=target.per,
        shard_rows=target.shard_rows,
        shard_format=target.shard_format,
        force=target.force,
    )


class _Told:
    """Tells how many bytes of the input are done, never going back."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def until(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, self._total)

    def of(self, read_until: int) -> Callable[[int, int], None]:
        """For the batches of a chunk: its bytes are as far as its pieces are."""
        before = self._done
        return lambda done, total: self.until(before + (read_until - before) * done // max(total, 1))


# --- from the input ---------------------------------------------------------------------------------------------------


@dataclass
class _Some:
    """The rows of a chunk, as they were read."""

    number: int
    first: int
    rows: list[Row]
    read_until: int


def _numbered(rows: Reading[Row]) -> Iterator[_Some]:
    first = 0
    for number, some in enumerate(some_rows(rows)):
        yield _Some(number, first, some, rows.done)
        first += len(some)


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


def _ahead(chunked: Iterator[_Some], prepare: Callable[[_Some], _Chunk]) -> Generator[_Chunk, None, None]:
    """Chunks in order, the next one prepared while this one is at work."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="polyseme-pieces") as ahead:
        pending: Future[_Chunk] | None = None
        for some in chunked:
            following = ahead.submit(prepare, some)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()


def _in_pieces(some: _Some, embedder: Embedder) -> _Chunk:
    documents = [document_of(row) for row in some.rows]
    return _Chunk(some.number, documents, some.read_until, embedder.tokenizer.encode_many(documents))


def _unless_kept(some: _Some, embedder: Embedder, spool: Spool) -> _Chunk:
    digest = _digest(some.rows)
    kept = spool.whole(some.number, some.first, digest)
    if kept is not None:
        return _Chunk(some.number, [], some.read_until, [], digest, kept)
    chunk = _in_pieces(some, embedder)
    chunk.digest = digest
    return chunk


def _digest(rows: Iterable[Row]) -> str:
    """Equal for rows that make equal rows of the output."""
    digest = hashlib.sha256()
    for row in rows:
        content = row.content if isinstance(row.content, str) else list(row.content)
        digest.update(json.dumps([row.id, content, dict(row.fields)], default=str).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def document_of(row: Row) -> Document:
    """A row with its words; what is wrong with it is said with its place."""
    try:
        return make_document(row.content, id=row.id, fields=row.fields)
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None
