"""Progress on standard error, where that is a terminal, for anything that takes over two seconds."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from polyseme.training.effects import Report


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


# MERGED: How training is shown while it runs: a line that moves on a terminal, a line an evaluation elsewhere


class TrainingLine:
    """First a bar for the text that becomes a corpus, then loss, perplexity, speed, wait and the time left."""

    def __init__(self) -> None:
        self.bar = Bar("setting up", then="building the corpus", at_last="setting up, timing steps")
        self._shown: tuple[Progress, TaskID] | None = None
        self._held = ""

    def __enter__(self) -> TrainingLine:
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.__exit__(kind, error, trace)
        if self._shown is not None:
            self._shown[0].stop()

    def progress(self, done: int, total: int | None) -> None:
        """Be told how much of the text is in the corpus."""
        self.bar(done, total)

    def report(self, report: Report) -> None:
        """Be told how training goes."""
        if report.held_out:
            self._held = f"  held-out {report.held_out['loss']:.3f}"
        if not sys.stderr.isatty():
            if report.held_out:
                click.echo(self._line(report), err=True)
            return
        if self._shown is None:
            self.bar.__exit__(None, None, None)
            self._shown = self._begin()
        progress, task = self._shown
        progress.update(task, description=self._line(report))

    def _line(self, report: Report) -> str:
        perplexity = "" if report.perplexity is None else f"  perplexity {report.perplexity:,.1f}"
        left = str(timedelta(seconds=round(report.seconds_left)))
        return (
            f"step {report.done:,}/{report.n_steps:,} ({left} left)  loss {report.loss:.3f}{perplexity}{self._held}  "
            f"{report.pieces_a_second:,.0f} pieces/s  wait {report.wait_share:.1%}"
        )

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        progress = Progress(TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
        progress.start()
        return progress, progress.add_task("", total=None)
