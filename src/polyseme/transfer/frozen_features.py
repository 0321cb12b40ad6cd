"""Frozen vectors: computed once through the flow that `embed` runs, kept on the disk, read as they are needed.

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
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import forward_flops
from polyseme.embedding.decoder_stack import Stack
from polyseme.embedding.flow import Embedder
from polyseme.embedding.layer_selection import LayerChoice
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.encoders.batch_runner import BATCH_PIECES
from polyseme.encoders.inference import InferenceEncoder, PackedRows, Precision, build_inference_encoder
from polyseme.errors import PolysemeWarning
from polyseme.files.atomic import explained, whole_folder
from polyseme.files.checksums import checksums_in, first_damaged
from polyseme.heads.head import Features
from polyseme.heads.word_inputs import WordInputs
from polyseme.json_reading import load_json
from polyseme.tasks.encoder_rows import RowTally, TaskRow, Text, document_of, other_documents
from polyseme.tasks.items import Item
from polyseme.text.documents import document_chunks
from polyseme.transfer.stacked_inputs import InputVectors
from polyseme.transfer.unit_batches import StackedSource, TaskBatch, Unit, beside, widened
from polyseme.types import Document, Progress

ABOUT = "about.json"
CHUNK_CHARACTERS = 1 << 19
ON_DEVICE_BYTES = 16 << 30
"""Vectors up to so many bytes are kept in a GPU's memory."""

Key = tuple[bool, tuple[str, ...]]


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
        first = self._beside(
            [self.places[key_of(one)] for one, _ in keys], [(row.first_word, row.n_words) for _, row in rows], longest
        )
        if not all(row.second is not None for _, row in rows):
            return first, None
        texts = [self.places[key_of(other)] for _, other in keys if other is not None]
        seconds = [(0, len(row.second.words)) for _, row in rows if row.second is not None]
        return first, self._beside(texts, seconds, longest)

    def _beside(self, texts: Sequence[int], spans: Sequence[tuple[int, int]], longest: int | None) -> InputVectors:
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

    def make(reading: _Reading) -> Iterator[list[NDArray[Any]]]:
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

    return _load_or_compute(bundle, decides, list(documents), make, cache, stack, precision)


@dataclass
class _Reading:
    """What was read to make vectors: it is filled as they are made."""

    n_pieces: list[int] = field(default_factory=list)
    """Of each text."""
    flops: float = 0.0


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

    def make(reading: _Reading) -> Iterator[list[NDArray[Any]]]:
        packed.prepare()
        reading.n_pieces += map(len, texts)
        reading.flops = forward_flops(bundle.config, map(len, texts))
        rows: list[NDArray[Any] | None] = [None] * len(texts)
        done = 0
        for numbers in _fitting(order, texts, budget):
            states = packed(_flat([texts[number] for number in numbers], bundle.device), choice.layers)
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
    return _load_or_compute(bundle, decides, keys, make, cache, precision=precision)


def _load_or_compute(
    bundle: Bundle,
    decides: Mapping[str, Any],
    keys: Sequence[Any],
    make: Callable[[_Reading], Iterator[list[NDArray[Any]]]],
    cache: Path | None,
    stack: Stack = "encoder",
    precision: Precision = "own",
) -> Store:
    reading = _Reading()
    if cache is None:
        arrays = [array for chunk in make(reading) for array in chunk]
        ends = np.cumsum([0, *map(len, arrays)])
        vectors = torch.from_numpy(np.concatenate(arrays))
        return Store(vectors, ends, np.array(reading.n_pieces, np.int64), flops=reading.flops)
    key = {**decides, **fingerprint(bundle, precision, stack), "texts": _digest(keys), "device": bundle.device.type}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache / name
    if folder.is_dir():
        try:
            return Store.open(folder, len(keys))
        except ValueError as error:
            warnings.warn(
                f"The vectors kept in {folder} are damaged ({error}) and are computed again.",
                PolysemeWarning,
                stacklevel=2,
            )
    with explained(cache):
        cache.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder, force=True) as unfinished:
        _write(unfinished, make(reading))
        np.save(unfinished / "pieces.npy", np.array(reading.n_pieces, np.int64))
        write_about(unfinished, key)
    return replace(Store.open(folder, len(keys)), computed=True, flops=reading.flops)


def write_about(folder: Path, decides: Mapping[str, Any]) -> None:
    """Conclude a folder of the cache with what decided it, and the checksums of its files."""
    content = {**decides, "checksums": checksums_in(folder)}
    (folder / ABOUT).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_cached(folder: Path) -> dict[str, Any]:
    """What is known of a folder of the cache, whose files are as they were written; otherwise a ValueError."""
    try:
        record = load_json(folder / ABOUT)
        if not isinstance(record, dict):
            raise ValueError(f"{ABOUT} holds something else")
        damaged = first_damaged(folder, record.get("checksums"))
    except (OSError, AttributeError) as error:
        raise ValueError(str(error)) from error
    if damaged is not None:
        raise ValueError(f"{damaged} is not as it was written: its checksum is another")
    return record


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


def _fitting(order: Sequence[int], texts: Sequence[Text], budget: int) -> Iterator[list[int]]:
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


def _flat(texts: Sequence[Text], device: torch.device) -> PackedRows:
    ids = torch.from_numpy(np.concatenate([text.ids for text in texts]))
    segments = torch.from_numpy(np.concatenate([text.segments for text in texts]))
    return PackedRows(
        ids.to(device), segments.to(device) if bool(segments.any()) else None, [len(text) for text in texts]
    )
