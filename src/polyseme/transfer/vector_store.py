"""Word vectors kept on the disk, computed once and read as they are needed.

A store is a folder named after what decides its content: the model, the layers, the pooling, and the texts.

| file | |
|---|---|
| vectors.npy | [N, D], or [N, layers, D] where they are mixed by what a task learns: all words end to end |
| ends.npy | [n + 1]: the words of text i are `ends[i]:ends[i + 1]` |
| pieces.npy | [n]: how many pieces the encoder read of each text, specials included |
| about.json | what decided it, and a checksum of each file |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import Stack
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.encoders.inference import Precision
from polyseme.files.cached_folders import cached_folder, check_cached, new_cached, read_cached, write_about

ON_DEVICE_BYTES = 16 << 30
"""Vectors up to so many bytes are kept in a GPU's memory."""


@dataclass
class Store:
    """The vectors of texts, end to end."""

    vectors: Tensor
    """[N, …]; memory-mapped where they come from the disk"""
    ends: NDArray[np.int64]
    n_pieces: NDArray[np.int64]
    """[n]: how many pieces the encoder read of each text, specials included"""
    computed: bool = True
    """Whether they were computed here; otherwise they were there already."""
    flops: float = 0.0
    """What computing them here took."""

    @property
    def n_words(self) -> NDArray[np.int64]:
        """[n]: how many words each text has."""
        return np.diff(self.ends)

    @classmethod
    def open(cls, folder: Path, n_texts: int) -> Store:
        """What a folder holds; once its checksums are right, pages are read as they are needed, and nothing here writes
        them.

        A ValueError says that it is damaged.
        """
        check_cached(folder)
        try:
            vectors, ends = np.load(folder / "vectors.npy", mmap_mode="c"), np.load(folder / "ends.npy")
            n_pieces = np.load(folder / "pieces.npy")
        except (OSError, EOFError) as error:
            raise ValueError(str(error)) from error
        if (
            len(ends) != n_texts + 1
            or len(n_pieces) != n_texts
            or ends[0]
            or (np.diff(ends) < 0).any()
            or ends[-1] != len(vectors)
        ):
            raise ValueError("it holds the vectors of other texts, or not of all")
        return cls(torch.from_numpy(vectors), ends, n_pieces, computed=False)

    def on(self, device: torch.device) -> Store:
        """The same on a GPU, where it has the room."""
        if device.type == "cpu" or self.vectors.numel() * self.vectors.element_size() > ON_DEVICE_BYTES:
            return self
        return replace(self, vectors=self.vectors.to(device))

    def rows(
        self,
        texts: Sequence[int],
        device: torch.device,
        longest: int | None = None,
        spans: Sequence[tuple[int, int]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The vectors of these texts side by side, [R, W, …], zeros where one has ended, and the mask [R, W].

        W is `longest`, where that is given and none is longer. `spans` are the words to take of each text, where it is
        not read whole: the first, and how many.
        """
        starts, counts = self.ends[list(texts)], self.ends[[text + 1 for text in texts]] - self.ends[list(texts)]
        if spans is not None:
            first, counts = np.array(spans, np.int64).reshape(-1, 2).T
            starts = starts + first
        here = np.arange(int(counts.max(initial=longest or 0)))
        mask = torch.from_numpy(here[None] < counts[:, None])
        index = torch.from_numpy(np.where(here[None] < counts[:, None], starts[:, None] + here[None], 0))
        if not len(self.vectors):
            return self.vectors.new_zeros(*mask.shape, *self.vectors.shape[1:]).to(device), mask.to(device)
        vectors = self.vectors[index.to(self.vectors.device)].to(device)
        mask = mask.to(device)
        return vectors * mask.view(*mask.shape, *[1] * (vectors.dim() - 2)), mask


@dataclass
class Reading:
    """What the encoder reads to make vectors; it is filled as they are made."""

    n_pieces: list[int] = field(default_factory=list)
    """Of each text."""
    flops: float = 0.0


def load_or_compute(
    bundle: Bundle,
    decides: Mapping[str, Any],
    keys: Sequence[Any],
    make: Callable[[Reading], Iterator[list[NDArray[Any]]]],
    cache: Path | None,
    stack: Stack = "encoder",
    precision: Precision = "own",
) -> Store:
    """What the cache holds for these texts, known by `keys`, and this model; else what `make` yields, chunk by chunk.

    `decides` are settings that the vectors depend on.
    """
    reading = Reading()
    if cache is None:
        arrays = [array for chunk in make(reading) for array in chunk]
        ends = np.cumsum([0, *map(len, arrays)])
        vectors = torch.from_numpy(np.concatenate(arrays))
        return Store(vectors, ends, np.array(reading.n_pieces, np.int64), flops=reading.flops)
    key = {**decides, **fingerprint(bundle, precision, stack), "texts": _digest(keys), "device": bundle.device.type}
    folder = cached_folder(cache, key)
    store = read_cached(folder, lambda place: Store.open(place, len(keys)))
    if store is not None:
        return store
    with new_cached(folder) as unfinished:
        _write(unfinished, make(reading))
        np.save(unfinished / "pieces.npy", np.array(reading.n_pieces, np.int64))
        write_about(unfinished, key)
    return replace(Store.open(folder, len(keys)), computed=True, flops=reading.flops)


def _write(folder: Path, chunks: Iterator[list[NDArray[Any]]]) -> None:
    """All vectors end to end in one .npy, whose header is written again once their number is known."""
    counts: list[int] = [0]
    shape: tuple[int, ...] = ()
    with (folder / "vectors.npy").open("wb") as file:
        file.write(_npy_header((0,)))
        for chunk in chunks:
            for array in chunk:
                shape = array.shape[1:]
                counts.append(len(array))
                file.write(np.ascontiguousarray(array, "<f4").tobytes())
        file.seek(0)
        file.write(_npy_header((sum(counts), *shape)))
    np.save(folder / "ends.npy", np.cumsum(counts))


def _npy_header(shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file of version 1.0; as long for one shape as for another."""
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("ascii")


def _digest(keys: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for key in keys:
        digest.update(repr(key).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()
