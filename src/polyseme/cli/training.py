"""How training is shown while it runs: a line that moves on a terminal, a line an evaluation elsewhere."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

import click

from polyseme.cli.progress import Bar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from polyseme.training.effects.tell import Report


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
