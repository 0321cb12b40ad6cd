"""A command line is run in a process and a folder of its own, and what came of it is judged.

A command ends with exit code 0 or 2, within its time. Refused, it says why in one paragraph, and leaves every file as
it was. Done, it leaves nothing unfinished. It never shows a traceback, and never changes a model that it reads.
"""

from __future__ import annotations

import math
import os
import re
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from forked import Forked
from fuzz.command_lines import CommandLine
from fuzz.workplace import write_inputs
from polyseme.cli import main

SECONDS = 60.0
"""How long a command may take, on a busy machine."""
COMPILED_SECONDS = 300.0
"""The same with --compile: each run of a sweep calls the C++ compiler for a minute on such a machine."""
PATIENCE = 15.0
"""How long it may take after that to stop when it is interrupted."""
BYTES = 6 << 30
"""Memory that a command may take."""
SCRIPT = f"""
import os, resource, sys
os.chdir(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, ({BYTES}, {BYTES}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import torch
torch.set_num_threads(1)
from polyseme.cli import main
main(sys.argv[2:])
"""
UNFINISHED = ".part", ".unfinished", ".lock", ".tmp"
TEMPORARY = re.compile(r"temporary/(?!torchinductor)")
"""Files that a command may not leave; the cache of torch's compiler serves later runs."""
HUGE = re.compile(r"\d{4,}|1e\d{2,}|inf")
"""Numbers that may well ask for more work than the time allows."""
INTERNAL = re.compile(
    r"Traceback|Errno|NoneType|object at 0x|<class|\b[A-Z][A-Za-z]+Error\b|not supported between|unexpected keyword"
    r"|positional argument|index out of range|has no attribute|The system refused"
)
"""What tells of the insides, or of a fault that somebody should have caught before."""


@dataclass(frozen=True)
class Outcome:
    """What came of a command line."""

    line: CommandLine
    code: int
    out: str
    err: str
    seconds: float
    stopped: bool
    """Whether it was interrupted, as its time was over."""
    changes: dict[str, str] = field(default_factory=dict)
    """Files that were added, changed or removed."""

    @property
    def faults(self) -> list[str]:
        """What is wrong with it, in words; nothing, usually."""
        return list(_faults(self))

    @property
    def kind(self) -> str:
        """What the fault is, so that the same one is known again in a shorter line."""
        places = re.findall(r'File "[^"]*?/(polyseme/[^"]+)", line (\d+)', self.err)
        raised = re.findall(r"^([\w.]+(?:Error|Exception|Interrupt|Exit)\b)", self.err, re.MULTILINE)
        if places:
            return f"{raised[-1] if raised else 'traceback'} in {places[-1][0]}:{places[-1][1]}"
        said = (
            re.sub(r"'[^']*'|\S*[\d/]\S*|\(.*\)", "…", self.err.strip().rpartition("\n")[2]) if self.code == 2 else ""
        )
        return "; ".join([*sorted({fault.partition(":")[0] for fault in self.faults}), said[:90]])


def _faults(outcome: Outcome) -> Iterator[str]:
    *notes, last = outcome.err.splitlines() or [""]
    if outcome.code == 0:
        left = [name for name in outcome.changes if any(part in Path(name).name for part in UNFINISHED)]
        if left:
            yield f"left unfinished: {left}"
    elif outcome.stopped:
        if outcome.code != 128 + signal.SIGINT:
            yield f"did not stop when it was interrupted: exit code {outcome.code}"
        if not any(HUGE.search(word) for word in outcome.line.words):
            yield f"took too long: {outcome.seconds:.0f} s"
    elif outcome.code == 2:
        yield from _faults_of_refusal(outcome, last)
    elif not (outcome.code == 1 and outcome.line.verb.startswith("sweep") and "Traceback" not in outcome.err):
        yield f"exit code: {outcome.code}"
    if "Traceback (most recent call last)" in outcome.err:
        yield f"a traceback: {last}"
    if any(re.search(r"Warning: ", line) for line in notes):
        yield f"a warning of Python: {next(line for line in notes if re.search(r'Warning: ', line))}"
    left = sorted(name for name in outcome.changes if TEMPORARY.match(name))
    if left:
        yield f"temporary files left: {left}"
    if any(name.startswith("models") for name in outcome.changes):
        yield f"a model changed: {sorted(outcome.changes)}"


def _faults_of_refusal(outcome: Outcome, last: str) -> Iterator[str]:
    if (
        not last.startswith("polyseme: ")
        or sum(line.startswith("polyseme: ") for line in outcome.err.splitlines()) != 1
    ):
        yield f"not one paragraph: {outcome.err!r}"
    elif not re.search(r"[.?)]$|--help$|: (polyseme|pip|iconv) ", last) or len(last.split()) < 6:
        yield f"no sentence: {last}"
    if INTERNAL.search(last):
        yield f"words of the insides: {last}"
    if outcome.out:
        yield f"refused after printing: {outcome.out[:200]!r}"
    changes = {name: change for name, change in outcome.changes.items() if not _is_kept(name, last)}
    if changes:
        yield f"refused, but files changed: {changes}"


def _is_kept(name: str, message: str) -> bool:
    """Whether a file is of finished work, which the message names, and which the same command resumes."""
    return any(part in message for part in ("is kept in", "are kept in", "resumes it"))


class Ended(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str
    stopped: bool = False


def run_line(line: CommandLine, models: Path, *, seconds: float = SECONDS, inside: bool = False) -> Outcome:
    """Run a command line in a folder of its own, beside models that others share, in a process of its own or here."""
    with tempfile.TemporaryDirectory(prefix="polyseme-fuzz-") as name, _files(Path(name), models) as folder:
        before = {
            **_snapshot(folder),
            **_snapshot(models, "models/"),
            **_snapshot(folder.parent / "temporary", "temporary/"),
        }
        started = time.monotonic()
        allowed = COMPILED_SECONDS if "--compile" in line.words else seconds
        ended = _run_inside(line, folder) if inside else _run(line, folder, allowed)
        took = time.monotonic() - started
        after = {
            **_snapshot(folder),
            **_snapshot(models, "models/"),
            **_snapshot(folder.parent / "temporary", "temporary/"),
        }
    changes = {
        name: "added" if name not in before else "removed" if name not in after else "changed"
        for name in {*before, *after}
        if before.get(name) != after.get(name)
    }
    return Outcome(line, ended.code, ended.out, ended.err, took, ended.stopped, changes)


@contextmanager
def _files(folder: Path, models: Path) -> Iterator[Path]:
    (folder / "work").mkdir()
    (folder / "temporary").mkdir()
    write_inputs(folder / "work")
    (folder / "work" / "models").symlink_to(models)
    yield folder / "work"


def _run_inside(line: CommandLine, folder: Path) -> Ended:
    with pytest.MonkeyPatch.context() as context:
        context.chdir(folder)
        result = CliRunner().invoke(main, line.words, input=(folder / "marked.txt").read_bytes())
    shown = (
        "" if isinstance(result.exception, SystemExit | None) else "".join(traceback.format_exception(result.exception))
    )
    return Ended(result.exit_code, result.stdout, result.stderr + shown)


def _run(line: CommandLine, folder: Path, seconds: float) -> Ended:
    environment = {
        **os.environ,
        "TMPDIR": str(folder.parent / "temporary"),
        "HOME": str(folder.parent),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, (folder / "marked.txt").open("rb") as typed:
        with _ONE_AT_A_TIME:
            process = Forked(
                SCRIPT, str(folder), *line.words,
                stdin=typed.fileno(), stdout=out.fileno(), stderr=err.fileno(), env=environment,
            )  # fmt: skip
        code = _wait(process, seconds)
        stopped = code is None
        if code is None:
            process.send_signal(signal.SIGINT)
            code = _wait(process, PATIENCE)
        if code is None:
            process.kill()
            code = _wait(process, math.inf)
        assert code is not None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
    return Ended(code, texts[0], texts[1], stopped)


def _wait(process: Forked, seconds: float) -> int | None:
    """The exit code; None: it is still running after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        with _ONE_AT_A_TIME:
            code = process.poll()
        if code is not None or time.monotonic() > until:
            return code
        time.sleep(0.02)


_ONE_AT_A_TIME = threading.Lock()
"""Starting a process asks after all others, and the answer to that can be had once."""


def _snapshot(folder: Path, prefix: str = "") -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder below one, as far as a change would show: sizes and times, and what small files say."""
    found = {}
    for path in folder.rglob("*"):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and not prefix and state.st_size < 1 << 20 else b""
        times = 0 if path.is_dir() or not prefix else state.st_mtime_ns
        found[f"{prefix}{path.relative_to(folder)}"] = (state.st_mode, times, content)
    return found


def shortest(outcome: Outcome, models: Path) -> Outcome:
    """The same fault with fewer words, as far as leaving out one group after another shows it."""
    place = 0
    while place < len(outcome.line.groups):
        tried = run_line(outcome.line.without(place), models)
        if tried.faults and tried.kind == outcome.kind:
            outcome = tried
        else:
            place += 1
    return outcome
