"""Whole chunks of an unfinished output, kept so that the work can be gone on with.

They stand in a folder beside the output that anyone can see (`vectors.parquet.unfinished`):

| file | |
|---|---|
| settings.json | everything that decides the result; work with other settings is not gone on with |
| 000000.parquet, … | the vectors of one chunk, as the output will hold them |
| 000000.json, … | a digest of the chunk's input, how many documents it has, what it cost |
| lock | held by the process that is at work |

Each file is written beside and renamed, the vectors before the digest: a chunk whose digest is there is whole. It
counts if its input is still the same and its vectors can be read; otherwise it is made again, and that is said. The
folder goes when the output has its name, or when there is no whole chunk in it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath, Kind, explained, whole_file, whole_folder
from polyseme.files.unfinished_folder import finish, short, unfinished_work
from polyseme.files.vector_format import About, Fitter, Per, Store
from polyseme.files.write_vectors import VectorWriter, format_of, opened, read_vectors
from polyseme.types import Embedded


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is known of a whole chunk besides its vectors."""

    input: str
    documents: int
    fields: tuple[str, ...]
    tally: Mapping[str, float]
    """What making it took, by what was counted."""


@dataclass(frozen=True)
class _Chunk:
    number: int
    first: int
    n_documents: int


@contextlib.contextmanager
def open_spool(
    output: AnyPath, settings: Mapping[str, Any], fitted: Fitter, *, per: Per = "word", force: bool = False
) -> Iterator[Spool]:
    """The spool of an output: that of a run which was stopped, if its settings are these, or a new one.

    If something goes wrong, or a signal ends the work, whole chunks stay, and the exception bears a note that says so.
    """
    with unfinished_work(
        output, settings, what="output", force=force, is_worth_keeping=lambda folder: any(folder.glob("[0-9]*.json"))
    ) as folder:
        yield Spool(folder, fitted, per)


class Spool:
    """Chunks by their numbers, each whole or not there; see `open_spool`."""

    def __init__(self, folder: Path, fitted: Fitter, per: Per) -> None:
        self.folder = folder
        self.n_documents = 0
        """Of all chunks that were added so far."""
        self.n_given_away = 0
        """Documents, counted from the first, that are in whole shards, so that their chunks may be gone."""
        self._fitted = fitted
        self._per = per
        self._chunks: list[_Chunk] = []

    def whole(self, number: int, first: int, input: str) -> Kept | None:
        """What is known of a chunk, if it is whole, of this input, and its first document is the `first` of all."""
        record = self._record(number)
        if record is None:
            return None
        in_shards = first < self.n_given_away
        if record.input != input:
            if in_shards:
                raise InputError(
                    f"The input has changed since the work began, in texts that are in whole shards already (from "
                    f"text {first + 1:,} on). To start anew, remove {short(self.folder)} first."
                )
            self._say(number, "the input has changed there")
            return None
        if first + record.documents <= self.n_given_away or self._readable(number, record.documents):
            return record
        if in_shards:
            raise InputError(
                f"{self._vectors(number)} is damaged or gone, and some of its texts are in a whole shard already. To "
                f"start anew, remove {short(self.folder)} first."
            )
        self._say(number, "it is damaged")
        return None

    def keep(self, number: int, documents: Sequence[Embedded], input: str, tally: Mapping[str, float]) -> Kept:
        """Write one chunk; it is whole when this returns."""
        self._about(number).unlink(missing_ok=True)
        path = self._vectors(number)
        with opened(path, format_of(path), self._fitted, force=True, about={}, per=self._per) as writer:
            writer.write(documents)
        names = tuple(documents[0].fields)
        kept = Kept(input=input, documents=len(documents), fields=names, tally=tally)
        with whole_file(self._about(number), force=True) as made:
            made.write_text(json.dumps(asdict(kept)), encoding="utf-8")
        return kept

    def add(self, number: int, kept: Kept) -> None:
        """Count a whole chunk in, one after another."""
        if not self._chunks:
            self._fitted.expect(kept.fields)
        self._chunks.append(_Chunk(number, self.n_documents, kept.documents))
        self.n_documents += kept.documents

    def documents(self, first: int, stop: int) -> Iterator[list[Embedded]]:
        """The documents from one to another, those of a chunk at a time."""
        for chunk in self._chunks:
            if chunk.first < stop and first < chunk.first + chunk.n_documents:
                its = slice(max(first - chunk.first, 0), stop - chunk.first)
                yield list(itertools.islice(read_vectors(self._vectors(chunk.number)), its.start, its.stop))

    def give_away(self, stop: int) -> None:
        """Let go of the vectors of chunks that end at this document or before; they are in whole shards."""
        self.n_given_away = stop
        while self._chunks and self._chunks[0].first + self._chunks[0].n_documents <= stop:
            self._vectors(self._chunks.pop(0).number).unlink(missing_ok=True)

    def _record(self, number: int) -> Kept | None:
        try:
            found = json.loads(self._about(number).read_text(encoding="utf-8"))
            return Kept(**{**found, "fields": tuple(found["fields"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            self._say(number, "it is damaged")
            return None

    def _readable(self, number: int, n_documents: int) -> bool:
        try:
            return sum(1 for _ in read_vectors(self._vectors(number))) == n_documents
        except (InputError, ValueError):
            return False

    def _say(self, number: int, reason: str) -> None:
        warnings.warn(f"Chunk {number} in {short(self.folder)} is made again: {reason}.", PolysemeWarning, stacklevel=4)

    def _vectors(self, number: int) -> Path:
        return self.folder / f"{number:06}.parquet"

    def _about(self, number: int) -> Path:
        return self.folder / f"{number:06}.json"


# MERGED: The output, put together from the whole chunks of a spool: one file, or a folder of shards.


class Assembly:
    """Takes a spool as it grows."""

    def __init__(
        self,
        spool: Spool,
        output: AnyPath,
        *,
        about: About,
        per: Per,
        shard_rows: int | None = None,
        shard_format: str = "parquet",
        force: bool = False,
    ) -> None:
        self._spool = spool
        self._output = output
        self._about = about
        self._per = per
        self._shard_rows = shard_rows
        self._force = force
        self._suffix = Path(output).suffix.lower() if shard_rows is None else f".{shard_format}"
        self._shards = spool.folder / "shards"
        self._n_shards = 0
        if shard_rows is not None:
            with explained(self._shards):
                self._shards.mkdir(exist_ok=True)
            while self._shard(self._n_shards).exists():
                self._n_shards += 1
            spool.n_given_away = self._n_shards * shard_rows

    def advance(self) -> None:
        """Make the shards whose rows are all there."""
        if self._shard_rows is None:
            return
        while self._spool.n_documents >= (self._n_shards + 1) * self._shard_rows:
            self._make_shard()
        self._spool.give_away(self._n_shards * self._shard_rows)

    def finish(self) -> None:
        """All rows are there: complete the output, and give it its name."""
        kind: Kind
        if self._shard_rows is None:
            made, kind = f"whole{self._suffix}", "file"
            self._make(self._spool.folder / made, 0, self._spool.n_documents)
        else:
            made, kind = self._shards.name, "folder"
            if self._spool.n_documents > self._n_shards * self._shard_rows:
                self._make_shard()
        finish(self._spool.folder, made, self._output, kind=kind, force=self._force)

    def _make_shard(self) -> None:
        assert self._shard_rows is not None
        first = self._n_shards * self._shard_rows
        self._make(self._shard(self._n_shards), first, min(first + self._shard_rows, self._spool.n_documents))
        self._n_shards += 1

    def _make(self, path: Path, first: int, stop: int) -> None:
        fitted = Fitter(per=self._per, as_bits=True)
        with opened(path, format_of(path), fitted, force=True, about=self._about, per=self._per) as writer:
            for documents in self._spool.documents(first, stop):
                writer.write(documents)
                del documents  # or the next are read while these are still held

    def _shard(self, number: int) -> Path:
        return self._shards / shard_name(number, self._suffix)


class ShardWriter:
    """Documents to the shards of a folder, without a spool: for input that comes in one piece, or cannot come twice."""

    def __init__(self, folder: Path, fitted: Fitter, *, about: About, per: Per, shard_rows: int, suffix: str) -> None:
        self._folder = folder
        self._fitted = fitted
        self._about = about
        self._per = per
        self._shard_rows = shard_rows
        self._suffix = suffix
        self._n_shards = 0
        self._n_rows = 0
        self._open = contextlib.ExitStack()
        self._writer: VectorWriter | None = None

    def write(self, documents: Sequence[Embedded]) -> None:
        """Add one chunk; where a shard is full, the next begins."""
        while documents:
            if self._writer is None:
                self._writer = self._open.enter_context(self._next())
            room = self._shard_rows - self._n_rows
            self._writer.write(documents[:room])
            self._n_rows += len(documents[:room])
            documents = documents[room:]
            if self._n_rows == self._shard_rows:
                self._close()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._close()
        else:
            self._open.__exit__(*error)  # type: ignore[arg-type]

    def _next(self) -> contextlib.AbstractContextManager[VectorWriter]:
        path = self._folder / shard_name(self._n_shards, self._suffix)
        return opened(path, format_of(path), self._fitted, force=False, about=self._about, per=self._per)

    def _close(self) -> None:
        if self._writer is not None:
            self._open.close()
            self._writer = None
            self._n_rows = 0
            self._n_shards += 1


@contextlib.contextmanager
def open_shards(
    output: AnyPath, fitted: Fitter, *, about: About, per: Per, shard_rows: int, shard_format: str, force: bool
) -> Iterator[ShardWriter]:
    """A folder of shards that is there, and whole, once the block has ended well."""
    with (
        whole_folder(output, force=force) as folder,
        ShardWriter(folder, fitted, about=about, per=per, shard_rows=shard_rows, suffix=f".{shard_format}") as writer,
    ):
        yield writer


def shard_name(number: int, suffix: str) -> str:
    """`part-00000.parquet`, as readers of folders of Parquet expect."""
    return f"part-{number:05}{suffix}"


def check_shards(shard_rows: int | None, shard_format: str, store: Store) -> None:
    """Refuse shards that cannot be."""
    if shard_rows is None:
        if shard_format != "parquet":
            raise OptionError("The option 'shard_format' is for a folder of shards. Give 'shard_rows' with it.")
        return
    if shard_rows < 1:
        raise OptionError(f"A shard must have room for at least 1 row. Got {shard_rows} instead.")
    format_of(f"shards.{shard_format}", store)
