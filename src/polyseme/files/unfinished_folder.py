"""The folder of an unfinished output, which stands beside it where anyone can see it (`vectors.parquet.unfinished`).

What is in it is its maker's affair; here is what all makers need: that one process at a time is at work there, that it
is only gone on with under the settings it was begun with, and that it can be removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import OutputError
from polyseme.files.atomic import AnyPath, explained, parents_of, whole_file

SETTINGS = "settings.json"
LOCK = "lock"

_LONGEST = 60
"""Characters of a setting that a message shows."""


def unfinished_folder(output: AnyPath) -> Path:
    """Where an output is made before it has its name."""
    target = Path(os.path.realpath(output))
    return target.with_name(f"{target.name}.unfinished")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other processes out of it; the lock is let go when this one ends, however it ends."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(parents_of(folder))
        with explained(folder):
            folder.mkdir(exist_ok=True)
            lock = stack.enter_context((folder / LOCK).open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(
                f"Another process is at work on this output: it holds {short(folder)}. Wait for it, or choose another "
                "name for the output."
            ) from None
        yield


def settle(folder: Path, settings: Mapping[str, Any], *, what: str, markers: Sequence[str] = (), force: bool) -> None:
    """See to it that what is in the folder is of these settings.

    `what` it is that grows there is for messages; files called as `markers` alone make a folder nobody's work.
    """
    path = folder / SETTINGS
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = None
    if before == settings:
        _sweep(folder)
        return
    there = {each.name for each in folder.iterdir() if not each.match(".*.part")}
    foreign = before is None and there - {LOCK, *markers}
    if not force and (before is not None or foreign):
        raise OutputError(_refusal(folder, before, settings, what))
    for each in folder.iterdir():
        if each.name != LOCK:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    with whole_file(path, force=True) as made:
        made.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def begun(folder: Path) -> bool:
    """Whether there is work in the folder, besides what says whose it is."""
    return any(each.name not in (SETTINGS, LOCK) for each in folder.iterdir())


def remove(folder: Path, *, markers: Sequence[str] = ()) -> None:
    """Remove the folder, so that what is left, should that be cut short, can still be told from anything else."""
    last = (SETTINGS, *markers, LOCK)
    with contextlib.suppress(OSError):
        for each in sorted(folder.iterdir(), key=lambda one: last.index(one.name) if one.name in last else -1):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        folder.rmdir()


def short(path: Path) -> str:
    """As seen from here, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _sweep(folder: Path) -> None:
    """Remove what a process that was killed had begun and not finished."""
    for workshop in folder.rglob(".*.part"):
        shutil.rmtree(workshop, ignore_errors=True)


def _refusal(folder: Path, before: Mapping[str, Any] | None, settings: Mapping[str, Any], what: str) -> str:
    advice = "To start anew, give --force (force=True), or choose another name for the output."
    if before is None:
        return f"{folder} is there already, and is no unfinished {what} of polyseme. {advice}"
    named = [name for name in {**before, **settings} if before.get(name) != settings.get(name)]
    told = [f"{name} was {_shown(before.get(name))} and is {_shown(settings.get(name))}" for name in named]
    return (
        f"{short(folder)} is the unfinished {what} of other settings: {'; '.join(told)}. To go on with it, give the "
        f"settings it had. {advice}"
    )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
