"""Chunks on the workers of a Ray cluster: each is computed and stored once, whatever becomes of a worker.

The process that is started reads the rows, cuts the same chunks as it would by itself, and puts the output together. A
worker computes a chunk and stores it, whole or not at all, beside the output. Chunks of a worker that ends go to
another. Plain actors are enough for that: Ray Data keeps neither the order of rows nor what an earlier run has done.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from polyseme import __version__
from polyseme.cluster import node_probe
from polyseme.cluster.chunk_worker import ChunkWorker, comparable
from polyseme.errors import ClusterError, OptionError, PolysemeError, PolysemeWarning
from polyseme.extras import optional, require
from polyseme.files.chunked_job import Chunk, Job
from polyseme.files.unfinished_folder import SETTINGS

LOCAL = "local"
QUEUED = 2
"""Chunks that a worker has at a time: one that it computes, and the next."""
MOST_DEATHS = 3
"""Workers that may end over one chunk; then it is the chunk's fault, or the model is too large for the machines."""
SECONDS_TO_CONNECT = 10.0
SECONDS_TO_START = 300.0
"""For a worker to load its model, and for another to take the place of one that has ended."""
SECONDS_TO_END = 10.0
OBJECT_STORE = 256 << 20
"""Bytes of shared memory on a local cluster: rows pass through it, results do not."""


def check_cluster(address: str, output: object) -> None:
    """Refuse, before any work, a cluster that cannot be, or is not there."""
    if output is None:
        raise OptionError("Workers of Ray write into a file. Name it with --output (output=…).")
    if _n_local(address) is None and address != "auto":
        _check_reachable(address)
    require("ray", extra="ray")


def _check_reachable(address: str) -> None:
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise OptionError(
            f"A cluster of Ray is named as host:port, ray://host:port, auto (the one on this machine), local, or "
            f"local:N for N workers on this machine. Got {address!r} instead."
        )
    try:
        socket.create_connection((host, port), SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise _not_there(address, error.strerror or str(error)) from None


class RayWorkers:
    """The workers of a cluster, one for each processor, or for each GPU; see `files.chunked_job.Workers`."""

    def __init__(self, address: str, make_job: Callable[[], Job[Any, Any]], *, on_gpu: bool) -> None:
        """`make_job` is called by each worker."""
        self._address = address
        self._make_job = make_job
        self._on_gpu = on_gpu

    def store(
        self, chunks: Generator[Chunk[Any], None, None], folder: Path, settings: Mapping[str, Any]
    ) -> Generator[Chunk[Any], None, None]:
        """The chunks in their order, those stored that had no record."""
        with closing(chunks), _connected(self._address) as ray:
            _check_nodes(ray)
            pool = _Pool(ray, self._make_job, self._on_gpu, folder, comparable(settings))
            try:
                pool.start()
                yield from pool.stored(chunks)
            finally:
                pool.end()


@dataclass
class _Worker:
    actor: Any
    host: str = ""
    chunks: dict[Any, Chunk[Any]] = field(default_factory=dict)
    """What it was given, by the references of the results, in that order."""


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
        self._deaths: Counter[int] = Counter()
        self._reported: set[str] = set()

    def start(self) -> None:
        """One worker for each processor or GPU that is free."""
        n_workers = int(self._ray.available_resources().get(self._kind, 0))
        if not n_workers:
            raise ClusterError(f"The cluster has no {self._kind} that is free. Wait for one, or add a machine.")
        self._workers = self._started(n_workers)
        if not self._workers:
            raise ClusterError(
                f"No worker of the cluster was ready after {SECONDS_TO_START:.0f} seconds. Look at: ray status"
            )

    def _started(self, n_workers: int) -> list[_Worker]:
        """So many new workers with the job, less those that are not ready in time."""
        started = {}
        for _ in range(n_workers):
            actor = self._actor.remote()
            started[actor.prepare.remote(self._make_job, os.getcwd())] = _Worker(actor)  # noqa: PTH109
        ready, late = self._ray.wait(list(started), num_returns=n_workers, timeout=SECONDS_TO_START)
        for each in late:
            self._ray.kill(started.pop(each).actor)
        try:
            for each in ready:
                worker = started[each]
                worker.host, settings = self._result(each, "a machine of the cluster")
                self._check_same(worker.host, settings)
        except BaseException as error:
            for worker in started.values():
                self._ray.kill(worker.actor)
            if isinstance(error, _WorkerEndedError):
                raise ClusterError(
                    f"A worker has ended while it loaded the model: {error} Most often memory is short: every worker "
                    "has a model of its own."
                ) from None
            raise
        return list(started.values())

    def _check_same(self, host: str, settings: Mapping[str, Any]) -> None:
        own = self._settings
        changed = [name for name in {**own, **settings} if own.get(name) != settings.get(name)]
        if changed:
            shown = [
                f"{name} is {_short(own.get(name))} here and {_short(settings.get(name))} there" for name in changed
            ]
            raise ClusterError(
                f"The worker on {host} would compute something else: {'; '.join(shown)}. All machines need the same "
                "model under the same name, and the same kind of device as the one where the command is started."
            )

    def stored(self, chunks: Iterator[Chunk[Any]]) -> Iterator[Chunk[Any]]:
        """The chunks in their order."""
        done: dict[int, Chunk[Any]] = {}
        following = 0
        for chunk in _then_none(chunks):
            if chunk is None:
                while any(worker.chunks for worker in self._workers):
                    self._collect(done)
            elif chunk.record is not None:
                done[chunk.number] = chunk
            else:
                while len((worker := self._least()).chunks) >= QUEUED:
                    self._collect(done)
                self._give(worker, chunk)
            while following in done:
                yield done.pop(following)
                following += 1

    def _least(self) -> _Worker:
        return min(self._workers, key=lambda worker: len(worker.chunks))

    def _give(self, worker: _Worker, chunk: Chunk[Any]) -> None:
        result = worker.actor.store.remote(
            chunk.number, chunk.first, chunk.rows, chunk.digest, self._folder, self._record
        )
        worker.chunks[result] = chunk

    def _collect(self, done: dict[int, Chunk[Any]]) -> None:
        """Wait a while for the next chunk that is stored."""
        by_result = {result: worker for worker in self._workers for result in worker.chunks}
        ready, _ = self._ray.wait(list(by_result), num_returns=1, timeout=1.0)
        for result in ready:
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
                    warnings.warn(message, PolysemeWarning, stacklevel=2)

    def _result(self, result: Any, host: str) -> Any:
        """What a call came to. What polyseme refuses there is refused here."""
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
        """A worker has ended: another takes its place, if there is room for one, and the chunks go to who is there."""
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
        warnings.warn(f"A worker on {worker.host} has ended; others take its chunks.", PolysemeWarning, stacklevel=2)
        self._workers += self._started(1)
        if not self._workers:
            raise ClusterError(f"No worker of the cluster is left. The last has ended: {reason}")
        for chunk in lost:
            self._give(self._least(), chunk)

    def end(self) -> None:
        """End the workers, and wait until none of them writes any more."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        left = [result for worker in self._workers for result in worker.chunks]
        if left:
            self._ray.wait(left, num_returns=len(left), timeout=SECONDS_TO_END)


class _WorkerEndedError(Exception):
    """A worker has ended, or cannot be reached."""


def _then_none(chunks: Iterator[Chunk[Any]]) -> Iterator[Chunk[Any] | None]:
    yield from chunks
    yield None


# --- the cluster ------------------------------------------------------------------------------------------------------


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster, or to one that is started here and ends with the block."""
    ray = require("ray", extra="ray")
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"address": address}
    n_local = _n_local(address)
    if n_local is not None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {
            "address": LOCAL,
            "num_cpus": n_local,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
    refused = (ConnectionError, OSError, RuntimeError, ValueError, ray.exceptions.RayError)
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(**options, log_to_driver=False, logging_level="ERROR")
        except refused as error:
            raise _not_there(address, " ".join(str(error).split())) from None
    try:
        with _without_reports():
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def _without_reports() -> Iterator[None]:
    """Keep what Ray prints of workers that end from standard output: polyseme reports it. A later Ray may print it."""
    module = optional("ray._private.worker")
    before = getattr(module, "_worker_logs_enabled", None)
    if before is None:
        yield
        return
    setattr(module, "_worker_logs_enabled", False)  # noqa: B010 - a name that is theirs
    try:
        yield
    finally:
        setattr(module, "_worker_logs_enabled", before)  # noqa: B010


def _check_nodes(ray: Any) -> None:
    """Refuse machines without polyseme, or with another one."""
    ray.cloudpickle.register_pickle_by_value(node_probe)
    by_id = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    probe = ray.remote(node_probe.describe_node)
    probes = [
        probe.options(num_cpus=0, scheduling_strategy=by_id(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()
        if node["Alive"]
    ]
    own = node_probe.describe_node()
    for node in ray.get(probes, timeout=SECONDS_TO_START):
        if node["polyseme"] is None:
            raise ClusterError(
                f"polyseme is not installed on {node['host']}, a machine of the cluster, or not for the Python that "
                f"Ray runs there. Install polyseme {__version__} on all of them."
            )
        for name in ("polyseme", "torch"):
            if node[name] != own[name]:
                raise ClusterError(
                    f"{node['host']}, a machine of the cluster, has {name} {node[name]}, and this process has "
                    f"{own[name]}. Install the same on all machines: results could differ."
                )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Put back the handlers of signals that Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _n_local(address: str) -> int | None:
    """How many workers of this machine are requested; None: the address is a cluster's.

    >>> _n_local("local:3"), _n_local("head:6379")
    (3, None)
    """
    name, _, number = address.partition(":")
    if name != LOCAL:
        return None
    if not number and ":" not in address:
        return os.cpu_count() or 1
    if not number.isdecimal() or int(number) < 1:
        raise OptionError(f"{address!r} is no number of workers on this machine: write local:2, or local for all.")
    return int(number)


def _not_there(address: str, reason: str) -> ClusterError:
    return ClusterError(
        f"There is no cluster of Ray at {address} that this process can join ({_short(reason, 300)}). Start one with "
        "`ray start --head`, and take its address; or take local, for workers on this machine."
    )


def _short(value: Any, most: int = 24) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"
