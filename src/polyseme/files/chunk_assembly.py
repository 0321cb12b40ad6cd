"""The output from whole chunks, as they come to be: one file, or a folder of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar

from polyseme.files.atomic import AnyPath, explained
from polyseme.files.chunk_spool import Spool
from polyseme.files.chunks import Job, Shards
from polyseme.files.unfinished_folder import finish, whole_output

Result = TypeVar("Result")


class Assembly(Generic[Result]):
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
        shards, folder, n_results = self._job.shards, self._spool.folder, self._spool.n_results
        if shards is None:
            with whole_output(folder, self._output, kind="file", force=self._force) as path:
                self._make(path, 0, n_results)
            return
        if n_results > self._n_shards * shards.rows:
            self._make_shard(shards)
        finish(folder, self._folder.name, self._output, kind="folder", force=self._force)

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
