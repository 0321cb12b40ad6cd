"""What the user names, to the files it stands for.

- A folder stands for the files in it and in the folders below, by name, whose endings are those of a format that is
  read; hidden ones are left out. Links are followed, and every file is read once.
- A name with `*`, `?` or `[…]` in it, if there is no such file, is a pattern, whether or not the shell has seen it:
  it stands for the files that it matches (`**` for any depth of folders).
- `-` is standard input.

One warning lists the files that are left out.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.files.source import STANDARD_INPUT, size_of, status_of, suffixes

Sources = AnyPath | Iterable[Any]
"""Names of files; or texts, a frame or a dataset (`in_memory`)."""

_PATTERN = re.compile(r"[*?\[]")
_DOUBLED = "the same file as one before it"
_NAMED = 3
"""How many of the files that are left out for one reason are named."""


class FileName(str):
    """A string that is the name of a file, a folder or a pattern, also where texts could be given."""

    __slots__ = ()

    def __fspath__(self) -> str:
        return str(self)


class InputFiles(NamedTuple):
    """The files to read, in order."""

    names: Sequence[str]
    sizes: Sequence[int | None]
    """In bytes; None where that cannot be known: standard input, pipes."""
    labels: Sequence[str]
    """What goes before the numbers of their rows to make ids: the names below the folder that all of them are in; empty
    where the user named one file, and not several, a folder or a pattern."""

    @property
    def total(self) -> int | None:
        known = [size for size in self.sizes if size is not None]
        return sum(known) if len(known) == len(self.sizes) else None

    @property
    def name(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{len(self.names)} files"


def list_names(sources: Sources) -> list[str]:
    """The names of one source or of several."""
    return [os.fspath(one) for one in ([sources] if isinstance(sources, str | os.PathLike) else sources)]


def find_files(sources: Sources, *, endings: Collection[str] | None) -> InputFiles:
    """The files that `sources` stand for; of those in folders the ones with these `endings`, or all if None."""
    names = list_names(sources)
    if not names:
        raise InputError("There is nothing to read: no file, folder or pattern was named, and no text was given.")
    search = _Search(endings)
    for name in names:
        search.take(name)
    search.say_what_was_left_out()
    one = len(names) == 1 and not search.wide
    return InputFiles(search.names, search.sizes, [""] if one else _labels(search.names))


def _labels(names: Sequence[str]) -> list[str]:
    paths = {name: Path(name).absolute() for name in names if name != STANDARD_INPUT}
    common = os.path.commonpath([path.parent for path in paths.values()]) if paths else ""
    return [paths[name].relative_to(common).as_posix() if name in paths else "standard input" for name in names]


class _Search:
    """What was found so far, and what was left out and why."""

    def __init__(self, endings: Collection[str] | None) -> None:
        self.names: list[str] = []
        self.sizes: list[int | None] = []
        self.wide = False
        self._endings = endings
        self._seen: set[tuple[int, int]] = set()
        self._left_out: dict[str, list[str]] = {}

    def take(self, name: str) -> None:
        """Add what a name stands for."""
        if name == STANDARD_INPUT:
            self._take_standard_input()
        elif _PATTERN.search(name) and not os.path.lexists(name):
            self._take_pattern(name)
        elif stat.S_ISDIR((status := status_of(name)).st_mode):
            self._take_folder(name)
        else:
            self._add(name, status)

    def say_what_was_left_out(self) -> None:
        if not self._left_out:
            return
        reasons = [f"{_listed(names)} ({reason})" for reason, names in self._left_out.items()]
        warnings.warn(
            f"Left out: {'; '.join(reasons)}. What is to be read nonetheless can be given by name.",
            PolysemeWarning,
            stacklevel=4,
        )

    def _take_standard_input(self) -> None:
        if STANDARD_INPUT in self.names:
            raise InputError("Standard input (-) was named twice, and can be read only once.")
        self.names.append(STANDARD_INPUT)
        self.sizes.append(None)

    def _take_pattern(self, pattern: str) -> None:
        self.wide = True
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (a pattern may begin at the root)
        before = len(self.names) + self._n_doubled
        for name in matches:
            status = status_of(name)
            if not stat.S_ISDIR(status.st_mode):
                self._add(name, status)
            elif "**" not in pattern:
                self._leave_out(name, "a folder")
        if len(self.names) + self._n_doubled == before:
            folders = f" It matches folders only, as {matches[0]}: name the folder itself." if matches else ""
            raise InputError(f"No file matches {pattern} (looked for it in {Path.cwd()}).{folders}")

    def _take_folder(self, folder: str) -> None:
        self.wide = True
        before = len(self.names) + self._n_doubled
        for name in _files_below(folder, seen=set()):
            if (reason := self._reason_to_leave_out(name)) is None:
                self._add(name, status_of(name))
            else:
                self._leave_out(name, reason)
        if len(self.names) + self._n_doubled == before:
            known = ", ".join(sorted(self._endings or ()))
            of_what = f" whose ending is that of a format ({known})" if known else ""
            raise InputError(f"The folder {folder} has no file in it{of_what}: there is nothing to read.")

    def _reason_to_leave_out(self, name: str) -> str | None:
        path = Path(name)
        if path.name.startswith("."):
            return "hidden"
        if self._endings is not None and suffixes(name)[0] not in self._endings:
            return "the ending is that of no format"
        if path.is_symlink() and not path.exists():
            return "a link that leads nowhere"
        status = status_of(name)
        if not stat.S_ISREG(status.st_mode):
            return "no file but a pipe, a socket or a device"
        return None if status.st_size else "empty"

    def _add(self, name: str, status: os.stat_result) -> None:
        if (status.st_dev, status.st_ino) in self._seen:
            self._leave_out(name, _DOUBLED)
        else:
            self._seen.add((status.st_dev, status.st_ino))
            self.names.append(name)
            self.sizes.append(size_of(status))

    def _leave_out(self, name: str, reason: str) -> None:
        self._left_out.setdefault(reason, []).append(name)

    @property
    def _n_doubled(self) -> int:
        return len(self._left_out.get(_DOUBLED, ()))


def _files_below(folder: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Everything in a folder that is no folder, in order, and what is below; a folder that was seen is not entered."""
    here = status_of(folder)
    if (here.st_dev, here.st_ino) in seen:
        return
    seen.add((here.st_dev, here.st_ino))
    try:
        paths = sorted(Path(folder).iterdir())
    except OSError as error:
        raise InputError(f"The folder {folder} cannot be listed: {error.strerror}.") from error
    for path in paths:
        if path.is_dir() and not path.name.startswith("."):
            yield from _files_below(str(path), seen)
        else:
            yield str(path)


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    more = ", …" if len(names) > _NAMED else ""
    return f"{len(names)} files, {', '.join(names[:_NAMED])}{more}"
