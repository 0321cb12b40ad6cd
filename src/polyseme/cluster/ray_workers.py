"""Chunks on the workers of a Ray cluster: each is computed and stored once, even if a worker ends.

The process of the command reads the rows, cuts the same chunks as it would without a cluster, and assembles the output.
A worker computes a chunk and stores it beside the output, complete or not at all. If a worker ends, another one takes
its chunks. Plain actors do this; Ray Data would keep neither the order of rows nor the chunks of an earlier run.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.cluster.chunk_worker import ChunkWorker, comparable
from polyseme.cluster.ray_cluster import SECONDS_TO_START, check_nodes, connected, shorten
from polyseme.errors import ClusterError, PolysemeError, PolysemeWarning
from polyseme.files.chunks import Chunk, Job
from polyseme.files.unfinished_folder import SETTINGS

QUEUED = 2
"""Chunks that a worker has at a time: one that it computes, and the next."""
MOST_DEATHS = 3
"""Workers that may end over one chunk; after that the chunk is at fault, or the model is too large for the machines."""
SECONDS_TO_END = 10.0


class RayWorkers:
    """The workers of a cluster, one for each processor, or for each GPU; see `files.chunks.Workers`."""

    def __init__(self, address: str, make_job: Callable[[], Job[Any, Any]], *, on_gpu: bool) -> None:
        """`make_job` is called by each worker."""
        self._address = address
        self._make_job = make_job
        self._on_gpu = on_gpu

    def store(
        self, chunks: Generator[Chunk[Any], None, None], folder: Path, settings: Mapping[str, Any]
    ) -> Generator[Chunk[Any], None, None]:
        """The chunks in their order, after those without a record were computed and stored."""
        with closing(chunks), connected(self._address) as ray:
            check_nodes(ray)
            pool = _Pool(ray, self._make_job, self._on_gpu, folder, comparable(settings))
            try:
                pool.start()
                yield from pool.store(chunks)
            finally:
                pool.end()


@dataclass
class _Worker:
    actor: Any
    host_reference: Any
    """Ray's reference of the machine's name, the first result of a worker's process."""
    host: str = "a machine of the cluster"
    chunks: dict[Any, Chunk[Any]] = field(default_factory=dict)
    """The chunks that it has to store, by the references of their results, in order."""


class _Pool:
    def __init__(
        self, ray: Any, make_job: Callable[[], Job[Any, Any]], on_gpu: bool, folder: Path, settings: Mapping[str, Any]
    ) -> None:
        self._ray = ray
        self._make_job = ray.put(make_job)
        self._kind = "GPU" if on_gpu else "CPU"
        resources = {"num_gpus": 1} if on_gpu else {"num_cpus": 1}
        self._actor = ray.remote(ChunkWorker).options(**resources, scheduling_strategy="SPREAD")
        self._folder = folder
        self._record = (folder / SETTINGS).read_bytes()
        self._settings = settings
        self._workers: list[_Worker] = []
        self._starting: dict[Any, _Worker] = {}
        """Workers that are loading their model, by the references of the jobs' settings."""
        self._last_end = ""
        self._deaths: Counter[int] = Counter()
        self._reported: set[str] = set()

    def start(self) -> None:
        """Start one worker for each free processor or GPU, and wait until they are ready."""
        n_workers = int(self._ray.available_resources().get(self._kind, 0))
        if not n_workers:
            raise ClusterError(f"The cluster has no {self._kind} that is free. Wait for one, or add a machine.")
        for _ in range(n_workers):
            self._begin()
        self._await_workers(all_of_them=True)

    def _begin(self) -> None:
        actor = self._actor.remote()
        worker = _Worker(actor, actor.host.remote())
        self._starting[actor.prepare.remote(self._make_job, os.getcwd())] = worker  # noqa: PTH109

    def _await_workers(self, *, all_of_them: bool) -> None:
        """Wait until one worker is ready, or all are; workers whose process does not begin in time are dropped."""
        until = time.monotonic() + SECONDS_TO_START
        while self._starting and (all_of_them or not self._workers):
            ready, _ = self._ray.wait(list(self._starting), num_returns=1, timeout=1.0)
            for each in ready:
                self._join(each)
            if time.monotonic() > until:
                self._drop_late_workers()
        if not self._workers:
            reason = self._last_end or f"none started within {SECONDS_TO_START:.0f} seconds."
            raise ClusterError(
                f"No worker of the cluster is ready: {reason} The usual cause is too little memory, since each worker "
                "has its own model. Look at the machines with: ray status"
            )

    def _join(self, started: Any) -> None:
        """Take up a worker that is ready, or report that it has ended."""
        worker = self._starting[started]
        try:
            worker.host = self._result(worker.host_reference, worker.host)
            settings = self._result(started, worker.host)
        except _WorkerEndedError as ended:
            del self._starting[started]
            self._last_end = str(ended)
            _report(f"A worker on {worker.host} ended while it loaded the model.")
            return
        self._check_same(worker.host, settings)
        self._workers.append(self._starting.pop(started))

    def _drop_late_workers(self) -> None:
        """Drop workers without a process, which may have no machine. Loading a model may take longer."""
        for started, worker in list(self._starting.items()):
            hosts, _ = self._ray.wait([worker.host_reference], timeout=0)
            if not hosts:
                self._ray.kill(worker.actor)
                del self._starting[started]
                _report(f"A worker did not start within {SECONDS_TO_START:.0f} seconds and is left out.")

    def _check_same(self, host: str, settings: Mapping[str, Any]) -> None:
        own = self._settings
        changed = [name for name in {**own, **settings} if own.get(name) != settings.get(name)]
        if changed:
            shown = [
                f"{name} is {shorten(own.get(name))} here and {shorten(settings.get(name))} there" for name in changed
            ]
            raise ClusterError(
                f"The worker on {host} would compute something else: {'; '.join(shown)}. All machines need the same "
                "model under the same name, and the same kind of device as the one where the command is started."
            )

    def store(self, chunks: Iterator[Chunk[Any]]) -> Iterator[Chunk[Any]]:
        """The chunks in their order."""
        done: dict[int, Chunk[Any]] = {}
        following = 0
        for chunk in _with_end(chunks):
            if chunk is None:
                while any(worker.chunks for worker in self._workers):
                    self._collect(done)
            elif chunk.record is not None:
                done[chunk.number] = chunk
            else:
                while len((worker := self._least_busy()).chunks) >= QUEUED:
                    self._collect(done)
                self._assign(worker, chunk)
            while following in done:
                yield done.pop(following)
                following += 1

    def _least_busy(self) -> _Worker:
        return min(self._workers, key=lambda worker: len(worker.chunks))

    def _assign(self, worker: _Worker, chunk: Chunk[Any]) -> None:
        result = worker.actor.store.remote(
            chunk.number, chunk.first, chunk.rows, chunk.digest, self._folder, self._record
        )
        worker.chunks[result] = chunk

    def _collect(self, done: dict[int, Chunk[Any]]) -> None:
        """Wait up to a second for the next stored chunk, or for a worker that replaces another."""
        by_result = {result: worker for worker in self._workers for result in worker.chunks}
        ready, _ = self._ray.wait([*by_result, *self._starting], num_returns=1, timeout=1.0)
        for result in ready:
            if result in self._starting:
                self._join(result)
                return
            worker = by_result[result]
            try:
                record, reported = self._result(result, worker.host)
            except _WorkerEndedError as ended:
                self._replace(worker, str(ended))
                return
            chunk = worker.chunks.pop(result)
            chunk.record, chunk.rows = record, []
            done[chunk.number] = chunk
            for message in reported:
                if message not in self._reported:
                    self._reported.add(message)
                    _report(message)

    def _result(self, result: Any, host: str) -> Any:
        """The result of a call. An error that polyseme raised on the worker is raised here."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(result)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, PolysemeError):
                raise type(cause)(f"On {host}: {cause}") from None
            raise (cause if isinstance(cause, Exception) else error) from None
        except errors.RayError as error:
            raise _WorkerEndedError(str(error).partition("\n")[0]) from None

    def _replace(self, worker: _Worker, reason: str) -> None:
        """Assign the chunks of a worker that has ended to the others, and start a new worker if there is room."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)
        lost = list(worker.chunks.values())
        first = lost[0]
        self._deaths[first.number] += 1
        if self._deaths[first.number] >= MOST_DEATHS:
            raise ClusterError(
                f"{MOST_DEATHS} workers have ended over the same {len(first.rows):,} rows, from {first.rows[0].place} "
                f"on (the last: {reason}). Most often memory is short: take a smaller batch, or fewer workers per "
                "machine."
            )
        _report(f"A worker on {worker.host} has ended; others take its chunks.")
        self._last_end = reason
        self._begin()
        self._await_workers(all_of_them=False)
        for chunk in lost:
            self._assign(self._least_busy(), chunk)

    def end(self) -> None:
        """End the workers, and wait until none of them writes any more."""
        for worker in [*self._workers, *self._starting.values()]:
            self._ray.kill(worker.actor)
        left = [result for worker in self._workers for result in worker.chunks]
        if left:
            self._ray.wait(left, num_returns=len(left), timeout=SECONDS_TO_END)


class _WorkerEndedError(Exception):
    """A worker has ended, or cannot be reached."""


def _report(message: str) -> None:
    warnings.warn(message, PolysemeWarning, stacklevel=2)


def _with_end(chunks: Iterator[Chunk[Any]]) -> Iterator[Chunk[Any] | None]:
    yield from chunks
    yield None
