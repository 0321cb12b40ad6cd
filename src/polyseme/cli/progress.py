"""Progress on standard error, where that is a terminal, for anything that takes over two seconds."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY = 2.0
"""Seconds before anything is drawn."""


class Bar:
    """A line that says what is going on; it goes when the work is done.

    `at_first` stands there with the time that has gone by. Once the bar is told of bytes of input, it shows them with
    their rate and the time left, beside `then`.
    """

    def __init__(self, at_first: str, then: str = "") -> None:
        self.at_first = at_first
        self.then = then
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._drawn: tuple[Progress, TaskID] | None = None
        self._counts = False

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self._timer = threading.Timer(DELAY, self._draw)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __call__(self, done: int, total: int | None) -> None:
        """Be told how many bytes are done, and of how many, where that is known."""
        with self._lock:
            if self._drawn is None:
                return
            progress, task = self._drawn
            if not self._counts:
                self._count(progress)
            progress.update(task, description=self.then, completed=done, total=total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._drawn is not None:
                self._drawn[0].stop()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._timer is None:
                return
            progress = Progress(
                TextColumn("{task.description}"),
                SpinnerColumn("line"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._drawn = (progress, progress.add_task(self.at_first, total=None))
            progress.start()

    def _count(self, progress: Progress) -> None:
        """Show bytes, their rate and the time left from now on."""
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        self._counts = True
        progress.columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
