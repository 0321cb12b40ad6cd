"""Rows to one file by way of chunks: what `generate` and `predict` have in common.

Chunks are worked on one after another, so that memory is bounded. Of input of several chunks each is kept whole in a
folder beside the output (`spool`) until all are there, so that work which was stopped can be gone on with. What cannot
be read twice (standard input, pipes), or is a single chunk, goes straight to the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.atomic import AnyPath, explained, whole_file
from polyseme.files.chunk_spool import open_spool
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.files.unfinished_folder import finish
from polyseme.files.vector_format import Fitter
from polyseme.types import Progress

Unit = TypeVar("Unit")


@dataclass(frozen=True)
class Chunk(Generic[Unit]):
    """What is kept, or lost, together."""

    number: int
    first: int
    """The number of its first unit among all."""
    units: list[Unit]
    read_until: int
    """Bytes of the input."""


class Chunks(Generic[Unit]):
    """What is read, `size` rows at a time, each row as a unit of work. They are gone through once."""

    def __init__(self, rows: Reading[Row], size: int, unit: Callable[[Row], Unit], *, what: str) -> None:
        self.what = what
        """What the units are called: texts, prompts."""
        self.total = rows.total
        self._rest = self._cut(rows, size, unit)
        self._first_two = list(itertools.islice(self._rest, 2))
        if not self._first_two:
            raise InputError(f"{rows.name} has no {what} in it.")

    def __iter__(self) -> Iterator[Chunk[Unit]]:
        return itertools.chain(self._first_two, self._rest)

    @property
    def are_kept(self) -> bool:
        """Whether there are several, of an input that can be read again: then they go through a spool."""
        return len(self._first_two) > 1 and self.total is not None

    @staticmethod
    def _cut(rows: Reading[Row], size: int, unit: Callable[[Row], Unit]) -> Iterator[Chunk[Unit]]:
        first, each = 0, iter(rows)
        for number in itertools.count():
            some = list(itertools.islice(each, size))
            if not some:
                return
            yield Chunk(number, first, [unit(row) for row in some], rows.done)
            first += len(some)


@dataclass(frozen=True, kw_only=True)
class Work(Generic[Unit]):
    """What is done with each chunk, and how it is written."""

    make: Callable[[Chunk[Unit]], list[Any]]
    """A chunk to what is kept of it, as JSON has it."""
    write: Callable[[Path, Iterable[list[Any]]], None]
    """What was made of all chunks, one after another, to a file."""
    given: Callable[[Unit], Any]
    """All that is read of a unit, as JSON has it: a chunk is made again where that has changed."""
    tally: Any
    """A record of numbers that grow with the work; to it is added what an earlier run had done."""


def write_chunks(
    chunks: Chunks[Unit],
    work: Work[Unit],
    output: AnyPath,
    *,
    settings: Callable[[], Mapping[str, Any]],
    force: bool,
    told: Progress,
) -> float:
    """See the work through to the output; the seconds that an earlier run took of it are returned.

    `settings` gives all that decides the result; it is asked for only where chunks are kept.
    """

    def make(chunk: Chunk[Unit]) -> list[Any]:
        made = work.make(chunk)
        told(chunk.read_until, chunks.total)
        return made

    if not chunks.are_kept:
        with whole_file(output, force=force) as path, explained(output):
            work.write(path, map(make, chunks))
        return 0.0
    n_before, seconds = 0, 0.0
    with open_spool(output, settings(), Fitter(per="text"), per="text", force=force) as spool:
        places = []
        for chunk in chunks:
            place = spool.folder / f"{chunk.number:06}.json"
            places.append(place)
            digest = _digest(chunk, work.given)
            kept = _kept(place, digest, work.tally)
            if kept is None:
                before, started = dict(vars(work.tally)), time.perf_counter()
                made = make(chunk)
                took = {name: value - before[name] for name, value in vars(work.tally).items()}
                record = {"input": digest, "made": made, "tally": took, "seconds": time.perf_counter() - started}
                with whole_file(place, force=True) as path:
                    path.write_text(json.dumps(record, default=str), encoding="utf-8")
            else:
                n_before += len(chunk.units)
                seconds += kept["seconds"]
                for name, more in kept["tally"].items():
                    setattr(work.tally, name, getattr(work.tally, name) + more)
                told(chunk.read_until, chunks.total)
        if n_before:
            said = f"Gone on with what an earlier run had done: {n_before:,} {chunks.what}."
            warnings.warn(said, PolysemeWarning, stacklevel=4)
        whole = f"whole{Path(output).suffix}"
        with whole_file(spool.folder / whole, force=True) as path, explained(output):
            work.write(path, (json.loads(place.read_text(encoding="utf-8"))["made"] for place in places))
        finish(spool.folder, whole, output, kind="file", force=force)
    return seconds


def _digest(chunk: Chunk[Unit], given: Callable[[Unit], Any]) -> str:
    """Equal for chunks of equal input."""
    return hashlib.sha256(json.dumps(list(map(given, chunk.units)), default=str).encode()).hexdigest()


def _kept(place: Path, digest: str, tally: Any) -> dict[str, Any] | None:
    """What an earlier run has made of a chunk, if its input is still the same."""
    try:
        found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        reason = "" if found["input"] == digest else "the input has changed there"
        found["made"], found["seconds"] = list(found["made"]), float(found["seconds"])
        found["tally"] = {name: 0 + found["tally"][name] for name in vars(tally)}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        reason = "it is damaged"
    if reason:
        warnings.warn(f"{place} is made again: {reason}.", PolysemeWarning, stacklevel=4)
        return None
    return found
