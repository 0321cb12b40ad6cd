"""An output is whole or it is not there.

What is written grows in a workshop (`workshops`): a hidden folder beside the output, thus on the same disk. Once
everything has reached the disk, the result takes its name in one rename and the workshop goes. If anything goes wrong
the workshop goes with all that is in it. Only a process that is killed outright leaves its workshop behind, until the
next writes the same output; under the output's own name there is then what was there before: nothing, or the old
output.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from polyseme.errors import OutputError
from polyseme.files.workshops import REPLACED, busy_output_error, clear_leftovers, workshop_beside

Kind = Literal["file", "folder"]
AnyPath = str | os.PathLike[str]

UNFINISHED = ".unfinished"
"""The ending of the folder in which an output is made before it has its name (`unfinished_folder`)."""

_PUT_IN_PLACE: dict[str, tuple[int, int]] = {}
"""Outputs of this process, as they were named: device and number of the new file or folder, before it has the name."""
_NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "it has grown past the largest file allowed here (see: ulimit -f)",
}


def check_output(
    path: AnyPath,
    *,
    force: bool = False,
    kind: Kind = "file",
    inputs: Iterable[AnyPath | None] = (),
    marks: Sequence[str] = (),
    is_part: Callable[[Path], bool] | None = None,
) -> None:
    """Refuse an output that could not be written, or would replace something; to be called before any work.

    An output that another process is writing is refused; what killed processes left of it is removed.
    With `force` it may replace what is there, but for what is to be read: the `inputs`, by their names or patterns. A
    folder with something in it, but nothing that is called as one of the `marks`, is no such output, and is kept; with
    `is_part`, so is one with anything in it that is no part of such an output.
    """
    target = target_of(path)
    if clear_leftovers(target):
        raise busy_output_error(path)
    _check(path, target, force, kind)
    if not target.exists():
        return
    for each in inputs:
        if each is not None:
            _check_input(path, target, each)
    if marks and target.is_dir():
        _check_ours(path, target, marks)
    if is_part is not None and target.is_dir():
        _check_parts(path, target, is_part)


def _check(path: AnyPath, target: Path, force: bool, kind: Kind) -> None:
    """Refuse what could not be written, or would replace something."""
    try:
        status = os.lstat(target)
    except (FileNotFoundError, NotADirectoryError):
        _check_parent(path, target.parent)
        return
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be written: {_reason(error)}. Choose another name for the output.") from error
    _check_parent(path, target.parent)
    if kind == "file":
        _check_replaced_file(path, status)
    else:
        _check_replaced_folder(path, target, status)
    if not force:
        raise OutputError(
            f"{path} is already there. If this command wrote it, nothing is left to do; otherwise choose another name, "
            "or replace it with --force (force=True)."
        )


@contextlib.contextmanager
def whole_file(path: AnyPath, *, force: bool = False) -> Iterator[Path]:
    """A path to write a file to, which becomes `path` when the block ends well.

    Its folder is private to the block: parts may be spooled there, and go when the block ends.
    """
    with _workshop(path, force, "file") as (workshop, target):
        new = workshop / target.name
        yield new
        put_in_place(new, path, force=force)


@contextlib.contextmanager
def whole_folder(path: AnyPath, *, force: bool = False) -> Iterator[Path]:
    """An empty folder to fill, which becomes `path` when the block ends well.

    With `force` the old folder is moved aside only once the new one is complete, and is removed after that.
    """
    with _workshop(path, force, "folder") as (workshop, target):
        new = workshop / target.name
        with explained(path):
            new.mkdir()
        yield new
        put_in_place(new, path, force=force, kind="folder", aside=workshop / REPLACED)


def write_beside(path: AnyPath, content: bytes, *, force: bool = False) -> None:
    """Write the second file of an output, before the first gets its name.

    One that is there with this content was left by the same command, which was killed in between.
    """
    if not force and target_of(path).is_file() and target_of(path).read_bytes() == content:
        return
    with whole_file(path, force=force) as file:
        file.write_bytes(content)


def put_in_place(
    new: Path, path: AnyPath, *, force: bool = False, kind: Kind = "file", aside: Path | None = None
) -> None:
    """Give a whole file or folder, on the same disk, its name; an old folder is moved `aside` first."""
    target = target_of(path)
    with explained(path):
        if kind == "file":
            _sync(new)
        else:
            _sync_all(new)
        _check(path, target, force, kind)  # once more: another process may have been quicker
        _PUT_IN_PLACE[os.fspath(path)] = _identity(new)
        if aside is None:
            new.replace(target)
        else:
            _swap(new, target, aside)
        _sync_folder(target.parent)


def note_finished(path: AnyPath) -> None:
    """Note that an output which grows in its place, as the folder of a run does, is whole."""
    with contextlib.suppress(OSError):
        _PUT_IN_PLACE[os.fspath(path)] = _identity(target_of(path))


def list_finished_outputs() -> list[str]:
    """What this process has put in place or noted, as it was named: whoever stops it learns of that."""
    finished = []
    for path, identity in _PUT_IN_PLACE.items():
        with contextlib.suppress(OSError):
            if _identity(target_of(path)) == identity:
                finished.append(path)
    return finished


def _identity(path: Path) -> tuple[int, int]:
    """What stays the same when a file or folder is renamed."""
    status = path.stat()
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def explained(path: AnyPath) -> Iterator[None]:
    """Say in words why `path` cannot be written, where the system only gives a number."""
    try:
        yield
    except OSError as error:
        raise _explanation(path, error) from error


@contextlib.contextmanager
def parents_of(path: AnyPath) -> Iterator[None]:
    """Make the folders that are missing above `path`; those that are still empty when the block ends go again."""
    parent = target_of(path).parent
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    with explained(path):
        parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for folder in missing:
                folder.rmdir()


@contextlib.contextmanager
def _workshop(path: AnyPath, force: bool, kind: Kind) -> Iterator[tuple[Path, Path]]:
    target = target_of(path)
    if not any(name.endswith(UNFINISHED) for name in target.parts[:-1]):  # those folders are swept by who locks them
        clear_leftovers(target)
    _check(path, target, force, kind)
    with parents_of(path), contextlib.ExitStack() as stack:
        with explained(path):
            workshop = stack.enter_context(workshop_beside(target))
        try:
            yield workshop, target
        except OSError as error:
            if error.errno not in _NO_ROOM:  # anything else may have come from elsewhere, and is for others to explain
                raise
            raise _explanation(path, error) from error


def target_of(path: AnyPath) -> Path:
    """Where the output really stands: a link is followed, so that what it points to is replaced and not the link."""
    try:
        target = Path(os.path.realpath(path))
    except ValueError as error:
        raise OutputError(f"{os.fspath(path)!r} is no name for an output: {error}.") from error
    if not target.name:
        raise OutputError(f"{path} is the root of all folders, and no output. Give the name of a file or folder in it.")
    return target


def _check_parent(path: AnyPath, parent: Path) -> None:
    """The folder that is to hold an output, or the nearest above it that is there, must be one to write to."""
    parent = next(folder for folder in (parent, *parent.parents) if folder.exists())
    if not parent.is_dir():
        raise OutputError(f"{path} cannot be written: {parent} is not a folder. Choose another place for the output.")
    if not os.access(parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OutputError(
            f"{path} cannot be written: the folder {parent} may not be written to. "
            "Choose another folder, or change its permissions."
        )


def _check_input(path: AnyPath, target: Path, source: AnyPath) -> None:
    place = Path(os.path.realpath(source))
    advice = "Choose another name for the output."
    if place == target:
        raise OutputError(f"{path} is the input itself, and is not replaced. {advice}")
    if place.is_relative_to(target):
        raise OutputError(f"{source} is to be read, and would go with {path}, which is to be replaced. {advice}")


def _check_ours(path: AnyPath, target: Path, marks: Sequence[str]) -> None:
    names = sorted(each.name for each in target.iterdir())
    if names and not any(fnmatch.fnmatch(name, mark) for name in names for mark in marks):
        there = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        raise OutputError(
            f"{path} is a folder of other things ({there}), and is not replaced: --force is for what the same command "
            "has written. Choose another name for the output."
        )


def _check_parts(path: AnyPath, target: Path, is_part: Callable[[Path], bool]) -> None:
    foreign = next((each.name for each in sorted(target.iterdir()) if not is_part(each)), None)
    if foreign is not None:
        raise OutputError(
            f"{path} has {foreign} in it, which this command has not written, and is not replaced. Move that elsewhere "
            "if the rest may go, or choose another name for the output."
        )


def _check_replaced_file(path: AnyPath, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{path} is a folder, and the output is a file. Give the name of a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{path} is a device or a pipe, and the output is a file. Give the name of a plain file.")


def _check_replaced_folder(path: AnyPath, target: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{path} is a file, and the output is a folder. Choose another name for the output.")
    for precious, name in ((Path.cwd(), "the folder you are in"), (Path.home(), "your home folder")):
        if precious.resolve().is_relative_to(target):
            raise OutputError(f"{path} is, or holds, {name}; it is never replaced. Choose another name for the output.")


def _swap(new: Path, target: Path, aside: Path) -> None:
    """Put a new folder in the place of an old one, or the old one back if that fails."""
    replaces = target.exists()
    if replaces:
        target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        if replaces:
            aside.rename(target)
        raise


def _sync_all(new: Path) -> None:
    for folder, _, names in os.walk(new):
        for name in names:
            _sync(Path(folder, name))
        _sync_folder(Path(folder))


def _sync(path: Path, flags: int = os.O_RDWR) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(path: Path) -> None:
    """Make the names in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        _sync(path, os.O_RDONLY)


def _explanation(path: AnyPath, error: OSError) -> OutputError:
    for folder in Path(path).parents:
        if folder.name.endswith(UNFINISHED):  # users know the output by its own name
            path = folder.with_name(folder.name.removesuffix(UNFINISHED))
    if error.errno in _NO_ROOM:
        return OutputError(
            f"{path} could not be finished: {_NO_ROOM[error.errno]}. There is nothing unfinished under its name. "
            f"Make room in {target_of(path).parent}, or choose another folder for the output."
        )
    return OutputError(f"{path} cannot be written: {_reason(error)}. Choose another place for the output.")


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
