"""Rows to an output, chunk by chunk: the one job under `embed`, `score`, `generate` and `predict`.

Memory is bounded by a chunk, and batches never cross one. The next chunk is prepared in a thread of its own while this
one is at work; it is read by the thread that asks for it, so that an interrupt ends a read that waits for input.

Of input of several chunks each is stored whole in a folder beside the output (`chunk_spool`) until all are there, so
that work which was stopped can be resumed, and ends as if it had never stopped. What cannot be read twice (standard
input, pipes), or is a single chunk, goes straight to the output.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from polyseme.cost import Tally
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.atomic import AnyPath, Kind, explained, whole_file, whole_folder
from polyseme.files.chunk_spool import ChunkRecord, Spool, Storage, open_spool
from polyseme.files.rows import Row
from polyseme.files.unfinished_folder import finish, leftover_work
from polyseme.types import OnBatch, Progress

CHUNK_CHARACTERS = 1 << 19
"""A chunk of texts ends with the row that brings it to so many characters; a longer row is a chunk by itself."""

Unit = TypeVar("Unit")
Result = TypeVar("Result")
Result_contra = TypeVar("Result_contra", contravariant=True)


class Writer(Protocol[Result_contra]):
    """Takes results, chunk by chunk."""

    def write(self, results: Sequence[Result_contra], /) -> None: ...


class Rows(Protocol):
    """What is read: rows, with how far one has come."""

    @property
    def name(self) -> str: ...

    @property
    def total(self) -> int | None:
        """Bytes; None for what cannot be read twice."""

    @property
    def done(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...


@dataclass
class Chunk(Generic[Unit]):
    """Rows that are worked on, and stored or lost, together."""

    number: int
    first: int
    """The number of its first row among all."""
    rows: list[Row]
    read_until: int
    """Bytes of the input."""
    units: Sequence[Unit] = ()
    """The rows as the job works on them; none if an earlier run has stored the chunk."""
    digest: str = ""
    record: ChunkRecord | None = None
    """What an earlier run has stored of it."""


@dataclass(frozen=True)
class Shards:
    """An output that is a folder of files with so many results each."""

    rows: int
    suffix: str

    def name(self, number: int) -> str:
        """`part-00000.parquet`, as readers of folders of Parquet expect."""
        return f"part-{number:05}{self.suffix}"


def row_digest(row: Row) -> list[Any]:
    """All that is read of a row."""
    places = [row.text, row.spans] if row.spans is not None else []
    return [row.id, row.content if isinstance(row.content, str) else list(row.content), dict(row.fields), *places]


@dataclass(frozen=True, kw_only=True)
class Job(Generic[Unit, Result]):
    """What a verb does with rows."""

    noun: str
    """What rows are called: texts, prompts."""
    ends_chunk: Callable[[], Callable[[Row], bool]]
    """Makes what says, row by row, whether a chunk ends there (`every`, `by_characters`)."""
    prepare: Callable[[Sequence[Row]], Sequence[Unit]]
    """Rows to units; runs ahead, in a thread of its own."""
    compute: Callable[[Chunk[Unit], OnBatch], Sequence[Result]]
    """A chunk to its results; reports how many pieces of it are done."""
    tally: Tally
    """Grows with `compute`; what an earlier run had counted is added."""
    open_output: Callable[[AnyPath, bool, bool], AbstractContextManager[Writer[Result]]]
    """A writer of a file that is whole once its block has ended well: its path, whether it may replace one, and whether
    the results come from the storage."""
    storage: Storage[Result]
    settings: Callable[[], Mapping[str, Any]]
    """All that decides the result; called only where chunks are stored."""
    digest: Callable[[Row], Any] = row_digest
    """All that is read of a row, as JSON: a chunk is computed again where that has changed."""
    can_resume: bool = True
    before_first: Callable[[], None] = lambda: None
    """Called where chunks are stored, so that a chunk has the same bits whether or not others went before it."""
    before_finish: Callable[[], None] = lambda: None
    """Called when all results are there; may refuse them."""
    shards: Shards | None = None


def every(n_rows: int) -> Callable[[], Callable[[Row], bool]]:
    """Chunks of so many rows."""

    def start() -> Callable[[Row], bool]:
        count = itertools.count(1)
        return lambda row: next(count) % n_rows == 0

    return start


def by_characters(may_end: Callable[[Row], bool] = lambda row: True) -> Callable[[], Callable[[Row], bool]]:
    """Chunks of at least `CHUNK_CHARACTERS`, which end where they may; `may_end` is asked at every row."""

    def start() -> Callable[[Row], bool]:
        size = 0

        def ends(row: Row) -> bool:
            nonlocal size
            size += len(row.content) if isinstance(row.content, str) else sum(map(len, row.content))
            if not may_end(row) or size < CHUNK_CHARACTERS:
                return False
            size = 0
            return True

        return ends

    return start


def row_chunks(rows: Iterable[Row], ends: Callable[[Row], bool] | None = None) -> Iterator[list[Row]]:
    """As many rows at a time as make a chunk."""
    ends = by_characters()() if ends is None else ends
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if ends(row):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def run_job(
    job: Job[Unit, Result], rows: Rows, output: AnyPath, *, force: bool = False, progress: Progress | None
) -> None:
    """See the work through to the output."""
    report = _Report(progress, rows.total)
    chunks, n_known = _chunks(job, rows)
    if n_known > 1 and rows.total is not None and job.can_resume:
        _through_spool(job, chunks, output, force, report)
        return
    with (
        leftover_work(output, job.settings, noun="output", force=force),
        closing(_computed_in_turn(job, chunks, report)) as results,
    ):
        if job.shards is None:
            with job.open_output(output, force, False) as writer:
                for each in results:
                    writer.write(each)
        else:
            with whole_folder(output, force=force) as folder:
                _write_shards(job, job.shards, folder, results)


def results_of(job: Job[Unit, Result], rows: Rows, progress: Progress | None) -> Iterator[Sequence[Result]]:
    """The same without an output: the results of each chunk."""
    chunks, _ = _chunks(job, rows)
    return _computed_in_turn(job, chunks, _Report(progress, rows.total))


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


def _through_spool(
    job: Job[Unit, Result], chunks: Iterator[Chunk[Unit]], output: AnyPath, force: bool, report: _Report
) -> None:
    """Chunks to a spool, those of an earlier run left as they are, and all of them to the output."""
    n_resumed = 0
    job.before_first()
    with open_spool(output, job.settings(), job.storage, force=force) as spool:
        assembly = _Assembly(job, spool, output, force)
        with closing(_ahead(chunks, lambda each: _looked_up(job, each, spool))) as ready:
            for chunk in ready:
                if chunk.record is None:
                    record = _stored(job, chunk, spool, report)
                else:
                    record = chunk.record
                    n_resumed += record.rows
                    job.tally.add(record.tally)
                    report.resumed(chunk.read_until)
                spool.add(chunk.number, record)
                assembly.advance()
        if n_resumed:
            message = f"Resumed: an earlier run had done {n_resumed:,} {job.noun}."
            warnings.warn(message, PolysemeWarning, stacklevel=4)
        job.before_finish()
        assembly.finish()


def _stored(job: Job[Unit, Result], chunk: Chunk[Unit], spool: Spool[Result], report: _Report) -> ChunkRecord:
    before, started = job.tally.copy(), time.perf_counter()
    results = _computed(job, chunk, report)
    tally = job.tally.since(before)
    tally.seconds = time.perf_counter() - started
    return spool.save(chunk.number, results, n_rows=len(chunk.rows), input=chunk.digest, tally=tally)


class _Assembly(Generic[Result]):
    """Puts the output together from the whole chunks of a spool as it grows: one file, or a folder of shards."""

    def __init__(self, job: Job[Any, Result], spool: Spool[Result], output: AnyPath, force: bool) -> None:
        self._job = job
        self._spool = spool
        self._output = output
        self._force = force
        self._n_shards = 0
        self._folder = spool.folder / "shards"
        if job.shards is not None:
            with explained(self._folder):
                self._folder.mkdir(exist_ok=True)
            while spool.has_shard(self._folder / job.shards.name(self._n_shards)):
                self._n_shards += 1
            spool.n_sharded = self._n_shards * job.shards.rows

    def advance(self) -> None:
        """Make the shards whose results are all there."""
        shards = self._job.shards
        if shards is None:
            return
        while self._spool.n_results >= (self._n_shards + 1) * shards.rows:
            self._make_shard(shards)
        self._spool.drop_until(self._n_shards * shards.rows)

    def finish(self) -> None:
        """All results are there: complete the output, and give it its name."""
        shards, n_results = self._job.shards, self._spool.n_results
        kind: Kind = "file"
        if shards is None:
            name = f"whole{Path(self._output).suffix.lower()}"
            self._make(self._spool.folder / name, 0, n_results)
        else:
            name, kind = self._folder.name, "folder"
            if n_results > self._n_shards * shards.rows:
                self._make_shard(shards)
        finish(self._spool.folder, name, self._output, kind=kind, force=self._force)

    def _make_shard(self, shards: Shards) -> None:
        first = self._n_shards * shards.rows
        stop = min(first + shards.rows, self._spool.n_results)
        path = self._folder / shards.name(self._n_shards)
        self._make(path, first, stop)
        self._spool.keep_shard(path)
        self._n_shards += 1

    def _make(self, path: Path, first: int, stop: int) -> None:
        with self._job.open_output(path, True, True) as writer:
            for results in self._spool.results(first, stop):
                writer.write(results)
                del results  # or the next are read while these are still held


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
    job: Job[Unit, Result], chunks: Iterator[Chunk[Unit]], report: _Report
) -> Generator[Sequence[Result], None, None]:
    with closing(_ahead(chunks, lambda chunk: _prepared(job, chunk))) as ready:
        for chunk in ready:
            yield _computed(job, chunk, report)
    job.before_finish()


def _prepared(job: Job[Unit, Any], chunk: Chunk[Unit]) -> Chunk[Unit]:
    chunk.units = job.prepare(chunk.rows)
    return chunk


def _looked_up(job: Job[Unit, Result], chunk: Chunk[Unit], spool: Spool[Result]) -> Chunk[Unit]:
    """A chunk with what an earlier run has stored of it, or else prepared."""
    content = json.dumps([job.digest(row) for row in chunk.rows], default=str)
    chunk.digest = hashlib.sha256(content.encode()).hexdigest()
    chunk.record = spool.whole(chunk.number, chunk.first, chunk.digest)
    return chunk if chunk.record is not None else _prepared(job, chunk)


def _computed(job: Job[Unit, Result], chunk: Chunk[Unit], report: _Report) -> Sequence[Result]:
    results = job.compute(chunk, report.of(chunk.read_until))
    report.until(chunk.read_until)
    return results


class _Report:
    """Reports how many bytes of the input are done, never going back."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self.until(0)

    def until(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, self._total)

    def resumed(self, done: int) -> None:
        """So much was done by an earlier run: who can tell that apart reports the right time left."""
        self._done = done
        if self._progress is not None:
            getattr(self._progress, "resumed", self._progress)(done, self._total)

    def of(self, read_until: int) -> OnBatch:
        """For the batches of a chunk: its bytes are as far as its pieces are."""
        before = self._done
        return lambda done, total: self.until(before + (read_until - before) * done // max(total, 1))
