"""Workshops: the hidden folders in which outputs grow, one beside each output that is being written.

A workshop is named after its output, with the number of the process and a few random letters
(`.vectors.parquet.4711-9f3a01bc.part`). The process that made it holds a lock on it, which the system lets go when the
process ends, however it ends. So a workshop without its lock is what a killed process left, and the next that writes
the same output removes it. Numbers of processes would not tell: they are used again, and containers have their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyseme.errors import OutputError

REPLACED = "replaced"
"""Where a workshop has the old output, from when that is moved aside until the new one has its name."""
_LONGEST = 40
"""Characters of an output's name in that of its workshop."""
_ENDING = re.compile(r"\.\d+-[0-9a-f]{8}\.part")


@contextlib.contextmanager
def workshop_beside(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, which is removed when the block ends."""
    lock: int | None = None
    workshop = target
    try:
        while lock is None:  # again where another process took it for a leftover, in the moment before it was locked
            workshop = target.parent / f"{_prefix(target)}.{os.getpid()}-{secrets.token_hex(4)}.part"
            workshop.mkdir()
            lock = _locked(workshop)
        yield workshop
    finally:
        if workshop != target:
            _remove(workshop)
        if lock is not None:
            _unlock(lock)


def clear_leftovers(target: Path) -> bool:
    """Remove what killed processes left beside an output that they were writing; whether a living one is at work.

    If one was killed between moving an old output aside and putting the new one in its place, the old one comes back.
    """
    is_live = False
    for workshop in _workshops(target):
        try:
            lock = _locked(workshop, even_if_unsupported=False)
        except OSError:
            continue  # of another user
        if lock is None:
            is_live = is_live or workshop.is_dir()
            continue
        with contextlib.suppress(OSError):
            if (workshop / REPLACED).exists() and not target.exists():
                (workshop / REPLACED).rename(target)
        shutil.rmtree(workshop, ignore_errors=True)
        _unlock(lock)
    return is_live


def clear_leftovers_in(folder: Path) -> None:
    """The same for every output in a folder."""
    try:
        names = [each.name for each in folder.iterdir()]
    except OSError:
        return
    for name in names:
        ending = _ENDING.search(name)
        if name.startswith(".") and ending is not None and ending.end() == len(name):
            clear_leftovers(folder / name[1 : ending.start()])


@contextlib.contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep other processes from working in a folder; one in which another is at work is refused."""
    lock = _locked(Path(os.path.realpath(folder)))
    if lock is None:
        raise busy_output_error(folder)
    try:
        yield
    finally:
        _unlock(lock)


def busy_output_error(output: object) -> OutputError:
    """The refusal of an output that another process writes."""
    return OutputError(
        f"Another process is at work on this output: {output}. Wait for it, or choose another name for the output."
    )


def _remove(workshop: Path) -> None:
    """Remove a workshop, also if a signal comes in between: it is raised once that is done."""
    try:
        shutil.rmtree(workshop, ignore_errors=True)
    except BaseException:
        shutil.rmtree(workshop, ignore_errors=True)
        raise


def _workshops(target: Path) -> list[Path]:
    prefix = _prefix(target)
    try:
        with os.scandir(target.parent) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if entry.name.startswith(prefix)
                and _ENDING.fullmatch(entry.name, len(prefix))
                and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _prefix(target: Path) -> str:
    name = target.name
    if len(name) > _LONGEST:  # names that begin alike must not be taken for each other
        name = f"{name[: _LONGEST - 9]}~{zlib.crc32(os.fsencode(name)):08x}"
    return f".{name}"


def _locked(folder: Path, *, even_if_unsupported: bool = True) -> int | None:
    """A lock on a folder; None if another process has it, or has removed the folder.

    Some network drives know no locks on folders. There, no workshop is locked, and nothing is cleared.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError) or not even_if_unsupported:
            os.close(handle)
            return None
    try:
        if os.path.samestat(os.fstat(handle), folder.stat()):
            return handle
    except FileNotFoundError:
        pass
    os.close(handle)
    return None


def _unlock(lock: int) -> None:
    with contextlib.suppress(OSError):
        os.close(lock)
