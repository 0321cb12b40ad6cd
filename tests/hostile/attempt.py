"""A command on a hostile file, in a process of its own: what came of it, how long it took, and what it left."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from polyseme.cli import main
from polyseme.errors import PolysemeError

MOST_SECONDS = 10
"""Of the processor: others may be busy on the machine."""
LONGEST_WAIT = 90.0
"""Seconds after which a command that does nothing is given up."""
MOST_ADDRESSES = 6 << 30
"""Of address space: an attempt to take more ends there, not with the machine."""
MOST_BYTES = 400 << 20
"""Of memory that a command may take beyond what the process has already."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; `fault` is empty where it was refused in one paragraph, with nothing done."""

    fault: str
    message: str
    seconds: float
    bytes: int


def attempt(arguments: list[object], *, kept: Path, proof: Path, may_work: bool = False) -> Ended:
    """Carry out a command that is to be refused. `kept` must stay as it is; `proof` is what an attack would write."""
    before = listing(kept)
    result, seconds = _forked(arguments)
    message = str(result.get("err", "")).strip()
    faults = [*result["faults"]]
    worked = may_work and result.get("code") == 0
    if not faults and not worked:
        if result["code"] != 2:
            faults.append(f"ended with {result['code']}: {message[-300:]}")
        elif not message.startswith("polyseme: ") or "\n" in message or "Traceback" in message:
            faults.append(f"not one paragraph: {message[:300]}")
    if result.get("bytes", 0) > MOST_BYTES:
        faults.append(f"{result['bytes'] >> 20:,} MB of memory")
    if not worked and listing(kept) != before:
        faults.append(f"left files: {sorted(set(listing(kept)) ^ set(before))[:5]}")
    if proof.exists():
        faults.append("code was executed")
    return Ended("; ".join(faults), message, seconds, int(result.get("bytes", 0)))


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """The files below a folder, with size and date."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns if not path.is_dir() else 0)
    return found


def _forked(arguments: list[object]) -> tuple[dict[str, Any], float]:
    started = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the process of the command
        os.close(read)
        try:
            os.write(write, json.dumps(_run(arguments)).encode())
        finally:
            os._exit(0)
    os.close(write)
    content = b""
    while True:
        left = LONGEST_WAIT - (time.monotonic() - started)
        if left <= 0 or not select.select([read], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            break
        block = os.read(read, 1 << 16)
        if not block:
            break
        content += block
    os.close(read)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - started
    if content:
        return json.loads(content), seconds
    how = "ended by a signal" if os.WIFSIGNALED(status) and seconds < LONGEST_WAIT else "no answer in time"
    return {"faults": [f"{how} ({status})"]}, seconds


def _run(arguments: list[object]) -> dict[str, Any]:
    used = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + MOST_SECONDS, used + MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    at_first = _resident()
    function = arguments[0]
    code, message, error = _called(function, arguments[1]) if callable(function) else _commanded(arguments)
    faults = [] if error is None or isinstance(error, SystemExit) else [f"traceback: {type(error).__name__}: {error}"]
    grown = max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - at_first)
    return {"code": code, "err": message[-4000:], "faults": [each[:400] for each in faults], "bytes": grown}


def _commanded(arguments: list[object]) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stderr, result.exception


def _called(function: Callable[[Any], Iterable[Any]], argument: object) -> tuple[int, str, BaseException | None]:
    """What a function of Python's does with a file, as a command would end."""
    try:
        for _ in function(argument):
            pass
    except PolysemeError as error:
        return 2, f"polyseme: {error}", None
    except Exception as error:  # noqa: BLE001 - whatever is not refused is a fault
        return 1, "", error
    return 0, "", None


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
