"""Runs side by side, each in a process of its own: none begins after the deadline, and none outlives this process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

GRACE = 20.0
"""Seconds that a run which stops by itself has for that after the deadline."""
WORTHWHILE = 20.0
"""Seconds before the deadline in which no further run begins: it would only load and stop."""
_START = (
    "import time; started = time.perf_counter(); import sys; sys.path[:] = {path!r}; "
    "from polyseme.verbs.sweep_run import serve; serve(started)"
)


class SweepProgress(NamedTuple):
    """How the runs of a sweep go."""

    n_runs: int
    n_done: int
    n_failed: int
    running: Mapping[str, str]
    """The runs in progress, with the progress of each."""
    ended: str = ""
    """The run that has just ended, with its figures."""


class RunExit(NamedTuple):
    """How the process of a run ended."""

    exit_code: int
    stopped: bool
    """Whether it was ended because the time was over."""


@dataclass
class RunQueue:
    """Processes that carry out runs, so many at once."""

    jobs: int
    threads: int
    """CPU threads of each."""
    deadline: float = math.inf
    """By `time.monotonic`."""
    on_line: Callable[[str, str], None] = lambda name, line: None
    """Called with a run's name and its progress."""
    log: str = "log.txt"
    _processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _n_started: int = 0
    _closed: threading.Event = field(default_factory=threading.Event)

    def run(self, folders: Mapping[str, Path], ended: Callable[[str, RunExit | None], None]) -> None:
        """Carry out the runs; `ended` is called for each in this thread, with None for one that never began."""
        waiting: dict[Future[RunExit | None], str] = {}
        with ThreadPoolExecutor(self.jobs, "polyseme-sweep") as threads:
            try:
                for name, folder in folders.items():
                    waiting[threads.submit(self._carry_out, name, folder)] = name
                while waiting:
                    done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                    for future in done:
                        ended(waiting.pop(future), future.result())
                    if time.monotonic() > self.deadline + GRACE:
                        self._end_all()
            except BaseException:
                self._closed.set()
                self._end_all()
                raise

    def _carry_out(self, name: str, folder: Path) -> RunExit | None:
        left = self.deadline - time.monotonic()
        with self._lock:
            too_late = left <= 0 or (left < WORTHWHILE and self._n_started >= self.jobs)
            if too_late or self._closed.is_set():
                return None
            self._n_started += 1
        number = str(self.threads)
        with (folder / self.log).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path), str(folder), str(left)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number},
                text=True,
            )
        with self._lock:
            self._processes[name] = process
            if self._closed.is_set():
                process.kill()
        with process:
            for line in cast(IO[str], process.stdout):
                self.on_line(name, line.rstrip("\n"))
            process.wait()
        with self._lock:
            del self._processes[name]
        return RunExit(process.returncode, time.monotonic() > self.deadline)

    def _end_all(self) -> None:
        with self._lock:
            for process in self._processes.values():
                process.kill()
