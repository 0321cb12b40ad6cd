"""Rows to an output, chunk by chunk: the one job under `embed`, `score`, `generate` and `predict`.

Memory is bounded by a chunk, and batches never cross one. The next chunk is prepared in a thread of its own while this
one is at work; it is read by the thread that asks for it, so that an interrupt ends a read that waits for input.

Of input of several chunks each is stored whole in a folder beside the output (`chunk_spool`) until all are there, so
that work which was stopped can be resumed, and ends as if it had never stopped. What cannot be read twice (standard
input, pipes), or is a single chunk, goes straight to the output.

`Workers` compute and store chunks in other processes (`cluster`). The chunks are the same, and so is the output.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath, Kind, explained, whole_file, whole_folder
from polyseme.files.chunk_assembly import Assembly
from polyseme.files.chunk_spool import ChunkRecord, Spool, open_spool
from polyseme.files.chunks import BytesDone, Chunk, Job, Rows, Shards, Workers, Writer, row_chunks
from polyseme.files.unfinished_folder import short_work
from polyseme.files.unused_memory import return_unused_memory
from polyseme.types import OnBatch, Progress

Unit = TypeVar("Unit")
Result = TypeVar("Result")


def run_job(
    job: Job[Unit, Result],
    rows: Rows,
    output: AnyPath,
    *,
    force: bool = False,
    progress: Progress | None,
    workers: Workers | None = None,
) -> None:
    """Compute all chunks and write the output, in this process or by `workers`.

    A single chunk needs no workers. Several are prepared for much work, which may change the last digits of results, so
    that workers for a single chunk would not give the same output.
    """
    if workers is not None:
        _refuse_unshared(job, rows)
    report = BytesDone(progress, rows.total)
    chunks, n_known = _chunks(job, rows)
    if n_known > 1 and rows.total is not None and job.can_resume:
        _through_spool(job, chunks, output, force, report, workers)
        return
    if workers is not None:
        message = "The input is a single chunk, so this process computes it without the cluster."
        warnings.warn(message, PolysemeWarning, stacklevel=3)
    kind: Kind = "file" if job.shards is None else "folder"
    with (
        short_work(output, job.settings, noun="output", kind=kind, force=force) as path,
        closing(_computed_in_turn(job, chunks, report)) as results,
    ):
        if job.shards is None:
            with job.open_output(path, force, False) as writer:
                for each in results:
                    writer.write(each)
        else:
            with whole_folder(path, force=force) as folder:
                _write_shards(job, job.shards, folder, results)


def results_of(job: Job[Unit, Result], rows: Rows, progress: Progress | None) -> Iterator[Sequence[Result]]:
    """The same without an output: the results of each chunk."""
    chunks, _ = _chunks(job, rows)
    return _computed_in_turn(job, chunks, BytesDone(progress, rows.total))


def _write_shards(job: Job[Any, Result], shards: Shards, folder: Path, chunks: Iterable[Sequence[Result]]) -> None:
    number = room = 0
    with contextlib.ExitStack() as stack:
        for results in chunks:
            while results:
                if not room:
                    stack.close()
                    path = folder / shards.name(number)
                    writer = stack.enter_context(job.open_output(path, False, False))
                    number, room = number + 1, shards.rows
                part, results = results[:room], results[room:]
                writer.write(part)
                room -= len(part)


@contextlib.contextmanager
def open_lines(output: AnyPath, force: bool, from_storage: bool) -> Iterator[Writer[str]]:
    """An output of plain lines."""
    with (
        whole_file(output, force=force) as path,
        explained(output),
        path.open("w", encoding="utf-8", newline="\n") as file,
    ):
        yield _Lines(file.writelines)


@dataclass
class _Lines:
    _writelines: Callable[[Iterable[str]], None]

    def write(self, lines: Sequence[str], /) -> None:
        self._writelines(f"{line}\n" for line in lines)


# --- with an earlier run's chunks -------------------------------------------------------------------------------------


def _refuse_unshared(job: Job[Any, Any], rows: Rows) -> None:
    if rows.total is None:
        raise OptionError(
            f"Workers of Ray need {job.noun} that can be read twice, and {rows.name} cannot. Name a file."
        )
    if not job.can_resume:
        raise OptionError(
            f"With these options the result of a text depends on the {job.noun} before it, so that workers cannot "
            "share them. Leave out --ray (ray=…), or the option (carry_state, pool_uses)."
        )


def _through_spool(
    job: Job[Unit, Result],
    chunks: Iterator[Chunk[Unit]],
    output: AnyPath,
    force: bool,
    report: BytesDone,
    workers: Workers | None,
) -> None:
    """Chunks to a spool, those of an earlier run left as they are, and all of them to the output."""
    job.before_first()
    settings = job.settings()
    with open_spool(output, settings, job.storage, force=force) as spool:
        n_unreported = spool.stored_rows()
        assembly = Assembly(job, spool, output, force)
        if workers is None:
            stored = _stored_in_turn(job, chunks, spool, report)
        else:
            stored = workers.store(_ahead(chunks, lambda each: _known(job, each, spool)), spool.folder, settings)
        with closing(stored):
            for chunk in stored:
                record = _present(chunk.record)
                if chunk.resumed:
                    if n_unreported:
                        message = f"Resumed: an earlier run had done {n_unreported:,} {job.noun}."
                        warnings.warn(message, PolysemeWarning, stacklevel=4)
                        n_unreported = 0
                    job.tally.add(record.tally)
                    report.resumed(chunk.read_until)
                else:
                    if workers is not None:
                        job.tally.add(replace(record.tally, seconds=0.0))  # they count as they pass here
                    report.until(chunk.read_until)
                spool.add(chunk.number, record)
                assembly.advance()
        job.before_finish()
        assembly.finish()


def _stored_in_turn(
    job: Job[Unit, Result], chunks: Iterator[Chunk[Unit]], spool: Spool[Result], report: BytesDone
) -> Generator[Chunk[Unit], None, None]:
    """Chunks with their records, by this process."""

    def looked_up(chunk: Chunk[Unit]) -> Chunk[Unit]:
        return chunk if _known(job, chunk, spool).record is not None else _prepared(job, chunk)

    with closing(_ahead(chunks, looked_up)) as ready:
        for chunk in ready:
            if chunk.record is None:
                chunk.record = store_chunk(job, chunk, spool, report.of(chunk.read_until))
            yield chunk


def store_chunk(
    job: Job[Unit, Result], chunk: Chunk[Unit], spool: Spool[Result], on_batch: OnBatch = lambda done, total: None
) -> ChunkRecord:
    """Compute a chunk that is prepared, and store it whole."""
    before, started = job.tally.copy(), time.perf_counter()
    results = job.compute(chunk, on_batch)
    tally = job.tally.since(before)
    tally.seconds = time.perf_counter() - started
    record = spool.save(chunk.number, results, n_rows=len(chunk.rows), input=chunk.digest, tally=tally)
    del results
    return_unused_memory()
    return record


def _present(record: ChunkRecord | None) -> ChunkRecord:
    assert record is not None, "a chunk that is stored has a record"
    return record


# --- chunks -------------------------------------------------------------------------------------------------------


def _chunks(job: Job[Unit, Result], rows: Rows) -> tuple[Iterator[Chunk[Unit]], int]:
    """All chunks, and whether there are several: how many of the first two there are."""

    def cut() -> Iterator[Chunk[Unit]]:
        first = 0
        for number, chunk in enumerate(row_chunks(rows, job.ends_chunk())):
            yield Chunk(number, first, chunk, rows.done)
            first += len(chunk)

    chunks = cut()
    first_two = list(itertools.islice(chunks, 2))
    if not first_two:
        job.before_finish()
        raise InputError(f"{rows.name} has no {job.noun} in it.")
    return itertools.chain(first_two, chunks), len(first_two)


def _ahead(
    chunks: Iterator[Chunk[Unit]], prepare: Callable[[Chunk[Unit]], Chunk[Unit]]
) -> Generator[Chunk[Unit], None, None]:
    """Chunks in order, the next one prepared while this one is at work."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="polyseme-ahead") as ahead:
        pending: Future[Chunk[Unit]] | None = None
        for chunk in chunks:
            following = ahead.submit(prepare, chunk)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()


def _computed_in_turn(
    job: Job[Unit, Result], chunks: Iterator[Chunk[Unit]], report: BytesDone
) -> Generator[Sequence[Result], None, None]:
    with closing(_ahead(chunks, lambda chunk: _prepared(job, chunk))) as ready:
        for chunk in ready:
            yield _computed(job, chunk, report)
    job.before_finish()


def _prepared(job: Job[Unit, Any], chunk: Chunk[Unit]) -> Chunk[Unit]:
    chunk.units = job.prepare(chunk.rows)
    return chunk


def _known(job: Job[Unit, Result], chunk: Chunk[Unit], spool: Spool[Result]) -> Chunk[Unit]:
    """A chunk with what an earlier run has stored of it, if it has."""
    content = json.dumps([job.digest(row) for row in chunk.rows], default=str)
    chunk.digest = hashlib.sha256(content.encode()).hexdigest()
    chunk.record = spool.whole(chunk.number, chunk.first, chunk.digest)
    chunk.resumed = chunk.record is not None
    return chunk


def _computed(job: Job[Unit, Result], chunk: Chunk[Unit], report: BytesDone) -> Sequence[Result]:
    results = job.compute(chunk, report.of(chunk.read_until))
    report.until(chunk.read_until)
    return_unused_memory()
    return results
