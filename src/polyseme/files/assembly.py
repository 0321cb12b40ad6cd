"""The output, put together from the whole chunks of a spool: one file, or a folder of shards.

Both are made in the spool's own folder and take their name at the end. A shard is made as soon as its rows are there,
and the chunks that are in it are then let go of; what is there after an interruption is not made again. So a row is in
one place at any time, and a file is made of the same chunks whether or not the work was stopped on the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyseme.errors import OptionError
from polyseme.files.atomic import AnyPath, Kind, explained, put_in_place, whole_folder
from polyseme.files.fitting import Fitter
from polyseme.files.sink import About, Per, Store
from polyseme.files.spool import Spool
from polyseme.files.write import VectorWriter, format_of, opened
from polyseme.types import Embedded


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
        """All rows are there: complete the output, give it its name, and remove the spool."""
        if self._shard_rows is None:
            made = self._spool.folder / f"whole{self._suffix}"
            self._make(made, 0, self._spool.n_documents)
        else:
            made = self._shards
            if self._spool.n_documents > self._n_shards * self._shard_rows:
                self._make_shard()
        self._spool.about_to_finish(made)
        kind: Kind = "file" if self._shard_rows is None else "folder"
        aside = None if self._shard_rows is None else self._spool.folder / "replaced"
        put_in_place(made, self._output, force=self._force, kind=kind, aside=aside)
        self._spool.remove()

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
