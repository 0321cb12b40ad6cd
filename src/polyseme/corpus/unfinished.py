"""A corpus that is being built, in a folder beside the output that anyone can see (`corpus.unfinished`).

| file | |
|---|---|
| settings.json | everything that decides the result; work with other settings is not gone on with |
| corpus/ | the corpus as far as it has grown |
| notes.json | what there is to say about the tokenizer, which is trained first |
| journal.jsonl | a line a stretch of documents that is whole: a digest of its input, and how far the shards had grown |
| lock | held by the process that is at work |

Pieces are written before the line that counts them. Whatever a process that was killed had written after the last line
is cut off again, so that the finished corpus is the same, byte for byte, as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyseme.errors import OutputError, PolysemeWarning
from polyseme.files.atomic import AnyPath, explained, put_in_place, whole_file

SETTINGS, LOCK, JOURNAL, NOTES = "settings.json", "lock", "journal.jsonl", "notes.json"
GROWING, REPLACED = "corpus", "replaced"

_NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file has grown past the largest allowed here (see: ulimit -f)",
}
_LONGEST = 60
"""Characters of a setting that a message shows."""


class Unfinished:
    """The folder of a corpus that is being built; see `begun`."""

    def __init__(self, folder: Path, output: AnyPath) -> None:
        self.folder = folder
        self.corpus = folder / GROWING
        self._output = output

    def journal(self) -> list[dict[str, Any]]:
        """The lines that are whole, in order."""
        lines: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / JOURNAL).read_bytes().split(b"\n")[:-1]:
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    break
        return lines

    @contextlib.contextmanager
    def writing(self, kept: list[dict[str, Any]]) -> Iterator[Any]:
        """Write the journal on, after the lines that are `kept`; gives what writes a line."""
        path = self.folder / JOURNAL
        with whole_file(path, force=True) as made:
            made.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:

            def write(line: Mapping[str, Any]) -> None:
                file.write(json.dumps(line) + "\n")
                file.flush()

            yield write

    def start_over(self, why: str) -> None:
        """Throw away what was done, which is said."""
        warnings.warn(f"{short(self.folder)} is built anew from its beginning: {why}.", PolysemeWarning, stacklevel=4)
        (self.folder / JOURNAL).unlink(missing_ok=True)

    def finish(self, *, force: bool) -> None:
        """Give the corpus its name."""
        put_in_place(self.corpus, self._output, force=force, kind="folder", aside=self.folder / REPLACED)
        _remove(self.folder)


def unfinished_folder(output: AnyPath) -> Path:
    """Where a corpus is built before it has its name."""
    target = Path(os.path.realpath(output))
    return target.with_name(f"{target.name}.unfinished")


@contextlib.contextmanager
def begun(output: AnyPath, settings: Mapping[str, Any], *, force: bool) -> Iterator[Unfinished]:
    """The unfinished corpus of an output: that of a run which was stopped, if its settings are these, or a new one."""
    folder = unfinished_folder(output)
    with explained(folder):
        folder.mkdir(exist_ok=True)
    with _locked(folder):
        _settle(folder, json.loads(json.dumps(settings)), force=force)
        unfinished = Unfinished(folder, output)
        try:
            yield unfinished
        except BaseException as error:
            if unfinished.journal():
                note = f"What was done is kept in {short(folder)}: the same command goes on from there."
                error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]
            else:
                _remove(folder)
            raise


def clear_up(output: AnyPath) -> None:
    """Remove what is left of a corpus that has its name, but whose process was killed before it could do that."""
    folder = unfinished_folder(output)
    if not folder.is_dir() or (folder / GROWING).exists():
        return
    if {each.name for each in folder.iterdir()} <= {SETTINGS, LOCK, JOURNAL, NOTES, REPLACED}:
        with contextlib.suppress(OutputError), _locked(folder):
            _remove(folder)


@contextlib.contextmanager
def told_in_words(output: AnyPath) -> Iterator[None]:
    """Say in words why a corpus cannot be written on; what there is of it stays."""
    try:
        yield
    except OSError as error:
        reason = _NO_ROOM.get(error.errno or 0, error.strerror or str(error))
        raise OutputError(
            f"{os.fspath(output)} could not be finished: {reason}. Make room in "
            f"{short(unfinished_folder(output).parent)}, or choose another place for the output."
        ) from error


def short(path: Path) -> str:
    """As seen from here, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out; the system lets go of the lock when this one ends, however it ends."""
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(
                f"Another process is at work on this output: it holds {short(folder)}. Wait for it, or choose another "
                "name for the output."
            ) from None
        yield


def _settle(folder: Path, settings: Mapping[str, Any], *, force: bool) -> None:
    """See to it that what is in the folder is of these settings."""
    path = folder / SETTINGS
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = None
    for workshop in folder.rglob(".*.part"):
        shutil.rmtree(workshop, ignore_errors=True)
    if before == settings:
        (folder / GROWING).mkdir(exist_ok=True)
        return
    foreign = before is None and {each.name for each in folder.iterdir()} - {LOCK}
    if not force and (before is not None or foreign):
        raise OutputError(_refusal(folder, before, settings))
    for each in folder.iterdir():
        if each.name != LOCK:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    with whole_file(path, force=True) as made:
        made.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with explained(folder):
        (folder / GROWING).mkdir()


def _remove(folder: Path) -> None:
    """Remove the folder, its settings last, so that what is left if that is cut short can be told from other things."""
    with contextlib.suppress(OSError):
        for each in sorted(folder.iterdir(), key=lambda one: (one.name in (SETTINGS, LOCK), one.name == LOCK)):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        folder.rmdir()


def _refusal(folder: Path, before: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> str:
    advice = "To start anew, give --force (force=True), or choose another name for the output."
    if before is None:
        return f"{folder} is there already, and is no unfinished corpus of polyseme. {advice}"
    named = [name for name in {**before, **settings} if before.get(name) != settings.get(name)]
    told = [f"{name} was {_shown(before.get(name))} and is {_shown(settings.get(name))}" for name in named]
    return (
        f"{short(folder)} is an unfinished corpus of other settings: {'; '.join(told)}. To go on with it, give the "
        f"settings it had. {advice}"
    )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
