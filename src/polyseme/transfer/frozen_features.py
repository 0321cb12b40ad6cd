"""Frozen vectors: computed once through the flow that `embed` runs, and side by side in a batch of a task's units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import forward_flops
from polyseme.embedding.decoder_stack import Stack
from polyseme.embedding.flow import Embedder
from polyseme.embedding.layer_selection import LayerChoice
from polyseme.encoders.batch_runner import BATCH_PIECES
from polyseme.encoders.inference import InferenceEncoder, PackedRows, Precision, build_inference_encoder
from polyseme.heads.head import Features
from polyseme.heads.word_inputs import WordInputs
from polyseme.tasks.encoder_rows import RowTally, TaskRow, Text, document_of, other_documents
from polyseme.tasks.items import Item
from polyseme.text.documents import document_chunks
from polyseme.transfer.stacked_inputs import InputVectors
from polyseme.transfer.unit_batches import StackedSource, TaskBatch, Unit, beside, widened
from polyseme.transfer.vector_store import Reading, Store, load_or_compute
from polyseme.types import Document, Progress

CHUNK_CHARACTERS = 1 << 19

Key = tuple[bool, tuple[str, ...]]


def key_of(document: Document) -> Key:
    """Equal for texts that have equal vectors."""
    return (True, tuple(map(str, document.words))) if document.pretokenized else (False, (document.text,))


class VectorSource:
    """Units whose word vectors are computed already."""

    def __init__(
        self,
        units: Sequence[Unit],
        store: Store | None,
        places: Mapping[Key, int] | None,
        *,
        device: torch.device,
        separate_rows: bool,
        with_marks: bool = False,
        tags: bool = False,
        inputs: WordInputs | None = None,
        stacked: StackedSource | None = None,
    ) -> None:
        self.units = units
        self.store = None if store is None else store.on(device)
        self.device = device
        self.separate_rows = separate_rows
        self.with_marks = with_marks
        self.tags = tags
        """Whether the gold is one number per word."""
        self.inputs = inputs
        self.stacked = stacked
        self._texts = [_texts(unit, places) for unit in units] if places is not None else []
        self.lengths: NDArray[np.int64] = np.array(
            [
                max(max(row.n_words, 0 if row.second is None else len(row.second.words)) for row in unit.rows)
                for unit in units
            ],
            dtype=np.int64,
        )

    @property
    def stored(self) -> Store:
        """The vectors; refused where there are none, since inputs of the head's own are all that it reads."""
        if self.store is None:
            raise RuntimeError("The head reads no vectors.")
        return self.store

    def total(self, counts: NDArray[np.int64]) -> int:
        """The sum of what is counted of each text of the store, over the texts of all units."""
        texts = [{first for first, _ in pairs} | {other for _, other in pairs if other >= 0} for pairs in self._texts]
        return int(sum(counts[list(each)].sum() for each in texts))

    def batch(self, numbers: Sequence[int], longest: int | None = None) -> TaskBatch:
        units = [self.units[number] for number in numbers]
        result = TaskBatch(
            **beside(units, with_marks=self.with_marks, inputs=self.inputs, stacked=self.stacked, longest=longest)
        )
        if self.store is not None:
            pairs = [pair for number in numbers for pair in self._texts[number]]
            result.features = Features(*self.store.rows([first for first, _ in pairs], self.device, longest))
            if self.separate_rows:
                result.features.second, result.features.second_mask = self.store.rows(
                    [other for _, other in pairs], self.device, longest
                )
        return result if longest is None else widened(result, tags=self.tags)


class WholeSource:
    """Units whose rows have one vector each, computed already."""

    def __init__(self, units: Sequence[Unit], store: Store, *, device: torch.device) -> None:
        self.units = units
        self.store = store.on(device)
        self.device = device
        self.lengths: NDArray[np.int64] = np.ones(len(units), dtype=np.int64)
        self._firsts = np.cumsum([0, *(len(unit.rows) for unit in units)])

    def batch(self, numbers: Sequence[int], longest: int | None = None) -> TaskBatch:
        units = [self.units[number] for number in numbers]
        rows = [row for number in numbers for row in range(self._firsts[number], self._firsts[number + 1])]
        vectors, mask = self.store.rows(rows, self.device)
        result = TaskBatch(**beside(units))
        none = vectors[:, :0]
        result.features = Features(words=none, mask=mask[:, :0], whole=vectors[:, 0])
        return result


class StackedStores:
    """The vectors of frozen inputs, one store of each, computed already."""

    def __init__(self, stores: Sequence[Store], places: Mapping[Key, int], device: torch.device) -> None:
        self.stores = [store.on(device) for store in stores]
        self.places = places
        self.device = device

    def vectors(
        self, rows: Sequence[tuple[Unit, TaskRow]], longest: int | None
    ) -> tuple[InputVectors, InputVectors | None]:
        """Side by side, each with its layers one after another."""
        keys = [
            (document_of(unit.item), other_documents(unit.item)[row.choice] if row.second is not None else None)
            for unit, row in rows
        ]
        first = self._concatenate(
            [self.places[key_of(one)] for one, _ in keys], [(row.first_word, row.n_words) for _, row in rows], longest
        )
        if not all(row.second is not None for _, row in rows):
            return first, None
        texts = [self.places[key_of(other)] for _, other in keys if other is not None]
        seconds = [(0, len(row.second.words)) for _, row in rows if row.second is not None]
        return first, self._concatenate(texts, seconds, longest)

    def _concatenate(self, texts: Sequence[int], spans: Sequence[tuple[int, int]], longest: int | None) -> InputVectors:
        each = [store.rows(texts, self.device, longest, spans) for store in self.stores]
        return InputVectors(torch.cat([vectors.flatten(2) for vectors, _ in each], dim=-1), each[0][1])


def _texts(unit: Unit, places: Mapping[Key, int]) -> list[tuple[int, int]]:
    first, others = places[key_of(document_of(unit.item))], other_documents(unit.item)
    return [(first, places[key_of(others[row.choice])] if others else -1) for row in unit.rows]


# --- how vectors are made ---------------------------------------------------------------------------------------------


def different_documents(items: Sequence[Item]) -> dict[Key, Document]:
    """Every text of these items, each once."""
    documents = (each for item in items for each in (document_of(item), *other_documents(item)))
    different: dict[Key, Document] = {}
    for document in documents:
        different.setdefault(key_of(document), document)
    return different


def word_store(
    bundle: Bundle,
    documents: Mapping[Key, Document],
    *,
    layer: str,
    pool: str,
    stack: Stack = "encoder",
    cache: Path | None,
    progress: Progress | None = None,
    tally: RowTally | None = None,
    inference: InferenceEncoder | None = None,
    precision: Precision = "own",
) -> Store:
    """The vectors of every word of these texts, computed unless they are in the cache.

    What the tokenizer had no pieces for is added to `tally`. `inference` is the encoder in this precision, where it is
    packed already.
    """
    layer = "all" if layer == "mix" else layer
    decides = {"layer": layer, "pool": pool, "unit": "word"}
    texts = list(documents.values())

    def make(reading: Reading) -> Iterator[list[NDArray[Any]]]:
        embedder = Embedder(bundle, layer=layer, pool=pool, stack=stack, inference=inference, precision=precision)
        embedder.n_pieces = reading.n_pieces
        embedder.inference.prepare()
        done = 0
        for chunk in document_chunks(texts, CHUNK_CHARACTERS):
            yield [each.vectors for each in embedder(chunk)]
            reading.flops = embedder.tally.flops
            done += len(chunk)
            if progress is not None:
                progress(done, len(texts))
        if tally is not None:
            tally.vanished += embedder.tally.vanished
            tally.unknown += embedder.tally.unknown
            tally.checked += embedder.tally.words

    return load_or_compute(bundle, decides, list(documents), make, cache, stack, precision)


def whole_store(
    bundle: Bundle,
    texts: Sequence[Text],
    *,
    choice: LayerChoice,
    layer: str,
    cache: Path | None,
    progress: Progress | None = None,
    inference: InferenceEncoder | None = None,
    precision: Precision = "own",
) -> Store:
    """The state of the piece that stands for its row, of each of these rows."""
    packed = build_inference_encoder(bundle.encoder, precision) if inference is None else inference
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    budget = BATCH_PIECES[bundle.device.type]

    def make(reading: Reading) -> Iterator[list[NDArray[Any]]]:
        packed.prepare()
        reading.n_pieces += map(len, texts)
        reading.flops = forward_flops(bundle.config, map(len, texts))
        rows: list[NDArray[Any] | None] = [None] * len(texts)
        done = 0
        for numbers in _split_by_budget(order, texts, budget):
            states = packed(_pack([texts[number] for number in numbers], bundle.device), choice.layers)
            starts = np.cumsum([0, *(len(texts[number]) for number in numbers)])[:-1]
            places = torch.tensor([texts[number].whole for number in numbers]) + torch.from_numpy(starts)
            taken = {layer: each[places.to(each.device)] for layer, each in states.items()}
            if layer == "mix":
                vectors = torch.stack([taken[number] for number in choice.layers], dim=1)
            else:
                vectors = choice.combine(taken)
            for number, vector in zip(numbers, vectors.float().cpu().numpy(), strict=True):
                rows[number] = vector[None]
            done += len(numbers)
            if progress is not None:
                progress(done, len(texts))
        yield [each for each in rows if each is not None]

    decides = {"layer": "all" if layer == "mix" else layer, "unit": "row"}
    keys = [(text.ids.tobytes(), text.segments.tobytes(), text.whole) for text in texts]
    return load_or_compute(bundle, decides, keys, make, cache, precision=precision)


def _split_by_budget(order: Sequence[int], texts: Sequence[Text], budget: int) -> Iterator[list[int]]:
    chunk: list[int] = []
    size = 0
    for number in order:
        if chunk and size + len(texts[number]) > budget:
            yield chunk
            chunk, size = [], 0
        chunk.append(number)
        size += len(texts[number])
    if chunk:
        yield chunk


def _pack(texts: Sequence[Text], device: torch.device) -> PackedRows:
    ids = torch.from_numpy(np.concatenate([text.ids for text in texts]))
    segments = torch.from_numpy(np.concatenate([text.segments for text in texts]))
    return PackedRows(
        ids.to(device), segments.to(device) if bool(segments.any()) else None, [len(text) for text in texts]
    )
