"""The folder of an unfinished output, beside it where anyone can see it (`vectors.parquet.unfinished`).

One process at a time works there, work is resumed only under the settings it began with, and the folder can be removed;
its content is up to the caller. `settings.json` is the record by which polyseme recognizes its own folders. A folder
without that record is never touched, and no link is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polyseme.errors import OutputError, add_note
from polyseme.files.atomic import UNFINISHED, AnyPath, Kind, explained, parents_of, put_in_place, target_of, whole_file
from polyseme.files.workshops import REPLACED
from polyseme.json_reading import load_json

SETTINGS = "settings.json"
LOCK = "lock"
FINISHING = "finishing"
"""Holds the name of the file or folder that is about to be renamed to the output."""
MADE_BY = "polyseme"
"""The key of a record that says what polyseme has begun in a folder."""

_LONGEST = 60
"""Characters of a setting that a message shows."""


def unfinished_folder(output: AnyPath) -> Path:
    """Where an output is made before it has its name."""
    target = target_of(output)
    return target.with_name(f"{target.name}{UNFINISHED}")


@contextlib.contextmanager
def unfinished_work(
    output: AnyPath,
    settings: Mapping[str, Any],
    *,
    noun: str,
    force: bool,
    is_worth_keeping: Callable[[Path], bool] | None = None,
) -> Iterator[Path]:
    """The folder in which an output grows: that of a run which was stopped, if its settings are these, or a new one.

    The block ends with `finish`, and the folder goes. If something goes wrong before, or a signal ends the work, it
    stays where it is worth keeping, and a note of the exception reports it. Messages call the output `noun`.
    """
    folder = unfinished_folder(output)
    with locked(folder, noun=noun):
        prepare(folder, settings, noun=noun, force=force)
        try:
            yield folder
        except BaseException as error:
            if not _is_finished(folder) and (is_worth_keeping or has_work)(folder):
                add_note(error, f"Finished work is kept in {short(folder)}: the same command resumes it.")
            else:
                remove(folder)
            raise
        remove(folder)  # if this is cut short, `clear_up` removes the rest


@contextlib.contextmanager
def short_work(
    output: AnyPath, settings: Callable[[], Mapping[str, Any]], *, noun: str, kind: Kind, force: bool
) -> Iterator[AnyPath]:
    """Where to write an output that needs no such folder: under its own name.

    A folder that is there, since the input was longer before, goes when the block ends well, if its settings are
    these; that of another process, or of other settings, is refused as ever.
    """
    if not unfinished_folder(output).is_dir():
        yield output
        return
    with (
        unfinished_work(output, settings(), noun=noun, force=force) as folder,
        whole_output(folder, output, kind=kind, force=force) as path,
    ):
        yield path


@contextlib.contextmanager
def locked(folder: Path, *, noun: str) -> Iterator[None]:
    """Make the folder, and keep other processes out of it; the lock is let go when this one ends, however it ends."""
    check_ours(folder, noun=noun)
    with contextlib.ExitStack() as stack:
        stack.enter_context(parents_of(folder))
        with explained(folder):
            folder.mkdir(exist_ok=True)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        stack.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(
                f"Another process is at work on this output: it holds {short(folder)}. Wait for it, or choose another "
                "name for the output."
            ) from None
        yield


def check_ours(folder: Path, *, noun: str) -> None:
    """Refuse a folder with something in it that polyseme has not made, whatever is forced."""
    if folder.is_symlink():
        reason = "is a symbolic link, and polyseme never makes one there"
    elif folder.exists() and not folder.is_dir():
        reason = "is a file"
    elif folder.is_dir() and _names(folder) and _record(folder) is None:
        reason = "is there already"
    else:
        return
    raise OutputError(
        f"{folder} {reason}: it is no unfinished {noun} of polyseme, and is left as it is, with or without --force. "
        "Move it away, or choose another name for the output."
    )


def prepare(folder: Path, settings: Mapping[str, Any], *, noun: str, force: bool) -> None:
    """Check that the work in the folder is of these settings; with `force` work of other settings is removed."""
    check_ours(folder, noun=noun)
    settings = json.loads(json.dumps(settings))
    before = _record(folder)
    if before == settings:
        _sweep(folder)
        return
    if before is not None and has_work(folder) and not force:
        raise OutputError(_refusal(folder, before, settings, noun))
    for each in folder.iterdir():
        if each.name != LOCK:
            discard(each)
    with whole_file(folder / SETTINGS, force=True) as new_file:
        record = {MADE_BY: f"an unfinished {noun}", "settings": settings}
        new_file.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def has_work(folder: Path) -> bool:
    """Whether there is work in the folder, besides what says whose it is."""
    return bool(_names(folder) - {SETTINGS})


@contextlib.contextmanager
def whole_output(folder: Path, output: AnyPath, *, kind: Kind, force: bool) -> Iterator[Path]:
    """A path in the unfinished folder to write the output to, which gets its own name when the block ends well."""
    path = folder / f"whole{Path(output).suffix.lower()}"
    if path.exists():
        discard(path)
    yield path
    finish(folder, path.name, output, kind=kind, force=force)


def finish(folder: Path, name: str, output: AnyPath, *, kind: Kind, force: bool) -> None:
    """Rename a file or folder in the unfinished folder to the output.

    A note is left first: a folder with it, but without that file, only waits to be removed (`clear_up`).
    """
    with whole_file(folder / FINISHING, force=True) as note:
        note.write_text(name, encoding="utf-8")
    aside = folder / REPLACED if kind == "folder" else None
    put_in_place(folder / name, output, force=force, kind=kind, aside=aside)


def clear_up(output: AnyPath) -> None:
    """Remove what is left of an output that was finished, but whose process was killed before it could do that.

    If it was killed between moving an old output aside and putting the new one in its place, the old one comes back.
    """
    folder = unfinished_folder(output)
    if not folder.is_dir():
        return
    with contextlib.suppress(OSError, OutputError), locked(folder, noun="output"):
        if _is_finished(folder) or not has_work(folder):
            remove(folder)
        elif (folder / REPLACED).is_dir() and not target_of(output).exists():
            (folder / REPLACED).rename(target_of(output))


def remove(folder: Path) -> None:
    """Remove the folder if it is ours, so that what is left, should that be cut short, is still known for ours."""
    order = (FINISHING, SETTINGS, LOCK)
    with contextlib.suppress(OSError):
        if folder.is_symlink() or (_names(folder) and _record(folder) is None):
            return
        for each in sorted(folder.iterdir(), key=lambda one: order.index(one.name) if one.name in order else -1):
            discard(each)
        folder.rmdir()


def discard(path: Path) -> None:
    """Remove a file or a folder; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def short(path: Path) -> str:
    """As seen from here, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _names(folder: Path) -> set[str]:
    """What is in a folder, but for the lock and a record that a killed process had not finished writing."""
    return {each.name for each in folder.iterdir() if each.name != LOCK and not each.match(f".{SETTINGS}.*.part")}


def _record(folder: Path) -> dict[str, Any] | None:
    """The settings of the work in a folder; None if polyseme has left no record there."""
    path = folder / SETTINGS
    try:
        record = None if path.is_symlink() else load_json(path)
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or MADE_BY not in record:
        return None
    settings = record.get("settings")
    return settings if isinstance(settings, dict) else None


def _is_finished(folder: Path) -> bool:
    """Whether the output has its name, so that the folder only waits to be removed."""
    note = folder / FINISHING
    return note.is_file() and not (folder / note.read_text(encoding="utf-8")).exists()


def _sweep(folder: Path) -> None:
    """Remove what a process that was killed had begun and not finished."""
    (folder / FINISHING).unlink(missing_ok=True)
    for workshop in folder.rglob(".*.part"):
        shutil.rmtree(workshop, ignore_errors=True)


def _refusal(folder: Path, before: Mapping[str, Any], settings: Mapping[str, Any], noun: str) -> str:
    changed = [name for name in {**before, **settings} if before.get(name) != settings.get(name)]
    changes = [f"{name} was {_shown(before.get(name))} and is {_shown(settings.get(name))}" for name in changed]
    return (
        f"{short(folder)} is the unfinished {noun} of other settings: {'; '.join(changes)}. To resume it, give the "
        "settings it had. To start again, give --force (force=True), or choose another name for the output."
    )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
