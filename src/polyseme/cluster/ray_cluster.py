"""A cluster of Ray: check that it can be reached, connect, and compare the packages of its machines."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from polyseme import __version__
from polyseme.cluster import node_probe
from polyseme.errors import ClusterError, OptionError
from polyseme.extras import optional, require

LOCAL = "local"
SECONDS_TO_CONNECT = 10.0
SECONDS_TO_START = 300.0
"""For a cluster on this machine, and for a process on one of a cluster's machines."""
OBJECT_STORE = 256 << 20
"""Bytes of shared memory on a local cluster: rows pass through it, results do not."""


def check_cluster(address: str, output: object) -> None:
    """Refuse, before any work, an invalid address, or a cluster that cannot be reached."""
    if output is None:
        raise OptionError("Workers of Ray write into a file. Name it with --output (output=…).")
    if n_local_workers(address) is None and address != "auto":
        _check_reachable(address)
    require("ray", extra="ray")


def _check_reachable(address: str) -> None:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
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


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; a local cluster is started here, and ends with the block."""
    ray = require("ray", extra="ray")
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"address": address}
    n_local = n_local_workers(address)
    if n_local is not None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {
            "address": LOCAL,
            "num_cpus": n_local,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _init(ray, address, {**options, "log_to_driver": False, "logging_level": "ERROR"})
    try:
        with _without_reports():
            yield ray
    finally:
        ray.shutdown()


def _init(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect. Ray gives a local cluster 30 seconds to start, too few on a busy machine: the start is then repeated."""
    until = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            ray.init(**options)
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds, and a bare Exception if a start fails
            ray.shutdown()
            if n_local_workers(address) is not None and "timed out" in str(error).lower() and time.monotonic() < until:
                continue
            raise _not_there(address, " ".join(str(error).split())) from None
        return


@contextmanager
def _without_reports() -> Iterator[None]:
    """Keep Ray's messages on ended workers from standard output, by a private setting of Ray: polyseme reports them."""
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


def check_nodes(ray: Any) -> None:
    """Refuse machines without polyseme, or with another version of it or of torch."""
    ray.cloudpickle.register_pickle_by_value(node_probe)
    by_id = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    probe = ray.remote(node_probe.describe_node)
    probes = [
        probe.options(num_cpus=0, scheduling_strategy=by_id(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()
        if node["Alive"]
    ]
    own = node_probe.describe_node()
    try:
        nodes = ray.get(probes, timeout=SECONDS_TO_START)
    except ray.exceptions.RayError as error:
        reason = shorten(" ".join(str(error).split()), 300)
        raise ClusterError(f"A machine of the cluster does not answer ({reason}). Look at: ray status") from None
    for node in nodes:
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


def n_local_workers(address: str) -> int | None:
    """How many workers of this machine are requested; None: the address is a cluster's.

    >>> n_local_workers("local:3"), n_local_workers("head:6379")
    (3, None)
    """
    name, _, number = address.partition(":")
    if name != LOCAL:
        return None
    if not number and ":" not in address:
        return os.cpu_count() or 1
    if not number.isdecimal() or int(number) < 1:
        raise OptionError(
            f"{address!r} has no valid number of workers. Write local:2, or local for one worker per core."
        )
    return int(number)


def _not_there(address: str, problem: str) -> ClusterError:
    reason = shorten(problem, 300)
    if n_local_workers(address) is not None:
        return ClusterError(f"Ray does not start on this machine ({reason}). See its own report with: ray start --head")
    return ClusterError(
        f"There is no cluster of Ray at {address} that this process can join ({reason}). Start one with "
        "`ray start --head`, and use its address; or use local, for workers on this machine."
    )


def shorten(value: Any, most: int = 24) -> str:
    """A value as a text of at most so many characters."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"
