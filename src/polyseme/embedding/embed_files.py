"""`embed` over files: rows in, chunks through the flow, vectors out, in bounded memory.

The job is `files.chunked_job`'s: stopped work is resumed, unless vectors depend on the texts before (carried state,
pooled uses), since that would have to be known where the work was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.cost import Cost
from polyseme.embedding.flow import ROWS_CARRIED
from polyseme.embedding.pooling import warn_wordless
from polyseme.embedding.row_documents import document_of
from polyseme.embedding.side_by_side import WordEmbedder
from polyseme.errors import OptionError
from polyseme.files.atomic import AnyPath
from polyseme.files.chunk_spool import Storage
from polyseme.files.chunked_job import run_job
from polyseme.files.chunks import Chunk, Job, Shards, Workers, by_characters
from polyseme.files.rows import Row, read_rows
from polyseme.files.source_paths import Sources
from polyseme.files.vector_files import OWN, Fitter, Per, Store, VectorWriter, format_of, opened, read_vectors
from polyseme.files.vectors_long import OF_WORDS, OTHERS, long_format
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, EmbeddedDocument, OnBatch, Progress

LONG_OWN = (*OF_WORDS, *OTHERS)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the vectors go, and as what."""

    output: AnyPath
    per: Per = "word"
    store: Store = "fp32"
    long: bool = False
    """Whether the output is a table with one row per word."""
    columns: tuple[str, ...] = ()
    """Of such a table; none: all."""
    shard_rows: int | None = None
    """Rows of a shard, where the output is a folder of shards."""
    shard_format: str = "parquet"
    force: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)


class _VectorChunks(Storage[EmbeddedDocument]):
    """The vectors of a chunk as the output will hold them."""

    suffix = ".parquet"

    def __init__(self, per: Per, store: Store, own: Collection[str]) -> None:
        self._per = per
        self._fitted = Fitter(per=per, store=store, own={*OWN, *own})

    def save(self, path: Path, results: Sequence[EmbeddedDocument]) -> dict[str, Any]:
        with opened(path, format_of(path), self._fitted, force=True, provenance={}, per=self._per) as writer:
            writer.write(results)
        return {}

    def load(self, path: Path) -> Iterator[EmbeddedDocument]:
        return read_vectors(path)

    def expect(self, noted: Mapping[str, Any]) -> None:
        """Nothing depends on the first chunk."""


def embedding_job(
    embedder: WordEmbedder, target: Target, settings: Callable[[], Mapping[str, Any]] = dict
) -> Job[tuple[Document, Any], EmbeddedDocument]:
    """What is done with rows.

    `settings` gives all that decides the result; it is called only if the input is long enough to be resumed.
    """
    own = LONG_OWN if target.long else OWN
    own_fitter = Fitter(per=target.per, store=target.store, own=own)

    def prepare(rows: Sequence[Row]) -> list[tuple[Document, Any]]:
        documents = [document_of(row) for row in rows]
        return list(zip(documents, embedder.encode(documents), strict=True))

    def compute(chunk: Chunk[tuple[Document, Any]], on_batch: OnBatch) -> list[EmbeddedDocument]:
        documents, encoded = [document for document, _ in chunk.units], [pieces for _, pieces in chunk.units]
        return embedder.embed(documents, encoded, on_batch)

    def open_output(path: AnyPath, force: bool, from_storage: bool) -> AbstractContextManager[VectorWriter]:
        format = long_format(path, target.columns) if target.long else format_of(path, target.store)
        fitter = Fitter(per=target.per, as_bits=True, own=own) if from_storage else own_fitter
        return opened(path, format, fitter, force=force, provenance=target.provenance, per=target.per)

    return Job(
        noun="texts",
        ends_chunk=by_characters() if embedder.carried is None else by_characters(_ends_batch()),
        prepare=prepare,
        compute=compute,
        tally=embedder.tally,
        open_output=open_output,
        storage=_VectorChunks(target.per, target.store, own),
        settings=settings,
        can_resume=not embedder.depends_on_order,
        before_first=embedder.prepare,
        shards=None if target.shard_rows is None else Shards(target.shard_rows, f".{target.shard_format}"),
    )


def embed_files(
    embedder: WordEmbedder,
    sources: Sources,
    target: Target,
    *,
    reading: Mapping[str, Any] | None = None,
    settings: Callable[[], Mapping[str, Any]] = dict,
    progress: Progress | None = None,
    started: float | None = None,
    workers: Workers | None = None,
) -> Cost:
    """Embed every word of some files and write the vectors; what it cost, since it was `started`, is returned."""
    started = time.perf_counter() if started is None else started
    job = embedding_job(embedder, target, settings)
    with read_rows(sources, **(reading or {}), null_is_empty=True, sentences=split_sentences) as rows:
        run_job(job, rows, target.output, force=target.force, progress=progress, workers=workers)
    embedder.warn_unread()
    if embedder.tally.wordless and target.per == "text":
        warn_wordless(embedder.tally.wordless)
    return embedder.tally.cost(time.perf_counter() - started, embedder.device)


def check_shards(shard_rows: int | None, shard_format: str, store: Store | None) -> None:
    """Refuse shards that cannot be."""
    if shard_rows is None:
        if shard_format != "parquet":
            raise OptionError("The option 'shard_format' is for a folder of shards. Give 'shard_rows' with it.")
        return
    if shard_rows < 1:
        raise OptionError(f"A shard must have room for at least 1 row. Got {shard_rows} instead.")
    format_of(f"shards.{shard_format}", store)


def _ends_batch() -> Callable[[Row], bool]:
    """Whether a batch of carried state ends with a row, so that batches run on over all texts.

    Texts without words are in no batch.
    """
    n_texts = 0

    def ends(row: Row) -> bool:
        nonlocal n_texts
        n_texts += bool(document_of(row).words)
        return n_texts % ROWS_CARRIED == 0

    return ends
