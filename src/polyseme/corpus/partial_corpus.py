"""A corpus that is being built: its growing shards, in a folder beside the output (`corpus.unfinished`).

A journal with one line per stretch of documents records its progress, so that the same call resumes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from polyseme.corpus.document_reader import TextSource
from polyseme.corpus.parallel_text import PairSource
from polyseme.corpus.shards import SPLITS, ShardWriter, State
from polyseme.corpus.worker_processes import FinishedStretch
from polyseme.errors import OutputError, PolysemeWarning
from polyseme.files.atomic import AnyPath, explained, whole_file
from polyseme.files.checksums import record_checksum
from polyseme.files.unfinished_folder import finish, short, unfinished_folder, unfinished_work
from polyseme.json_reading import parse_json

AnySource: TypeAlias = TextSource | PairSource

JOURNAL, NOTES = "journal.jsonl", "notes.json"
GROWING = "corpus"

_NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file has grown past the largest allowed here (see: ulimit -f)",
}


class Writers:
    """The shards of all sources, sides and splits, as they grow."""

    def __init__(self, folder: Path, sources: Sequence[AnySource], dtype: np.dtype[Any]) -> None:
        self._names = [source.name for source in sources]
        self._writers = {
            source.name: {
                side: {split: ShardWriter(folder, source.name, split, dtype, side) for split in SPLITS}
                for side in source.sides
            }
            for source in sources
        }

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        self._mapped(ShardWriter.close)

    def begin(self) -> None:
        self._mapped(ShardWriter.begin)

    def resume(self, states: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bool:
        """Resume where the shards were; False if they are not as they were then."""
        pairs = [
            (writer, State.from_json(states[name][side][split]))
            for name, sides in self._writers.items()
            for side, mine in sides.items()
            for split, writer in mine.items()
        ]
        if not all(writer.holds(state) for writer, state in pairs):
            return False
        for writer, state in pairs:
            writer.resume(state)
        return True

    def n_documents(self, source: int) -> dict[str, int]:
        first = next(iter(self._writers[self._names[source]].values()))
        return {split: writer.state.counts.documents for split, writer in first.items()}

    def append(self, source: int, worked: FinishedStretch) -> None:
        for side, mine in self._writers[self._names[source]].items():
            for split, writer in mine.items():
                writer.append(worked.stretches[side][split])
                writer.flush()

    def states(self) -> dict[str, dict[str, dict[str, Any]]]:
        return self._mapped(lambda writer: writer.state.to_json())

    def finish(self) -> dict[str, dict[str, dict[str, State]]]:
        self._mapped(ShardWriter.finish)
        return self._mapped(lambda writer: writer.state)

    def _mapped(self, act: Callable[[ShardWriter], Any]) -> dict[str, dict[str, dict[str, Any]]]:
        return {
            name: {side: {split: act(writer) for split, writer in mine.items()} for side, mine in sides.items()}
            for name, sides in self._writers.items()
        }


class Unfinished:
    """The folder of a corpus that is being built; see `unfinished_corpus`."""

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
                    content = parse_json(line, kind=dict)
                    expected = content.pop("record", None)
                except (ValueError, AttributeError, TypeError):
                    break
                if expected is not None and record_checksum(content) != expected:
                    break
                lines.append(content)
        return lines

    @contextlib.contextmanager
    def writing(self, lines: list[dict[str, Any]]) -> Iterator[Any]:
        """Continue the journal after `lines`; gives a function that writes a line."""
        path = self.folder / JOURNAL
        with whole_file(path, force=True) as new:
            new.write_text("".join(map(_sealed, lines)), encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:

            def write(line: Mapping[str, Any]) -> None:
                file.write(_sealed(line))
                file.flush()

            yield write

    def start_over(self, why: str) -> None:
        """Discard what was done, with a warning."""
        warnings.warn(f"{short(self.folder)} is built from the beginning: {why}.", PolysemeWarning, stacklevel=4)
        (self.folder / JOURNAL).unlink(missing_ok=True)

    def finish(self, *, force: bool) -> None:
        """Give the corpus its name."""
        finish(self.folder, GROWING, self._output, kind="folder", force=force)


def _sealed(line: Mapping[str, Any]) -> str:
    """A line of the journal, with its checksum."""
    content = json.loads(json.dumps(line))
    return json.dumps({**content, "record": record_checksum(content)}) + "\n"


@contextlib.contextmanager
def unfinished_corpus(output: AnyPath, settings: Mapping[str, Any], *, force: bool) -> Iterator[Unfinished]:
    """The unfinished corpus of an output: that of a run which was stopped, if its settings are these, or a new one."""
    with unfinished_work(
        output,
        settings,
        noun="corpus",
        force=force,
        is_worth_keeping=lambda folder: bool(Unfinished(folder, output).journal()),
    ) as folder:
        with explained(folder):
            (folder / GROWING).mkdir(exist_ok=True)
        yield Unfinished(folder, output)


@contextlib.contextmanager
def errors_in_words(output: AnyPath) -> Iterator[None]:
    """Explain in words why a corpus cannot be written further; what there is of it stays."""
    try:
        yield
    except OSError as error:
        reason = _NO_ROOM.get(error.errno or 0, error.strerror or str(error))
        raise OutputError(
            f"{os.fspath(output)} could not be finished: {reason}. Make room in "
            f"{short(unfinished_folder(output).parent)}, or choose another place for the output."
        ) from error
