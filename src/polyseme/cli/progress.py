"""Progress on standard error, where that is a terminal, for anything that takes over two seconds."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

DELAY = 2.0
"""Seconds before anything is drawn."""


class Bar:
    """A line that says what is going on; it goes when the work is done.

    `at_first` stands there with the time that has gone by. Once the bar is told of bytes of input, or of `what` else is
    counted, it shows them with the time left, beside `then`; and when all are done, `at_last` with the time since.
    """

    def __init__(self, at_first: str, then: str = "", at_last: str = "", *, what: str = "bytes") -> None:
        self.at_first = at_first
        self.then = then
        self.at_last = at_last
        self.what = what
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
            if self.at_last and total is not None and done >= total:
                self._wait(progress)
                progress.reset(task, description=self.at_last, total=None)
                return
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
        from rich.progress import Progress

        with self._lock:
            if self._timer is None:
                return
            progress = Progress(console=Console(stderr=True), transient=True)
            self._wait(progress)
            self._drawn = (progress, progress.add_task(self.at_first, total=None))
            progress.start()

    def _wait(self, progress: Progress) -> None:
        """Show that something is going on, and for how long, from now on."""
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        self._counts = False
        progress.columns = (TextColumn("{task.description}"), SpinnerColumn("line"), TimeElapsedColumn())

    def _count(self, progress: Progress) -> None:
        """Show how much is done, its rate where it is bytes, and the time left from now on."""
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        self._counts = True
        amount: tuple[ProgressColumn, ...] = (DownloadColumn(), TransferSpeedColumn())
        if self.what != "bytes":
            amount = (TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {self.what}"),)
        progress.columns = (TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn())
