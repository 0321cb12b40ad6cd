"""Shards: the pieces of one source and split as flat files that are mapped into memory.

| file | |
|---|---|
| text.train.pieces | the pieces, document after document, `uint16`, or `uint32` where a vocabulary needs it |
| text.train.starts | one bit per piece, lowest first: whether it begins a word |
| text.train.documents | `int64`: where each document ends; its separator, where there is one, is its last piece |
| text.train.sentences | `int64`: where each sentence begins |

Numbers are little-endian. The first part of a name is the side, of which plain text has one and pairs have two, the
second the split. Document n of one side belongs to document n of the other.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.checksums import crc_of, digest_of, is_intact

Ints = NDArray[np.int64]
Bits = NDArray[np.bool_]

SPLITS = ("train", "held")
SIDE = "text"
"""The one side of plain text."""
SIDES = ("source", "target")
"""The two of pairs."""
FILES = ("pieces", "starts", "documents", "sentences")
SHARDS = "shards"
"""The folder of a corpus that they are in, one folder per source."""

_BLOCK = 1 << 22
"""Pieces looked at together."""
_ADVICE = "Copy it again from where it came from, or rebuild it (polyseme corpus … --force)."


def dtype_for(n_pieces: int) -> np.dtype[Any]:
    """The smallest kind of number that holds every piece of a vocabulary."""
    return np.dtype("<u2" if n_pieces <= 1 << 16 else "<u4")


def shard_path(folder: Path, source: str, split: str, file: str, side: str = SIDE) -> Path:
    """Where a file of a shard is, in the folder of a corpus."""
    return folder / SHARDS / source / f"{side}.{split}.{file}"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How much there is in a shard, or in several."""

    pieces: int = 0
    """Separators included."""
    documents: int = 0
    sentences: int = 0
    words: int = 0
    """Pieces that begin a word; separators begin none."""
    bytes: int = 0
    """Of text, in UTF-8, as it was read."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def file_sizes(counts: Counts, dtype: np.dtype[Any], *, whole_bytes: bool = False) -> dict[str, int]:
    """Bytes of each file of a shard; with `whole_bytes` without the last bits, which do not fill a byte yet."""
    return {
        "pieces": counts.pieces * dtype.itemsize,
        "starts": (counts.pieces if whole_bytes else counts.pieces + 7) // 8,
        "documents": 8 * counts.documents,
        "sentences": 8 * counts.sentences,
    }


class Stretch(NamedTuple):
    """Some documents of one source and split, as pieces."""

    pieces: NDArray[Any]
    """[n]"""
    starts: Bits
    """[n]"""
    ends: Ints
    """[documents]: where each ends, counted from the first piece here."""
    sentences: Ints
    """[sentences]: where each begins, likewise."""
    n_bytes: int
    n_words: int


# --- reading ---------------------------------------------------------------------------------------------------------


class Shard:
    """A shard that is read: arrays over its files, read into memory only where they are used."""

    def __init__(
        self,
        folder: Path,
        source: str,
        split: str,
        counts: Counts,
        dtype: np.dtype[Any],
        side: str = SIDE,
        checksums: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        self.counts = counts
        self.dtype = dtype
        self._checksums = checksums
        self._path: Callable[[str], Path] = lambda file: shard_path(folder, source, split, file, side)
        for file, n_bytes in file_sizes(counts, dtype).items():
            _check_size(self._path(file), n_bytes)

    def __len__(self) -> int:
        return self.counts.pieces

    @cached_property
    def pieces(self) -> NDArray[Any]:
        """[n]"""
        return self._mapped("pieces", self.dtype, self.counts.pieces)

    @cached_property
    def ends(self) -> Ints:
        """[documents]: where each document ends."""
        return self._mapped("documents", np.dtype("<i8"), self.counts.documents)

    @cached_property
    def sentences(self) -> Ints:
        """[sentences]: where each sentence begins."""
        return self._mapped("sentences", np.dtype("<i8"), self.counts.sentences)

    def starts_at(self, places: Ints) -> Bits:
        """Whether the pieces at these places begin a word; of the shape of `places`."""
        bits: NDArray[np.uint8] = self._bits[places >> 3] >> (places & 7).astype(np.uint8)
        return (bits & 1).astype(np.bool_)

    def starts(self) -> Bits:
        """The same for all pieces."""
        return np.unpackbits(self._bits, count=len(self), bitorder="little").astype(np.bool_)

    def sentences_at(self, places: Ints) -> Bits:
        """Whether the pieces at these places begin a sentence; of the shape of `places`."""
        if not len(self.sentences):
            return np.zeros(places.shape, np.bool_)
        next_ones = np.minimum(np.searchsorted(self.sentences, places), len(self.sentences) - 1)
        begins: Bits = self.sentences[next_ones] == places
        return begins

    def numbers(self) -> Iterator[NDArray[Any]]:
        """All pieces, some at a time."""
        for start in range(0, len(self), _BLOCK):
            yield self.pieces[start : start + _BLOCK]

    def checksums(self) -> dict[str, str]:
        """A digest of each file, as `corpus.json` has it."""
        return {file: digest_of(self._path(file)) for file in FILES}

    @property
    def has_checksums(self) -> bool:
        """Whether damage to its files would be noticed."""
        return self._checksums is not None

    def check(self) -> None:
        """Refuse files that are not as they were built; files are checked on first use anyway."""
        for file in FILES:
            self._check(file)

    def _check(self, file: str) -> None:
        if self._checksums is not None and not is_intact(self._path(file), self._checksums[file]):
            raise InputError(
                f"The corpus is damaged: {self._path(file)} is not as it was built (its checksum is another). {_ADVICE}"
            )

    @cached_property
    def _bits(self) -> NDArray[np.uint8]:
        return self._mapped("starts", np.dtype("u1"), file_sizes(self.counts, self.dtype)["starts"])

    def _mapped(self, file: str, dtype: np.dtype[Any], n: int) -> NDArray[Any]:
        if not n:  # an empty file cannot be mapped
            return np.zeros(0, dtype)
        self._check(file)
        return np.asarray(np.memmap(self._path(file), dtype, "r", shape=(n,)))


def _check_size(path: Path, n_bytes: int) -> None:
    size = path.stat().st_size if path.is_file() else None
    if size != n_bytes:
        damage = "is not there" if size is None else f"has {size:,} bytes where {n_bytes:,} belong"
        raise InputError(f"The corpus is damaged: {path} {damage}. {_ADVICE}")


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class State:
    """How far the files of a shard have been written: enough to resume there."""

    counts: Counts
    tail: tuple[int, ...] = ()
    """The bits that do not fill a byte yet."""
    checks: tuple[int, ...] = (0,) * len(FILES)
    """A checksum of what each file has."""

    def to_json(self) -> dict[str, Any]:
        return {"counts": self.counts.to_json(), "tail": self.tail, "checks": self.checks}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> State:
        return cls(counts=Counts(**record["counts"]), tail=tuple(record["tail"]), checks=tuple(record["checks"]))


class ShardWriter:
    """A shard that grows at its end; `state` is its position, and `resume` continues from a state."""

    def __init__(self, folder: Path, source: str, split: str, dtype: np.dtype[Any], side: str = SIDE) -> None:
        self.dtype = dtype
        self.state = State(counts=Counts())
        self._paths = {file: shard_path(folder, source, split, file, side) for file in FILES}
        self._files: dict[str, BinaryIO] = {}

    def begin(self) -> None:
        """Start with nothing."""
        for file, path in self._paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[file] = path.open("wb")

    def resume(self, state: State) -> None:
        """Start from what was written when `state` was taken; later parts are removed."""
        self.state = state
        for file, path in self._paths.items():
            self._files[file] = path.open("r+b")
            self._files[file].truncate(file_sizes(state.counts, self.dtype, whole_bytes=True)[file])
            self._files[file].seek(0, 2)

    def append(self, stretch: Stretch) -> None:
        """Write some documents."""
        before = self.state.counts
        tail = np.concatenate([np.array(self.state.tail, np.bool_), stretch.starts])
        n_whole = len(tail) // 8 * 8
        written = {
            "pieces": stretch.pieces.astype(self.dtype, copy=False),
            "starts": np.packbits(tail[:n_whole], bitorder="little"),
            "documents": (stretch.ends + before.pieces).astype("<i8", copy=False),
            "sentences": (stretch.sentences + before.pieces).astype("<i8", copy=False),
        }
        checks = []
        for (file, array), check in zip(written.items(), self.state.checks, strict=True):
            data = array.tobytes()
            self._files[file].write(data)
            checks.append(zlib.crc32(data, check))
        counts = before + Counts(
            pieces=len(stretch.pieces),
            documents=len(stretch.ends),
            sentences=len(stretch.sentences),
            words=stretch.n_words,
            bytes=stretch.n_bytes,
        )
        self.state = State(counts=counts, tail=tuple(tail[n_whole:].astype(int).tolist()), checks=tuple(checks))

    def flush(self) -> None:
        """Hand everything to the system, so that it is there whatever becomes of this process."""
        for file in self._files.values():
            file.flush()

    def finish(self) -> None:
        """Write what is left of the bits and let go of the files."""
        if self.state.tail:
            self._files["starts"].write(np.packbits(np.array(self.state.tail, np.bool_), bitorder="little").tobytes())
        self.close()

    def close(self) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files = {}

    def holds(self, state: State) -> bool:
        """Whether the files have, at their beginning, what they had when `state` was taken."""
        return all(
            path.is_file() and crc_of(path, file_sizes(state.counts, self.dtype, whole_bytes=True)[file]) == check
            for (file, path), check in zip(self._paths.items(), state.checks, strict=True)
        )
