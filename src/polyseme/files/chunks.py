"""Rows in chunks, and what a verb does with them (`Job`); `chunked_job` carries that out.

A chunk is what is worked on, and stored or lost, together; batches never cross one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from polyseme.cost import Tally
from polyseme.files.atomic import AnyPath
from polyseme.files.chunk_spool import ChunkRecord, Storage
from polyseme.files.rows import Row
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
    """What is read: rows, with the position in the input."""

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
    """What is stored of it."""
    resumed: bool = False
    """Whether an earlier run has stored it."""


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


class Workers(Protocol):
    """Other processes, here or elsewhere, that have the same job."""

    def store(
        self, chunks: Generator[Chunk[Any], None, None], folder: Path, settings: Mapping[str, Any]
    ) -> Generator[Chunk[Any], None, None]:
        """The chunks, in their order, each with its record; those without one are computed and stored in the folder.

        What a worker finds to differ from the `settings` is refused.
        """


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


class BytesDone:
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


def part_of(on_batch: OnBatch, number: int, n_parts: int) -> OnBatch:
    """The report of one of several equal parts of the work on a chunk."""
    return lambda done, total: on_batch(number * total + done, n_parts * total)
