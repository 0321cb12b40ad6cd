"""Vectors of spans at every layer, from one pass over the texts through the flow that `embed` runs.

Only spans that have a label are kept, each as the mean of its words' vectors, and layer after layer, so that what a
probe reads of one layer lies together. They are in a GPU's memory where the model is there and they fit; else in memory
while they are few, or in a file that is mapped.

Shapes: G layers of one width, S spans, D width.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.decoder_stack import Stack, decoder_of
from polyseme.embedding.flow import Embedder
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.files.cached_folders import cached_folder, check_cached, new_cached, read_cached, write_about
from polyseme.parts.device import fits_on
from polyseme.result_tables import counted
from polyseme.text.documents import document_chunks
from polyseme.transfer.frozen_features import CHUNK_CHARACTERS, key_of
from polyseme.types import Document, Progress

IN_MEMORY_BYTES = 1 << 30
"""Vectors up to so many bytes are in memory; more are in a file."""
_FILE = "group-{}.npy"


class LayerGroup(NamedTuple):
    """Layers of one width, with the vectors of all spans, less a constant vector."""

    layers: tuple[int, ...]
    vectors: Tensor
    """[G, S, D]"""


@dataclass
class SpanVectors:
    """The vectors of all spans; one group, unless layers differ in width."""

    groups: Sequence[LayerGroup]
    tally: Tally = field(default_factory=Tally)
    """What was read to compute them; nothing where they were there already."""
    n_windowed: int = 0
    """Texts that are longer than the window, and were read in several."""
    window: int | None = None
    folder: Any = None
    """A temporary folder that lasts as long as they do."""

    def notes(self) -> list[str]:
        """What a reader of the figures must know."""
        notes = []
        if self.n_windowed:
            are = "1 text is" if self.n_windowed == 1 else f"{self.n_windowed:,} texts are"
            notes.append(
                f"{are} longer than the model's window of {self.window:,} pieces, and were read in overlapping windows."
            )
        if self.tally.vanished:
            words = counted(self.tally.vanished, "word")
            notes.append(f"Read as the unknown piece, since normalization leaves nothing of them: {words}.")
        if self.tally.unknown:
            words = counted(self.tally.unknown, "word")
            share = self.tally.unknown / max(self.tally.words, 1)
            notes.append(f"Read as the unknown piece, whole or in part: {words} ({share:.1%}).")
        return notes


def span_vectors(
    bundle: Bundle,
    documents: Sequence[Document],
    spans: NDArray[np.int64],
    *,
    pool: str | None = None,
    stack: Stack = "encoder",
    layers: Sequence[int] | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> SpanVectors:
    """Compute the vectors of spans [S, 3] (document, first word, end), at these layers; None: at every layer.

    With a `cache` folder they are kept there, under a key of the model, the texts and the spans.
    """
    config = decoder_of(bundle).config if stack == "decoder" else bundle.config
    layers = tuple(range(config.depth + 1)) if layers is None else tuple(layers)
    groups = [tuple(layer for layer in layers if config.widths[layer] == width) for width in sorted(set(config.widths))]
    work = _Work(
        Embedder(bundle, layer=f"concat:{min(layers)}:{max(layers)}", pool=pool, stack=stack),
        [group for group in groups if group],
        documents,
        spans,
        progress,
    )
    if cache is not None:
        return _cached(work, {**fingerprint(bundle, "own", stack), "device": bundle.device.type}, cache)
    if bundle.device.type == "cuda" and fits_on(bundle.device, work.n_bytes):
        dtype = torch.float64 if work.embedder.dtype == np.float64 else torch.float32
        return work.fill([torch.empty(shape, dtype=dtype, device=bundle.device) for shape in work.shapes])
    if work.n_bytes <= IN_MEMORY_BYTES:
        return work.fill([torch.from_numpy(np.empty(shape, work.embedder.dtype)) for shape in work.shapes])
    folder = tempfile.TemporaryDirectory(prefix="polyseme-probe-")
    result = work.fill([torch.from_numpy(file) for file in work.files(Path(folder.name))])
    result.folder = folder
    return result


@dataclass
class _Work:
    """One pass over the texts."""

    embedder: Embedder
    groups: Sequence[tuple[int, ...]]
    documents: Sequence[Document]
    spans: NDArray[np.int64]
    progress: Progress | None

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        widths = self.embedder.config.widths
        return [(len(layers), len(self.spans), widths[layers[0]]) for layers in self.groups]

    @property
    def n_bytes(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes) * self.embedder.dtype.itemsize

    def files(self, folder: Path) -> list[NDArray[Any]]:
        """A mapped file of each group, to be filled."""
        return [
            np.lib.format.open_memmap(folder / _FILE.format(number), "w+", self.embedder.dtype, shape)
            for number, shape in enumerate(self.shapes)
        ]

    def fill(self, groups: Sequence[Tensor]) -> SpanVectors:
        """Read the texts, and write the vectors of each group of layers, [G, S, D].

        The mean of the first chunk's vectors is subtracted from all: a large common vector would cost the probes
        digits, and no probe can tell the difference.
        """
        embedder, spans = self.embedder, self.spans
        order = np.argsort(spans[:, 0], kind="stable")
        bounds = np.searchsorted(spans[order, 0], np.arange(len(self.documents) + 1))
        chosen = embedder.choice.layers
        ends = np.cumsum([0, *(embedder.config.widths[layer] for layer in chosen)])
        embedder.n_pieces = []
        embedder.prepare()
        done, center = 0, torch.empty(0)
        for chunk in document_chunks(self.documents, CHUNK_CHARACTERS):
            rows, vectors = [], []
            for number, each in enumerate(embedder(chunk), start=done):
                here = order[bounds[number] : bounds[number + 1]]
                if len(here):
                    rows.append(here)
                    vectors.append(_means(each.vectors, spans[here, 1], spans[here, 2]))
            done += len(chunk)
            if rows:
                numbers = torch.from_numpy(np.concatenate(rows)).to(groups[0].device)
                values = torch.from_numpy(np.concatenate(vectors))
                center = center if len(center) else values.mean(0, dtype=torch.float64).to(values).to(numbers.device)
                values = values.to(numbers.device).sub_(center)
                for layers, group in zip(self.groups, groups, strict=True):
                    for place, layer in enumerate(layers):
                        at = chosen.index(layer)
                        group[place].index_copy_(0, numbers, values[:, ends[at] : ends[at + 1]])
            if self.progress is not None:
                self.progress(done, len(self.documents))
        window = embedder.config.window
        n_windowed = 0 if window is None else sum(count > window for count in embedder.n_pieces)
        filled = [LayerGroup(*each) for each in zip(self.groups, groups, strict=True)]
        return SpanVectors(filled, embedder.tally, n_windowed, window)


def _cached(work: _Work, model: Mapping[str, str], cache: Path) -> SpanVectors:
    """The vectors that are in the cache, or are put there."""
    texts = hashlib.sha256(repr([key_of(document) for document in work.documents]).encode("utf-8", "surrogatepass"))
    texts.update(work.spans.tobytes())
    key = {**model, "pool": work.embedder.pool, "layers": str(work.groups), "spans": texts.hexdigest()}
    folder = cached_folder(cache, key, "spans-")
    vectors = read_cached(folder, lambda place: _read(work, place, Tally()))
    if vectors is not None:
        return vectors
    with new_cached(folder) as unfinished:
        arrays = work.files(unfinished)
        computed = work.fill([torch.from_numpy(array) for array in arrays])
        for array in arrays:
            array.flush()  # type: ignore[attr-defined]
        write_about(unfinished, {**key, "n_windowed": computed.n_windowed, "window": computed.window})
    return _read(work, folder, computed.tally)


def _read(work: _Work, folder: Path, tally: Tally) -> SpanVectors:
    """What the cache has; a ValueError says that it is damaged."""
    record = check_cached(folder)
    try:
        arrays = [np.load(folder / _FILE.format(number), mmap_mode="c") for number in range(len(work.groups))]
        n_windowed, window = record["n_windowed"], record["window"]
    except (OSError, EOFError, KeyError) as error:
        raise ValueError(str(error)) from error
    if [each.shape for each in arrays] != work.shapes:
        raise ValueError("it holds the vectors of other spans, or not of all")
    groups = [LayerGroup(each, torch.from_numpy(array)) for each, array in zip(work.groups, arrays, strict=True)]
    return SpanVectors(groups, tally, n_windowed, window)


def _means(vectors: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
    """The mean of each span's words; of a single word, its vector."""
    if (ends - starts == 1).all():
        return vectors[starts]
    return np.stack([vectors[start:end].mean(axis=0) for start, end in zip(starts, ends, strict=True)])
