"""A worker: a process with the job of a verb, model included, that computes chunks and stores them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import OutputError, PolysemeWarning
from polyseme.files.chunk_spool import ChunkRecord, Spool
from polyseme.files.chunked_job import store_chunk
from polyseme.files.chunks import Chunk, Job
from polyseme.files.rows import Row
from polyseme.files.unfinished_folder import SETTINGS

NOT_SHARED = ("input",)
"""Settings that a worker does not have, since it gets rows."""


class ChunkWorker:
    """An actor of Ray: it makes the job in `prepare`, and then stores chunks, one call after another."""

    def __init__(self) -> None:
        self._job: Job[Any, Any]
        self._settings: Mapping[str, Any]

    def host(self) -> str:
        """The machine's name."""
        return socket.gethostname()

    def prepare(self, make_job: Callable[[], Job[Any, Any]], started_in: str) -> dict[str, Any]:
        """Make the job, in the user's folder so that relative paths mean the same; returns its settings."""
        with contextlib.suppress(OSError):  # the folder is not there: a model by a relative path is then refused
            os.chdir(started_in)
        self._job = make_job()
        self._job.before_first()
        return comparable(self._job.settings())

    def store(
        self, number: int, first: int, rows: Sequence[Row], digest: str, folder: Path, record: bytes
    ) -> tuple[ChunkRecord, list[str]]:
        """Compute and store a chunk; returns its record, and the warnings.

        `record` is the content of the folder's own record, which shows the worker that it has the same folder.
        """
        _check_shared(folder, record)
        chunk: Chunk[Any] = Chunk(number, first, list(rows), 0, digest=digest)
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always", PolysemeWarning)
            chunk.units = self._job.prepare(chunk.rows)
            stored = store_chunk(self._job, chunk, Spool(folder, self._job.storage))
        return stored, [str(each.message) for each in reported if issubclass(each.category, PolysemeWarning)]


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that must be equal in all processes of a job, as JSON values."""
    shared = {name: value for name, value in settings.items() if name not in NOT_SHARED}
    content: dict[str, Any] = json.loads(json.dumps(shared, default=str))
    return content


def _check_shared(folder: Path, record: bytes) -> None:
    try:
        same = (folder / SETTINGS).read_bytes() == record
    except OSError:
        same = False
    if not same:
        raise OutputError(
            f"{folder} is not here, or is not the folder of the machine where the command was started. Workers write "
            "into the folder of the output: choose one that all machines share."
        )
