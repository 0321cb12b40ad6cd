"""How a command ends, and what it says then.

| exit code | |
|---|---|
| 0 | done |
| 1 | done, but runs of a sweep failed |
| 2 | refused, in one paragraph on standard error; nothing was left half-written |
| 130, 143, 129 | stopped by Ctrl-C, SIGTERM or a closed terminal, in one line; nothing was left half-written |
| 141 | whoever read the output has gone (`polyseme show \\| head -1`); nothing is printed |

What is worth knowing besides (`PolysemeWarning`, and what polyseme logs) goes to standard error as notes. An exception
that is none of these is a fault of polyseme, and is shown with its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TextIO

import click

from polyseme.cli.printing import print_message, print_text
from polyseme.errors import PolysemeError, PolysemeWarning, add_note, nearest
from polyseme.files.atomic import list_finished_outputs
from polyseme.printable import visible

REFUSED = 2
WIDEST = 100
"""Columns that a paragraph takes on a terminal, at most."""

_STOPS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "told to stop (SIGTERM)",
    signal.SIGHUP: "stopped, as the terminal was closed",
}
_PATIENCE = 10
"""Signals that are ignored while the first one clears up; one more ends the process at once."""
_SECONDS_ALONE = 20.0
"""How long a process under torchrun waits for the first to refuse, and to end, which takes long on a busy machine."""
_SECONDS_BETWEEN = 0.05
"""How long after a signal was swallowed it is sent once more."""


class StopSignal(BaseException):
    """A signal that ends the process once everything on the way out has been cleared up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """As shells give it for a process that a signal has ended."""
        return 128 + self.number


def exit_code(command: Callable[[], Any]) -> int:
    """Run a command, print how it ended, and return the exit code."""
    sys.excepthook = _show_fault
    try:
        with _SignalHandler(), _notes():
            code = command()
            return code if isinstance(code, int) else 0
    except PolysemeError as error:
        return _refuse(str(error), error)
    except click.ClickException as error:
        return _refuse_usage(error)
    except StopSignal as stop:
        if stop.number in _STOPS:
            if sys.stderr.isatty():
                print_text(err=True)  # away from the terminal's own ^C
            _say(f"polyseme: {_STOPS[stop.number]}; {_describe_leftovers(stop)}")
        return stop.exit_code
    except OSError as error:
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
        if error.errno == errno.ENAMETOOLONG:
            return _refuse(
                f"A name of {len(name):,} characters is too long for a file: {name[:60]}… Shorten it.", error
            )
        return _refuse(f"The system refused: {error.strerror or error}{f' ({name})' if name else ''}.", error)


@contextlib.contextmanager
def written_to_the_end() -> Iterator[None]:
    """Flush standard output; a reader that has gone away ends the command without a message."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_standard_output()
        raise StopSignal(signal.SIGPIPE) from None
    except OSError:
        _forget_standard_output()
        raise


def _describe_leftovers(stop: StopSignal) -> str:
    """What a process that is stopped leaves behind; the output may have been finished just before."""
    values = [value for each in sys.argv[1:] for value in (each, each.partition("=")[2], each[2:]) if value]
    named = {os.path.realpath(each) for each in values}  # as in: -o NAME, --output=NAME, -oNAME
    finished = [each for each in list_finished_outputs() if os.path.realpath(each) in named]
    if not finished:
        return " ".join(["nothing was left half-written.", *_notes_on(stop)])
    return f"{' and '.join(finished)} had been finished, so that nothing is left to do."


def _wait_for_first_process() -> None:
    """Under torchrun all processes refuse alike, and the first on a machine says so.

    When that one has ended, torchrun ends the others; one that is still there has refused alone, and speaks.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0" and "TORCHELASTIC_RUN_ID" in os.environ:
        time.sleep(_SECONDS_ALONE)


def _refuse(message: str, error: BaseException) -> int:
    _wait_for_first_process()
    _say(" ".join([f"polyseme: {message}", *_notes_on(error)]))
    return REFUSED


def _refuse_usage(error: click.ClickException) -> int:
    message, context = error.format_message(), error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return _refuse(message, error)
    if isinstance(error, click.NoSuchOption):
        known = [flag for each in context.command.get_params(context) for flag in each.opts if flag.startswith("--")]
        message = f"There is no option {error.option_name!r}. {nearest(error.option_name, known)}"
    return _refuse(f"{message}{'' if message.endswith(('.', '?')) else '.'} See: {context.command_path} --help", error)


def _show_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    print_message("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))


def _say(message: str) -> None:
    """One paragraph on standard error: wrapped on a terminal, in one line elsewhere; no name or path is broken."""
    message = visible(re.sub(r"[\t\r\n\v\f]+", " ", message))
    if sys.stderr.isatty():
        width = min(WIDEST, shutil.get_terminal_size().columns)
        message = textwrap.fill(message, width, break_long_words=False, break_on_hyphens=False)
    print_message(message)


@contextlib.contextmanager
def _notes() -> Iterator[None]:
    """What polyseme warns of or logs as plain lines; warnings once each, those of other libraries as Python does."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, PolysemeWarning):
            _say(f"note: {message}")
        else:
            print_text(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)

    logger, handler = logging.getLogger("polyseme"), _Noted()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            warnings.simplefilter("once", PolysemeWarning)
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Noted(logging.Handler):
    """Prints what is logged as a note."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(f"note: {record.getMessage()}")


class _SignalHandler:
    """Raises `StopSignal` at the first signal. Later ones are ignored while that clears up, and only then.

    Python drops an exception that is raised in a weakref callback or a `__del__`, and other code may swallow one. The
    signal is then sent once more, and a later one is not ignored. Compiled code may also raise an error of its own in
    its place; a command that ends with an error which does not come from `StopSignal` ends as stopped all the same.
    Whatever else holds the process up, it ends at once after `_PATIENCE` ignored signals.
    """

    def __init__(self) -> None:
        self._raised: Callable[[], StopSignal | None] = lambda: None
        self._number: int | None = None
        self._n_ignored = 0
        self._replaced: dict[signal.Signals, Any] = {}
        self._unraisable: Callable[[Any], Any] = sys.unraisablehook

    def __enter__(self) -> None:
        """Handle the signals that are not ignored already, as under nohup or in a script's background job."""
        if threading.current_thread() is threading.main_thread():
            handlers = {each: signal.getsignal(each) for each in _STOPS}
            self._replaced = {each: handler for each, handler in handlers.items() if handler is not signal.SIG_IGN}
            for each in self._replaced:
                signal.signal(each, self)
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._send_once_more

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *rest: object) -> None:
        """Put back the handlers of before; after a signal, ignore others: nothing is left to be stopped."""
        replaces = self._number is not None and isinstance(error, Exception) and not _comes_from_stop(error)
        stopped = replaces or isinstance(error, StopSignal)
        if self._replaced and not stopped:
            sys.unraisablehook = self._unraisable
        for each, handler in self._replaced.items():
            signal.signal(each, signal.SIG_IGN if stopped else handler)
        if replaces and error is not None and self._number is not None:
            stop = StopSignal(self._number)
            for note in _notes_on(error):
                add_note(stop, note)
            raise stop from None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._number = number if self._number is None else self._number
        if self._raised() is not None:
            self._n_ignored += 1
            if self._n_ignored > _PATIENCE:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        error = StopSignal(number)
        self._raised = weakref.ref(error)
        try:
            raise error
        finally:
            del error  # or its own traceback would keep it alive

    def _send_once_more(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, StopSignal):
            self._unraisable(unraisable)
            return
        number = int(unraisable.exc_value.number)
        self._raised = lambda: None
        signal.signal(signal.SIGALRM, lambda *_: self(number, None))
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_BETWEEN)


def _comes_from_stop(error: BaseException) -> bool:
    """Whether an error was raised while a `StopSignal` propagated: the cleaning up has failed, and must be reported."""
    context: BaseException | None = error
    while context is not None and not isinstance(context, StopSignal):
        context = context.__context__
    return context is not None


def _forget_standard_output() -> None:
    """Let what is still in the buffer go nowhere, or Python would try again, and complain, at the very end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _notes_on(error: BaseException) -> list[str]:
    """What those on the way out had to add: that something was kept, and where."""
    return list(getattr(error, "__notes__", ()))
