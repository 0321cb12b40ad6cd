"""On a terminal there is progress, and paragraphs are wrapped; in a pipe there is nothing but text."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from forked import Forked
from polyseme.cli import terminal
from polyseme.cli.terminal import Bar, PretrainLine
from polyseme.cost import Tally
from polyseme.errors import PolysemeWarning
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import open_lines, run_job
from polyseme.files.chunks import CHUNK_CHARACTERS, Chunk, Job, every
from polyseme.files.rows import read_rows
from polyseme.training.effects import Report
from polyseme.types import OnBatch

ALWAYS, NEVER = 0.0, 3600.0
"""Seconds before a bar is drawn."""

EAGER = "import polyseme.cli.terminal as p; p.DELAY = 0.0; from polyseme.cli import main; main(prog_name='polyseme')"
"""The command line with a bar that does not wait."""


class Terminal:
    """A pseudo-terminal of so many columns: what is written to `side` can be read."""

    def __init__(self, columns: int = 120) -> None:
        self._own, self.side = pty.openpty()
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._read = b""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read_all)
        self._reader.start()

    def _read_all(self) -> None:
        while True:
            try:
                block = os.read(self._own, 1 << 16)
            except OSError:  # how a terminal ends
                return
            with self._changed:
                self._read += block
                self._changed.notify_all()

    def wait_for(self, text: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self._read, timeout=600)

    def shown(self) -> str:
        """Everything that was written, once nobody can write any more."""
        os.close(self.side)
        self._reader.join()
        os.close(self._own)
        return self._read.decode()


@contextlib.contextmanager
def standard_error(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    with os.fdopen(os.dup(terminal.side), "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", file)
        patch.setenv("TERM", "xterm")
        yield file


def plain(shown: str) -> str:
    """Without the terminal's codes."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_a_bar_with_rate_and_time_left(tiny: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.npz"
    line = b"Dawn broke." + b" " * CHUNK_CHARACTERS + b"\n"
    source.write_bytes(line * 4)
    terminal = Terminal()
    command = ["embed", str(source), "-m", str(tiny), "-o", str(output)]
    assert Forked(EAGER, *command, stderr=terminal.side, env={**os.environ, "TERM": "xterm"}).wait() == 0
    shown = terminal.shown()
    assert "loading the model" in shown
    frames = [frame for frame in re.split(r"\x1b\[2K|\r", shown) if "embedding" in frame]
    last = plain(frames[-1])
    size = len(line) * 4 / 1e6
    assert f"{size:.1f}/{size:.1f} MB" in last
    assert re.search(r"\d+\.\d [kMG]B/s", last)
    assert re.search(r"\d:\d\d:\d\d", last)
    assert plain(shown).rstrip().splitlines()[-1].strip().startswith(f"{output}: 4 texts, 12 words, ")


def test_a_bar_waits_before_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyseme.cli.terminal.DELAY", NEVER)
    terminal = Terminal()
    with standard_error(terminal, monkeypatch), Bar("loading", then="working") as bar:
        bar(1, 2)
        bar(2, 2)
    assert terminal.shown() == ""


def test_a_bar_goes_when_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyseme.cli.terminal.DELAY", ALWAYS)
    terminal = Terminal()
    with standard_error(terminal, monkeypatch), Bar("loading", then="working") as bar:
        assert bar._timer is not None
        bar._timer.join()
        bar(1_000, None)
    shown = terminal.shown()
    assert "loading" in shown
    assert "working" in shown
    assert shown.rstrip().endswith("\x1b[2K"), "the line is wiped"
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l"), "the cursor is back"


def test_there_is_no_bar_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("polyseme.cli.terminal.DELAY", ALWAYS)
    with Bar("loading", then="working") as bar:
        bar(1, 2)
        bar(2, 2)
    assert capfd.readouterr() == ("", "")


WAITING = """
import sys, polyseme, polyseme.cli.terminal as p
from polyseme.cli import main
def embed(source, *, progress, **settings):
    progress._timer.join()
    progress(0, 100)
    sys.stdin.read()
polyseme.embed = embed
p.DELAY = 0.0
main(prog_name="polyseme")
"""
"""A command that is at work until its input ends."""
HEEDING = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
"""Whoever started the tests may have had them ignored, as nohup and & do, and that is inherited."""


def waiting(terminal: Terminal, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, "embed", "-", "-o", "out.npz"],
        stdin=subprocess.PIPE,
        stderr=terminal.side,
        env={**os.environ, "TERM": "xterm"},
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "told to stop (SIGTERM)"),
        (signal.SIGHUP, "stopped, as the terminal was closed"),
    ],
)
def test_a_signal_takes_the_bar_away(number: signal.Signals, said: str) -> None:
    terminal = Terminal()
    with waiting(terminal, HEEDING + WAITING) as process:
        terminal.wait_for(b"embedding")
        process.send_signal(number)
        assert process.wait(timeout=600) == 128 + number
    shown = terminal.shown()
    assert shown.endswith(f"\r\npolyseme: {said}; nothing was left half-written.\r\n")
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l"), "the cursor is back"


SWALLOWING = """
import os, signal, sys, time, weakref
from polyseme.cli import signals

class Thing:
    pass

def hit(*_):
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000):  # the handler is called between two instructions
        pass

class Dying:
    __del__ = hit

def command():
    {swallow}
    print("swallowed", flush=True)
    while True:
        time.sleep(0.01)

sys.exit(signals.exit_code(command))
"""
"""A signal arrives where Python, or somebody's code, drops the exception that it raises."""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(
    ("swallow", "n_more"),
    [
        ("thing = Thing(); ref = weakref.ref(thing, hit); del thing", 0),
        ("dying = Dying(); del dying", 0),
        ("try: hit()\n    except BaseException: pass", 1),
        ("global held\n    try: hit()\n    except BaseException as error: held = error", 11),
    ],
    ids=["weakref", "del", "except", "held"],
)
def test_a_swallowed_signal_still_stops(name: str, swallow: str, n_more: int) -> None:
    script = f"{HEEDING}\n{SWALLOWING.format(name=name, swallow=swallow)}"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"swallowed\n"
        number = signal.Signals[name]
        for _ in range(n_more):
            process.send_signal(number)
            time.sleep(0.05)  # signals that arrive together are one
        code = process.wait(timeout=600)
        said = process.stderr.read().decode() if process.stderr else ""
    if n_more > 1:
        assert code == -number  # as if it had never been handled
    else:
        assert code == 128 + number
        assert len(said.splitlines()) == 1
        assert "nothing was left half-written" in said


REPLACING = """
import os, signal, sys
from polyseme.cli import signals
from polyseme.errors import ModelError, OutputError, add_note

def hit():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # the handler is called between two instructions
        pass

def command():
    {replace}

sys.exit(signals.exit_code(command))
"""
"""An error of somebody's code comes in the place of the exception that a signal raises."""
DROPPED = "try: hit()\n    except BaseException: pass\n    "


@pytest.mark.parametrize(
    ("replace", "code", "said"),
    [
        (f"{DROPPED}raise AttributeError('untyped')", 143, "told to stop (SIGTERM); nothing was left half-written."),
        (f"{DROPPED}raise ModelError('The file is damaged.')", 143, "told to stop (SIGTERM)"),
        (f"{DROPPED}error = ModelError('x'); add_note(error, 'Work is kept in a.'); raise error", 143, "is kept in a."),
        ("try: hit()\n    finally: raise OutputError('The folder a cannot be removed.')", 2, "cannot be removed."),
        ("raise ModelError('The file is damaged.')", 2, "The file is damaged."),
    ],
    ids=["fault", "refusal", "note", "clearing up", "no signal"],
)
def test_an_error_in_the_place_of_a_signal(replace: str, code: int, said: str) -> None:
    """Compiled code drops exceptions and raises its own; what fails while Python clears up is an error."""
    done = subprocess.run(
        [sys.executable, "-c", f"{HEEDING}\n{REPLACING.format(replace=replace)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_what_is_ignored_stays_so() -> None:
    """As nohup wants it."""
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    terminal = Terminal()
    with waiting(terminal, ignoring + WAITING) as process:
        terminal.wait_for(b"embedding")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 143
    assert "SIGTERM" in terminal.shown()


def test_a_paragraph_is_wrapped_and_paths_are_not(tmp_path: Path) -> None:
    path = f"/somewhere/{'far-away/' * 12}vectors.npz"
    terminal = Terminal(columns=50)
    done = subprocess.run(
        [sys.executable, "-m", "polyseme", "pieces", "a", path, "-o", "b.npz"],
        stderr=terminal.side,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        check=False,
    )
    assert done.returncode == 2
    lines = terminal.shown().replace("\r\n", "\n").splitlines()
    assert any(path in line for line in lines)
    assert all(len(line) <= 50 for line in lines if path not in line)
    assert len(lines) > 2


def test_a_reader_that_has_gone_is_no_reason_to_complain() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "polyseme", "embed", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_under_standard_output_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "polyseme", "embed", "--help"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.decode() == "polyseme: The system refused: No space left on device.\n"


def test_without_a_terminal_there_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
    with Bar("loading the model", then="embedding") as bar:
        for seconds, done in ((0, 0), (10, 100), (40, 400), (60, 600), (100, 1000), (101, 1010)):
            now = 1000.0 + seconds
            bar(done, 2000)
    assert capsys.readouterr().err.splitlines() == [
        "embedding: 400 of 2,000 bytes (20%, 0:02:40 left)",
        "embedding: 1,000 of 2,000 bytes (50%, 0:01:40 left)",
    ]


def test_the_time_left_is_that_of_what_an_earlier_run_has_not_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
    with Bar("loading the model", then="embedding") as bar:
        now = 20.0
        bar.resumed(9000, 10000)
        now = 60.0
        bar(9100, 10000)
    assert capsys.readouterr().err == "embedding: 9,100 of 10,000 bytes (91%, 0:06:00 left)\n"


def test_a_speed_that_is_not_known_yet_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for speed in (0.0, 250.0):
        report = Report(
            done=1,
            n_steps=9,
            loss=2.0,
            losses={},
            held_out={"loss": 2.1},
            pieces_per_second=speed,
            wait_share=0.0,
            seconds_left=3.0,
        )
        with PretrainLine() as line:
            line.report(report)
    before = "step 1/9 (0:00:03 left)  loss 2.000  held-out 2.100"
    assert capsys.readouterr().err.splitlines() == [f"{before}  wait 0.0%", f"{before}  250 pieces/s  wait 0.0%"]


def test_a_bar_is_told_what_an_earlier_run_has_done(tmp_path: Path) -> None:
    """The bytes of chunks that are there already are no sign of how fast this run is."""
    calls: list[tuple[str, int]] = []

    class Watcher:
        def __call__(self, done: int, total: int | None) -> None:
            calls.append(("done", done))

        def resumed(self, done: int, total: int | None) -> None:
            calls.append(("resumed", done))

    def compute(chunk: Chunk[str], on_batch: OnBatch) -> list[str]:
        if stops and chunk.number == 2:
            raise KeyboardInterrupt
        return list(chunk.units)

    source = tmp_path / "in.txt"
    source.write_text("a\nb\nc\n")
    job: Job[str, str] = Job(
        noun="texts",
        ends_chunk=every(1),
        prepare=lambda rows: [str(row.content) for row in rows],
        compute=compute,
        tally=Tally(),
        open_output=open_lines,
        storage=JsonLines(),
        settings=dict,
    )
    stops = True
    with contextlib.suppress(KeyboardInterrupt), read_rows(source) as rows:
        run_job(job, rows, tmp_path / "out.txt", progress=Watcher())
    stops, calls[:] = False, []
    with pytest.warns(PolysemeWarning, match="Resumed"), read_rows(source) as rows:
        run_job(job, rows, tmp_path / "out.txt", progress=Watcher())
    assert [kind for kind, _ in calls] == ["done", "resumed", "resumed", "done"]
