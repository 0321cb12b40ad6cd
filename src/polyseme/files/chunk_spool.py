"""Whole chunks of an unfinished output, stored so that the work can be resumed.

They are in a folder beside the output that anyone can see (`vectors.parquet.unfinished`):

| file | |
|---|---|
| settings.json | polyseme's record: everything that decides the result; work with other settings is not resumed |
| 000000.parquet, … | the results of one chunk, in a format that its verb chooses |
| 000000.json, … | a digest of the chunk's input, how many rows it has, what it cost, checksums of both files |
| shards.json | where the output is a folder of shards, the checksums of those that are whole |
| lock | held by the process that is at work |

Each file is written beside and renamed, the results before the digest: a chunk whose digest is there is whole. It
counts if its input is still the same and its results are as they were written; otherwise it is computed again, which is
reported. The folder goes when the output has its name, or when there is no whole chunk in it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from polyseme.cost import Tally
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.atomic import AnyPath, whole_file
from polyseme.files.checksums import checksum_of, is_intact, record_checksum
from polyseme.files.unfinished_folder import short, unfinished_work
from polyseme.json_reading import load_json

Result = TypeVar("Result")

SHARDS = "shards.json"
"""The checksums of shards that are whole."""


class Storage(Protocol[Result]):
    """How the results of a chunk are stored."""

    suffix: str

    def save(self, path: Path, results: Sequence[Result]) -> dict[str, Any]:
        """Write a whole file; the returned notes go into the chunk's record."""

    def load(self, path: Path) -> Iterator[Result]:
        """The results, or an InputError or ValueError where the file is damaged."""

    def expect(self, noted: Mapping[str, Any]) -> None:
        """Called with what `save` returned for the first chunk, also where an earlier run stored it."""


class JsonLines(Storage[Any]):
    """Results that JSON can hold, one per line."""

    suffix = ".jsonl"

    def save(self, path: Path, results: Sequence[Any]) -> dict[str, Any]:
        with whole_file(path, force=True) as new_file:
            new_file.write_text("".join(json.dumps(each, default=str) + "\n" for each in results), encoding="utf-8")
        return {}

    def load(self, path: Path) -> Iterator[Any]:
        try:
            with path.open(encoding="utf-8") as file:
                yield from map(json.loads, file)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None

    def expect(self, noted: Mapping[str, Any]) -> None:
        """Nothing depends on the first chunk."""


@dataclass(frozen=True, kw_only=True)
class ChunkRecord:
    """What is known of a whole chunk besides its results."""

    input: str
    rows: int
    results: int
    noted: Mapping[str, Any]
    tally: Tally
    checksum: str | None = None
    """Of the file with the results; None: an older version has stored none."""

    def to_json(self) -> dict[str, Any]:
        content = json.loads(json.dumps(asdict(self)))
        return {**content, "record": record_checksum(content)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ChunkRecord:
        """A record as it was stored; damaged ones raise a ValueError, TypeError or KeyError."""
        content = dict(content)
        expected = content.pop("record", None)
        if expected is not None and record_checksum(content) != expected:
            raise ValueError("its checksum is another")
        tally = Tally()
        tally.add(Tally(**content["tally"]))  # raises where something is no number
        return cls(
            input=str(content["input"]),
            rows=int(content["rows"]),
            results=int(content["results"]),
            noted=dict(content["noted"]),
            tally=tally,
            checksum=content.get("checksum"),
        )


_DAMAGE = (OSError, ValueError, TypeError, KeyError)
"""What reading a record raises that is not as it was written."""


def _read_record(path: Path) -> ChunkRecord:
    return ChunkRecord.from_json(load_json(path, kind=dict))


@contextlib.contextmanager
def open_spool(
    output: AnyPath, settings: Mapping[str, Any], storage: Storage[Result], *, force: bool = False
) -> Iterator[Spool[Result]]:
    """The spool of an output: that of a run which was stopped, if its settings are these, or a new one.

    If something goes wrong, or a signal ends the work, whole chunks stay, and a note of the exception reports it.
    """
    with unfinished_work(
        output, settings, noun="output", force=force, is_worth_keeping=lambda folder: any(folder.glob("[0-9]*.json"))
    ) as folder:
        yield Spool(folder, storage)


class Spool(Generic[Result]):
    """Chunks by their numbers, each whole or not there; see `open_spool`."""

    def __init__(self, folder: Path, storage: Storage[Result]) -> None:
        self.folder = folder
        self.n_results = 0
        """Of all chunks that were added so far."""
        self.n_sharded = 0
        """Results, counted from the first, that are in whole shards, so that their chunks may be gone."""
        self._storage = storage
        self._chunks: list[tuple[int, int, int]] = []  # number, first result, how many

    def stored_rows(self) -> int:
        """How many rows an earlier run has stored; `whole` says of each chunk whether it still counts."""
        n_rows = 0
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(*_DAMAGE):
                n_rows += _read_record(path).rows if path.stem.isdecimal() else 0
        return n_rows

    def whole(self, number: int, first: int, input: str) -> ChunkRecord | None:
        """The record of a chunk, if it is whole, of this input, and its first row is the `first` of all."""
        record = self._record(number)
        if record is None:
            return None
        in_shards = first < self.n_sharded
        if record.input != input:
            if in_shards:
                raise InputError(
                    f"The input has changed since the work began, in texts that are in whole shards already (from "
                    f"text {first + 1:,} on). To start again, remove {short(self.folder)} first."
                )
            self._report(number, "the input has changed there")
            return None
        if first + record.rows <= self.n_sharded or self._is_intact(number, record):
            return record
        if in_shards:
            raise InputError(
                f"{self._data(number)} is damaged or gone, and some of its texts are in a whole shard already. To "
                f"start again, remove {short(self.folder)} first."
            )
        self._report(number, "it is damaged")
        return None

    def save(self, number: int, results: Sequence[Result], *, n_rows: int, input: str, tally: Tally) -> ChunkRecord:
        """Write one chunk; it is whole when this returns."""
        self._record_path(number).unlink(missing_ok=True)
        noted = self._storage.save(self._data(number), results)
        record = ChunkRecord(
            input=input,
            rows=n_rows,
            results=len(results),
            noted=noted,
            tally=tally,
            checksum=checksum_of(self._data(number)),
        )
        with whole_file(self._record_path(number), force=True) as new_file:
            new_file.write_text(json.dumps(record.to_json()), encoding="utf-8")
        return record

    def add(self, number: int, record: ChunkRecord) -> None:
        """Count a whole chunk in, one after another."""
        if not self.n_results:
            self._storage.expect(record.noted)
        self._chunks.append((number, self.n_results, record.results))
        self.n_results += record.results

    def results(self, start: int, stop: int) -> Iterator[list[Result]]:
        """The results from one to another, those of a chunk at a time."""
        for number, first, n_results in self._chunks:
            if first < stop and start < first + n_results:
                bounds = max(start - first, 0), stop - first
                yield list(itertools.islice(self._storage.load(self._data(number)), *bounds))

    def drop_until(self, stop: int) -> None:
        """Remove the results of chunks that end at this one or before; they are in whole shards."""
        self.n_sharded = stop
        while self._chunks and sum(self._chunks[0][1:]) <= stop:
            self._data(self._chunks.pop(0)[0]).unlink(missing_ok=True)

    def keep_shard(self, path: Path) -> None:
        """Note the checksum of a shard that is whole, since its chunks will be gone."""
        with whole_file(self.folder / SHARDS, force=True) as new_file:
            new_file.write_text(json.dumps({**self._shards(), path.name: checksum_of(path)}), encoding="utf-8")

    def has_shard(self, path: Path) -> bool:
        """Whether a shard is there and as it was written; one of which nothing was noted is taken to be."""
        expected = self._shards().get(path.name)
        if not path.exists() or expected is None or is_intact(path, expected):
            return path.exists()
        warnings.warn(f"{short(path)} is made again: it is damaged.", PolysemeWarning, stacklevel=4)
        return False

    def _shards(self) -> dict[str, str]:
        try:
            return dict(load_json(self.folder / SHARDS, kind=dict))
        except (OSError, ValueError, TypeError):
            return {}

    def _record(self, number: int) -> ChunkRecord | None:
        try:
            return _read_record(self._record_path(number))
        except FileNotFoundError:
            return None
        except _DAMAGE:
            self._report(number, "it is damaged")
            return None

    def _is_intact(self, number: int, record: ChunkRecord) -> bool:
        path = self._data(number)
        if record.checksum is not None:
            return path.is_file() and is_intact(path, record.checksum)
        try:
            return sum(1 for _ in self._storage.load(path)) == record.results
        except (InputError, ValueError):
            return False

    def _report(self, number: int, reason: str) -> None:
        message = f"Chunk {number} in {short(self.folder)} is computed again: {reason}."
        warnings.warn(message, PolysemeWarning, stacklevel=4)

    def _data(self, number: int) -> Path:
        return self.folder / f"{number:06}{self._storage.suffix}"

    def _record_path(self, number: int) -> Path:
        return self.folder / f"{number:06}.json"
