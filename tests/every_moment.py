"""What a killed process may leave: the files of a folder as they are before every step that touches one.

A kill leaves the files as they are at that moment, and lets go of locks. So one run of a command, in which the files
are copied before each step, stands for a kill at every step; `every_moment` puts each copy back and gives it to a test.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

TOUCHES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")


def every_moment(place: Path, command: Callable[[], object], *, since: str = "") -> Iterator[Path]:
    """Run a command, and then give the folder as it was before every step, and after the last.

    Steps before the first one that touches a file with `since` in its name are left out. Moments at which the files
    are the same are one.
    """
    copies = Path(tempfile.mkdtemp(dir=place.parent))
    states: list[dict[str, tuple[int, ...]]] = []
    begun = not since

    def keep(step: str) -> None:
        nonlocal begun
        begun = begun or since in step
        state = {str(each): _state(each) for each in sorted(place.rglob("*"))}
        if begun and (not states or states[-1] != state):
            shutil.copytree(place, copies / str(len(states)))
            states.append(state)

    with _told(keep):
        command()
    keep("the end")
    for number in range(len(states)):
        shutil.rmtree(place)
        (copies / str(number)).rename(place)
        yield place


def _state(path: Path) -> tuple[int, ...]:
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns


_told_of_steps: list[Callable[[str], None]] = []


@contextlib.contextmanager
def _told(keep: Callable[[str], None]) -> Iterator[None]:
    _install()
    _told_of_steps.append(keep)
    try:
        yield
    finally:
        _told_of_steps.clear()


@cache
def _install() -> None:
    """Once: Python takes no hook back."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event in TOUCHES and _told_of_steps:
        keep = _told_of_steps.pop()  # which touches files itself
        try:
            keep(" ".join(map(str, arguments)))
        finally:
            _told_of_steps.append(keep)
