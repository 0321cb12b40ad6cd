"""Items made ready for a task model: rows, gold, where features come from; and what the model says of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from polyseme.errors import InputError
from polyseme.tasks.encoder_rows import TaskRow, word_rows
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.predictions import Judgment
from polyseme.transfer.frozen_features import (
    Key,
    StackedStores,
    VectorSource,
    WholeSource,
    different_documents,
    whole_store,
    word_store,
)
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.unit_batches import RowSource, Source, Unit, by_length
from polyseme.types import Document, Progress

PREDICTED_PIECES = {"cuda": 32768, "cpu": 4096}
"""Padded pieces (or words) that are judged together."""


@dataclass
class PreparedItems:
    """Items, ready to be learned from or judged."""

    items: Sequence[Item]
    source: Source

    @property
    def n_pieces(self) -> int:
        """Pieces that the encoder reads to go through all of them once."""
        words = self._word_vectors
        return sum(unit.n_pieces for unit in self.source.units) if words is None else words.total(words.stored.n_pieces)

    @property
    def n_words(self) -> int:
        """Words of all texts that the head reads."""
        words = self._word_vectors
        if words is None:
            return sum(unit.rows[0].n_words for unit in self.source.units)
        return words.total(words.stored.n_words)

    def forward_flops(self, model: TaskModel, *, learning: bool = False) -> float:
        """Floating-point operations that the encoder takes to go through all of them once; of frozen vectors, took."""
        words = self._word_vectors
        if words is None:
            return model.forward_flops(self.row_lengths, learning=learning)
        return words.stored.flops or model.forward_flops(words.stored.n_pieces.tolist())

    @property
    def _word_vectors(self) -> VectorSource | None:
        """The source, if vectors of words were computed for it; None: the encoder reads rows."""
        source = self.source
        return source if isinstance(source, VectorSource) and source.store is not None else None

    @property
    def row_lengths(self) -> list[int]:
        """Of every row that the encoder reads."""
        rows = [row for unit in self.source.units for row in unit.rows]
        return [len(text) for row in rows for text in (row.text, row.second) if text is not None]


def prepare(
    model: TaskModel,
    items: Sequence[Item],
    *,
    learning: bool,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> PreparedItems:
    """Make items ready; frozen vectors are computed here, unless the cache has them."""
    config, kind = model.config, KINDS[model.config.kind]
    _check_marks(model.head.config.n_marks, items)
    items = [kind.marked(item) for item in items]
    reads = model.row_maker is not None and (not config.frozen or config.whole)
    if reads and model.row_maker is not None:
        rows = kind.encoder_rows(model.row_maker, items)
        if model.inputs is not None:
            rows = _with_strings(rows, word_rows(items, kind.seconds, strings=True))
    else:
        rows = word_rows(items, kind.seconds, strings=model.inputs is not None)
    units = _units(model, items, rows, learning=learning)
    return PreparedItems(items, _source(model, items, units, cache, progress))


def _check_marks(n_marks: int, items: Sequence[Item]) -> None:
    for item in items if n_marks else ():
        if item.marks and max(item.marks) >= n_marks:
            raise InputError(
                f"{item.place or f'Item {item.id}'}: a mark is {max(item.marks)}, and the model knows those from 0 to "
                f"{n_marks - 1}."
            )


def _source(
    model: TaskModel, items: Sequence[Item], units: list[Unit], cache: Path | None, progress: Progress | None
) -> Source:
    config, bundle = model.config, model.bundle
    documents = different_documents(items)
    beside: Any = {
        "with_marks": config.with_marks,
        "inputs": model.inputs,
        "stacked": _stacked_stores(model, documents, cache, progress),
        "tags": KINDS[config.kind].labels_words,
    }
    if bundle is None:
        return VectorSource(units, None, None, device=model.device, separate_rows=config.separate_rows, **beside)
    if not config.frozen:
        return RowSource(units, **beside)
    if config.whole:
        texts = [row.text for unit in units for row in unit.rows]
        store = whole_store(
            bundle,
            texts,
            choice=model.choice,
            layer=config.layer,
            cache=cache,
            progress=progress,
            inference=model.inference,
            precision=model.precision,
        )
        return WholeSource(units, store, device=model.device)
    store = word_store(
        bundle,
        documents,
        layer=config.layer,
        pool=config.pool,
        stack=config.stack,  # type: ignore[arg-type]
        cache=cache,
        progress=progress,
        tally=None if model.row_maker is None else model.row_maker.tally,
        inference=model.inference,
        precision=model.precision,
    )
    places = {key: number for number, key in enumerate(documents)}
    return VectorSource(units, store, places, device=model.device, separate_rows=config.separate_rows, **beside)


def _stacked_stores(
    model: TaskModel, documents: Mapping[Key, Document], cache: Path | None, progress: Progress | None
) -> StackedStores | None:
    """The vectors of frozen inputs."""
    if not model.stacked:
        return None
    stores = [
        word_store(
            each.bundle,
            documents,
            layer=each.layer,
            pool=each.bundle.config.usual_pooling,
            cache=cache,
            progress=progress,
            tally=each.tally,
        )
        for each in model.frozen_inputs
    ]
    return StackedStores(stores, {key: number for number, key in enumerate(documents)}, model.device)


def standardize(model: TaskModel, prepared: PreparedItems) -> None:
    """Measure the frozen vectors of prepared items where a mix standardizes them."""
    source = prepared.source
    stores = {}
    if isinstance(source, VectorSource | WholeSource) and source.store is not None:
        stores["mix"] = source.store
    stacked = source.stacked if isinstance(source, VectorSource | RowSource) else None
    if isinstance(stacked, StackedStores):
        stores |= {f"stacked.{number}.mix": store for number, store in enumerate(stacked.stores)}
    for name, mix in model.standard_mixes().items():
        mix.standardize(stores[name].vectors)


def _units(model: TaskModel, items: Sequence[Item], rows: list[list[TaskRow]], *, learning: bool) -> list[Unit]:
    head = model.head.config
    kind = KINDS[head.kind]
    return [
        Unit(unit, item, kind.gold(head, item, unit[0]) if learning else None)
        for item, item_rows in zip(items, rows, strict=True)
        for unit in kind.units(item_rows)
    ]


def _with_strings(rows: list[list[TaskRow]], spelled: list[list[TaskRow]]) -> list[list[TaskRow]]:
    """Rows that know the words they are of, too."""
    return [
        [
            replace(
                row,
                strings=words[0].strings[row.first_word : row.first_word + row.n_words],
                second_strings=words[min(row.choice, len(words) - 1)].second_strings,
            )
            for row in item_rows
        ]
        for item_rows, words in zip(rows, spelled, strict=True)
    ]


def judge(
    model: TaskModel, prepared: PreparedItems, *, autocast: AbstractContextManager[Any] | None = None
) -> list[Judgment]:
    """What a model says of items, in their order; batches are of like lengths, and each row is judged by itself."""
    source = prepared.source
    device = model.device
    labels: list[Any] = [None] * len(source.units)
    probabilities: list[Any] = [None] * len(source.units)
    model.eval()
    with torch.inference_mode(), autocast or contextlib.nullcontext():
        for numbers in by_length(source.lengths, PREDICTED_PIECES.get(device.type, 4096)):
            predicted = model.predict(source.batch(numbers.tolist()).to(device))
            for place, number in enumerate(numbers.tolist()):
                labels[number] = predicted.labels[place]
                if predicted.probabilities is not None:
                    probabilities[number] = predicted.probabilities[place]
    rows = [unit.rows[0] for unit in source.units]
    return KINDS[model.config.kind].answers(model.head.config, prepared.items, rows, labels, probabilities)
