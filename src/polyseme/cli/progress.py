"""A progress bar on standard error, with rate and time left, for anything that takes over two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

DELAY = 2.0
"""Seconds before anything is drawn."""


class Bar:
    """Counts bytes of input; draws nothing where standard error is no terminal, or the work is short."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.started = time.monotonic()
        self.progress: Progress | None = None

    def __enter__(self) -> Bar:
        return self

    def __call__(self, done: int, total: int | None) -> None:
        """Be told how far the work has come."""
        if not sys.stderr.isatty():
            return
        if self.progress is None:
            if time.monotonic() - self.started < DELAY:
                return
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.progress.start()
            self.task = self.progress.add_task(self.label, total=total)
        self.progress.update(self.task, completed=done, total=total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress is not None:
            self.progress.stop()
