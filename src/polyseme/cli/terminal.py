"""What the command line shows: progress on standard error, and tables as plain columns on standard output.

Progress is drawn on terminals, for anything that takes over two seconds; elsewhere it is a line now and then, the first
after half a minute. Tables are neither cut nor wrapped, and in a pipe there is nothing but text.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from polyseme.cli.printing import BoldText, description_column, print_text, progress_display
from polyseme.printable import visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID
    from typing_extensions import Self

    from polyseme.plots.word_uses import Use
    from polyseme.sweeps.run_queue import SweepProgress
    from polyseme.training.effects import Report
    from polyseme.transfer.train_seed import StepReport as SeedReport

DELAY = 2.0
"""Seconds before anything is drawn."""
REDRAW_SECONDS = 0.1
FIRST_LINE = 30.0
"""Seconds before the first line of progress, where there is no terminal."""
BETWEEN_LINES = 60.0
"""Seconds between two; more as the work goes on: a tenth of the time that has passed."""
GAP = "  "
NARROWEST = 30
"""Columns that a wrapped cell has at least."""
CONTEXT = 40
"""Characters on each side of a word."""

Reported = TypeVar("Reported")


class Bar:
    """A line that says what is going on; it goes when the work is done.

    `at_first` is shown with the time elapsed. Once the bar is called with counts of `unit`, it shows them with the time
    left, beside `then`; and when all are done, `at_last` with the time since.
    """

    def __init__(self, at_first: str, then: str = "", at_last: str = "", *, unit: str = "bytes") -> None:
        self.at_first = at_first
        self.then = then
        self.at_last = at_last
        self.unit = unit
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._drawn: tuple[Progress, TaskID] | None = None
        self._counts = False
        self._lines: _ProgressLines | None = None

    def __enter__(self) -> Bar:
        if not sys.stderr.isatty():
            self._lines = _ProgressLines(self.then or self.at_first, self.unit)
        else:
            self._timer = threading.Timer(DELAY, self._draw)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __call__(self, done: int, total: int | None) -> None:
        """Show how many bytes are done, and of how many, where that is known."""
        if self._lines is not None:
            self._lines(done, total)
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

    def resumed(self, done: int, total: int | None) -> None:
        """The same, where an earlier run had done so much: the time left is that of what this one does."""
        if self._lines is not None:
            self._lines.resumed(done)
        with self._lock:
            if self._drawn is not None:
                progress, task = self._drawn
                if not self._counts:
                    self._count(progress)
                progress.reset(task, description=self.then, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._drawn is not None:
                self._drawn[0].stop()

    def _draw(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            progress = progress_display()
            self._wait(progress)
            self._drawn = (progress, progress.add_task(self.at_first, total=None))
            progress.start()

    def _wait(self, progress: Progress) -> None:
        """Show that something is going on, and for how long, from now on."""
        from rich.progress import SpinnerColumn, TimeElapsedColumn

        self._counts = False
        progress.columns = (description_column(), SpinnerColumn("line"), TimeElapsedColumn())

    def _count(self, progress: Progress) -> None:
        """Show how much is done, its rate where it is bytes, and the time left from now on."""
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        self._counts = True
        amount: tuple[ProgressColumn, ...] = (DownloadColumn(), TransferSpeedColumn())
        if self.unit != "bytes":
            amount = (TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {self.unit}"),)
        progress.columns = (description_column(), BarColumn(), *amount, TimeRemainingColumn())


class _ProgressLines:
    """Progress where there is no terminal: a line on standard error now and then, with the time left."""

    def __init__(self, doing: str, unit: str) -> None:
        self._doing = doing
        self._unit = unit
        self._started = self._first = time.monotonic()
        self._before = 0
        self._next = self._started + FIRST_LINE

    def resumed(self, done: int) -> None:
        """So much was done by an earlier run."""
        self._before, self._first = done, time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done <= self._before:
            self._first = now  # the work itself has not begun
        if now < self._next:
            return
        self._next = now + max(BETWEEN_LINES, (now - self._started) / 10)
        amount = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        print_text(
            f"{self._doing}: {amount} {self._unit}{self._format_time_left(now - self._first, done, total)}", err=True
        )

    def _format_time_left(self, seconds: float, done: int, total: int | None) -> str:
        if total is None or done <= self._before or seconds <= 0:
            return ""
        left = (total - done) * seconds / (done - self._before)
        return f" ({done / max(total, 1):.0%}, {timedelta(seconds=round(left))} left)"


class _Line(ABC, Generic[Reported]):
    """How training is shown: a bar for what comes before it, then a line that moves on a terminal; elsewhere one line
    per evaluation, and at least one per minute.
    """

    def __init__(self, bar: Bar) -> None:
        self.bar = bar
        self._shown: tuple[Progress, TaskID] | None = None
        self._drawn_at = 0.0 if sys.stderr.isatty() else time.monotonic()

    def __enter__(self) -> Self:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(*error)
        if self._shown is not None:
            self._shown[0].stop()

    def report(self, report: Reported) -> None:
        """Show how training goes."""
        evaluated, line = self._line(report)
        if not sys.stderr.isatty():
            if evaluated or time.monotonic() - self._drawn_at >= BETWEEN_LINES:
                self._drawn_at = time.monotonic()
                print_text(line, err=True)
            return
        if time.monotonic() - self._drawn_at < REDRAW_SECONDS and not evaluated:
            return
        self._drawn_at = time.monotonic()
        if self._shown is None:
            self.bar.__exit__()
            self._shown = self._begin()
        progress, task = self._shown
        progress.update(task, description=line)

    @abstractmethod
    def _line(self, report: Reported) -> tuple[bool, str]:
        """Whether there was an evaluation, and what is shown."""

    def _begin(self) -> tuple[Progress, TaskID]:
        progress = progress_display(description_column())
        progress.start()
        return progress, progress.add_task("", total=None)


class PretrainLine(_Line["Report"]):
    """First a bar for the text that becomes a corpus, then loss, perplexity, speed, wait and the time left."""

    def __init__(self) -> None:
        super().__init__(Bar("setting up", then="building the corpus", at_last="setting up, timing steps"))
        self._held_out = ""

    def _line(self, report: Report) -> tuple[bool, str]:
        if report.held_out:
            prediction = report.held_out_prediction
            self._held_out = f"  held-out {report.held_out['loss'] if prediction is None else prediction:.3f}"
        perplexity = "" if report.perplexity is None else f"  perplexity {report.perplexity:,.1f}"
        left = str(timedelta(seconds=round(report.seconds_left)))
        speed = f"  {report.pieces_per_second:,.0f} pieces/s" if report.pieces_per_second else ""
        return bool(report.held_out), (
            f"step {report.done:,}/{report.n_steps:,} ({left} left)  loss {report.loss:.3f}{perplexity}"
            f"{self._held_out}{speed}  wait {report.wait_share:.1%}"
        )


class FinetuneLine(_Line["SeedReport"]):
    """First a bar for frozen vectors, then the step of each seed, its loss and its score on dev."""

    def __init__(self) -> None:
        super().__init__(Bar("setting up", then="computing frozen vectors", at_last="setting up", unit="texts"))
        self.task = ""
        self._dev: dict[int, str] = {}

    def _line(self, report: SeedReport) -> tuple[bool, str]:
        if report.dev is not None:
            name, value = next(iter(report.dev.items()))
            self._dev[report.seed] = f"  loss {report.loss:.3f}  dev {name} {100 * value:.1f}"
        part = f"{report.part}, " if report.part else ""
        step = f"{part}seed {report.seed}, step {report.done:,}/{report.n_steps:,}{self._dev.get(report.seed, '')}"
        return report.dev is not None, f"{self.task}, {step}" if self.task else step


class SweepLine(_Line["SweepProgress"]):
    """First a bar for the text that becomes a corpus, then how many runs are done, and how far the others are."""

    def __init__(self) -> None:
        super().__init__(Bar("checking", then="building the corpus", at_last="starting"))

    def _line(self, report: SweepProgress) -> tuple[bool, str]:
        if report.ended and not sys.stderr.isatty():
            return True, f"{report.n_done} of {report.n_runs} runs done; {report.ended}"
        failed = f", {report.n_failed} failed" if report.n_failed else ""
        running = "; ".join(f"{name}: {line}" for name, line in report.running.items())
        return bool(report.ended), f"{report.n_done} of {report.n_runs} runs done{failed}; {running}"


class DistillLine(PretrainLine):
    """As pretraining is shown, or as fine-tuning, where a student learns a task."""

    def __init__(self) -> None:
        super().__init__()
        self._task = FinetuneLine()

    def _line(self, report: Any) -> tuple[bool, str]:
        return self._task._line(report) if hasattr(report, "seed") else super()._line(report)


def bar_over(sources: Sequence[str], then: str) -> Bar | nullcontext[None]:
    """A bar for work on files; where texts are typed instead, an invitation to type them."""
    if "-" in sources and sys.stdin.isatty():
        print_text("Type texts, one per line; Ctrl-D ends the input.", err=True)
        return nullcontext()
    return Bar("loading the model", then=then)


def print_cost(cost: str, output: str | None) -> None:
    """Print on standard error what the work cost, after the name of its output."""
    print_text(f"{'' if output is None else f'{visible(output, one_line=True)}: '}{cost}", err=True)


def print_table(rows: Iterable[Sequence[str]], *, header: Sequence[str] | None = None, wraps: bool = False) -> None:
    """Print rows of cells under each other; a header is bold on a terminal, where long last cells may be wrapped."""
    from rich.cells import cell_len  # how many columns a cell takes on a terminal: some letters take two, some none

    cells = [*([header] if header is not None else []), *rows]
    lines = [[visible(cell, one_line=True) for cell in line] for line in cells]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    margin = sum(widths[:-1]) + len(GAP) * len(widths[:-1])
    room = shutil.get_terminal_size().columns - margin if wraps and sys.stdout.isatty() else None
    for number, line in enumerate(lines):
        first, *others = [line[-1]] if room is None else textwrap.wrap(line[-1], max(room, NARROWEST)) or [""]
        cells_of_line = zip([*line[:-1], first], widths, strict=True)
        text = GAP.join(cell + " " * (width - cell_len(cell)) for cell, width in cells_of_line).rstrip()
        print_text(BoldText(text) if number == 0 and header is not None else text)
        for other in others:
            print_text(" " * margin + other)


def print_uses(lines: Sequence[tuple[str, Use]]) -> None:
    """Print uses of words, something short before each, their words in one column; "none" where there are none."""
    from rich.cells import cell_len

    from polyseme.plots.word_uses import printable_keyword

    if not lines:
        print_text("none")
        return
    labels = [visible(label, one_line=True) for label, _ in lines]
    keywords = [printable_keyword(use.keyword(CONTEXT)) for _, use in lines]
    first = max(map(cell_len, labels))
    margin = max(cell_len(keyword.before) for keyword in keywords)
    for label, (before, word, after) in zip(labels, keywords, strict=True):
        indented = " " * (margin - cell_len(before)) + before
        left = f"{label}{' ' * (first - cell_len(label))}  {indented}"
        print_text(left, BoldText(f"[{word}]"), after.rstrip())
