"""Where bytes come from: a file, a compressed file, or standard input; and how far one has read.

A new compression is one line of `COMPRESSIONS`.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath
from polyseme.files.bad_rows import BadRows, NullTexts

Item = TypeVar("Item")

STANDARD_INPUT = "-"
BLOCK = 1 << 18
"""Bytes read from the system at a time."""

LONGEST = 1 << 26
"""Bytes of the longest line or text that is read into memory, unless an option allows more."""

READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading may raise half-way through a file; `Source.explain` puts it in words."""


class Stream(Protocol):
    """What a reader asks of decompressed bytes."""

    def peek(self, size: int = ..., /) -> bytes: ...

    def read(self, size: int = ..., /) -> bytes: ...

    def readline(self, size: int = ..., /) -> bytes: ...

    def close(self) -> None: ...


class _Zstandard(io.RawIOBase):
    """The bytes in a Zstandard file, unpacked by Arrow, which is loaded for it; several packed end to end are one.

    Where they end too soon, or are none, reading raises an OSError.
    """

    def __init__(self, packed: BinaryIO) -> None:
        arrow = importlib.import_module("pyarrow")
        self._stream = arrow.CompressedInputStream(arrow.PythonFile(packed, mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_bytes: int = self._stream.readinto(buffer)
        return n_bytes

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


COMPRESSIONS: Mapping[str, Callable[[BinaryIO], Stream]] = {
    ".gz": lambda packed: cast(Stream, gzip.GzipFile(fileobj=packed, mode="rb")),
    ".xz": lambda packed: cast(Stream, lzma.LZMAFile(packed, mode="rb")),  # noqa: SIM115
    ".bz2": lambda packed: cast(Stream, bz2.BZ2File(packed, mode="rb")),
    ".zst": lambda packed: io.BufferedReader(_Zstandard(packed), BLOCK),
}
"""From the ending of a compressed file to how it is unpacked. What goes wrong is raised as one of `READ_ERRORS`."""


class Source:
    """Opened bytes with a name for messages, a total for progress bars, and a way to say what went wrong.

    `total` and `done` count bytes of the file as it lies on the disk, compressed or not; `total` is None where it
    cannot be known beforehand (standard input, pipes).
    """

    def __init__(self, name: str, opened: io.BufferedIOBase | io.FileIO, *, total: int | None) -> None:
        self.name = name
        self.total = total
        self.suffix, compression = suffixes(name)
        self._jumped: int | None = None
        self._counted = _Counted(opened)
        packed = io.BufferedReader(self._counted, BLOCK)
        self.compressed = bool(compression)
        self.stream: Stream = COMPRESSIONS[compression](packed) if compression else packed
        self._packed = packed

    @property
    def done(self) -> int:
        """How many bytes of the file have been read."""
        return self._counted.count if self._jumped is None else self._jumped

    def jump(self, done: int) -> None:
        """Set the position of a reader that does not read the stream from its start to its end."""
        self._jumped = done

    def head(self) -> bytes:
        """The first bytes, without moving on; empty only if there are none."""
        try:
            return self.stream.peek(BLOCK)
        except READ_ERRORS as error:
            raise self.explain(error) from error

    def explain(self, error: BaseException) -> InputError:
        """What one of `READ_ERRORS` means for this source."""
        if self.compressed and not (isinstance(error, OSError) and error.errno):
            return InputError(
                f"{self.name} is damaged or was cut short: it cannot be decompressed past byte {self.done} of the file "
                f"({error}). Copy or download it again."
            )
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        return InputError(f"{self.name} cannot be read past byte {self.done}: {reason}.")

    def close(self) -> None:
        """Let go of the file; standard input stays open."""
        self.stream.close()
        self._packed.close()


class Readable(Protocol):
    """What is being read: one source, or several one after another."""

    @property
    def name(self) -> str: ...

    @property
    def total(self) -> int | None: ...

    @property
    def done(self) -> int: ...

    def close(self) -> None: ...


class Reading(Iterator[Item]):
    """What is read from one source or several, item by item, and the position in it.

    `done` and `total` count bytes of the files on the disk, for a progress bar; `total` is None where there is a pipe.
    """

    def __init__(
        self,
        source: Readable,
        items: Iterator[Item],
        bad_rows: BadRows | None = None,
        null_texts: NullTexts | None = None,
    ) -> None:
        self._source = source
        self._items = items
        self._bad_rows = bad_rows
        self._null_texts = null_texts

    def __next__(self) -> Item:
        try:
            return next(self._items)
        except StopIteration:
            for counted in (self._bad_rows, self._null_texts):
                if counted is not None:
                    counted.summary()
            self._bad_rows = self._null_texts = None
            raise

    def without_bad(self, make: Callable[[Item], object]) -> Reading[Item]:
        """The same, without those that `make` refuses, where bad rows are skipped."""
        bad = self._bad_rows
        if bad is None:
            return self
        items = (each for each in self._items if bad.attempt(lambda: make(each) or True) is not None)  # noqa: B023
        return Reading(self._source, items, bad, self._null_texts)

    @property
    def name(self) -> str:
        """What is being read, as messages call it."""
        return self._source.name

    @property
    def total(self) -> int | None:
        return self._source.total

    @property
    def done(self) -> int:
        return self._source.done

    def close(self) -> None:
        """Let go of the files before their end; at the end that is done already."""
        if isinstance(self._items, Generator):
            self._items.close()
        self._source.close()

    def __enter__(self) -> Reading[Item]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_source(path: AnyPath) -> Source:
    """Open a path, decompressing by its ending, or standard input for `-`."""
    name = os.fspath(path)
    if name == STANDARD_INPUT:
        return _standard_input()
    with _refusing(name):
        status = Path(name).stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{name} is a folder, and a file is read here. Give the name of a file in it.")
        opened = Path(name).open("rb", buffering=0)  # noqa: SIM115
    return Source(name, opened, total=size_of(status))


def status_of(name: str) -> os.stat_result:
    """What the system knows of a file or folder, or why it cannot be read, in words."""
    with _refusing(name):
        return Path(name).stat()


def source_name(rows: Reading[Any]) -> str:
    """The name of what is read, for messages."""
    return "standard input" if rows.name == STANDARD_INPUT else rows.name


def size_of(status: os.stat_result) -> int | None:
    """How many bytes a file has; None for a pipe."""
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    """The system's errors about a path, in words."""
    try:
        yield
    except FileNotFoundError as error:
        is_a_path = " " not in name and (os.sep in name or "." in name)
        advice = " If it is a text: texts are read from standard input (-), or in Python from a list."
        raise InputError(
            f"There is no file {name} (looked for it in {Path.cwd()}).{'' if is_a_path else advice}"
        ) from error
    except PermissionError as error:
        raise InputError(f"{name} may not be read by this user. Change its permissions: chmod +r '{name}'") from error
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise InputError(f"{name!r} cannot be opened: {reason}.") from error


def _standard_input() -> Source:
    buffer: Any = getattr(sys.stdin, "buffer", None)
    if buffer is None or buffer.closed:
        raise InputError("There is no standard input to read. Give the name of a file instead of '-'.")
    return Source("standard input", _Kept(buffer), total=None)


def suffixes(name: str) -> tuple[str, str]:
    """The ending that says what is in a file, and that of its compression, in small letters; either may be empty."""
    path = Path(name)
    if path.suffix.lower() in COMPRESSIONS:
        return Path(path.stem).suffix.lower(), path.suffix.lower()
    return path.suffix.lower(), ""


class _Counted(io.RawIOBase):
    """Bytes as they come, counted."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._read_into = opened.readinto1 if hasattr(opened, "readinto1") else opened.readinto
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_bytes: int = self._read_into(buffer) or 0
        self.count += n_bytes
        return n_bytes

    def close(self) -> None:
        self._opened.close()
        super().close()


class _Kept(io.BufferedIOBase):
    """Standard input, which is not ours to close."""

    def __init__(self, opened: io.BufferedIOBase) -> None:
        self._opened = opened

    def readinto1(self, buffer: Any) -> int:
        return self._opened.readinto1(buffer)
