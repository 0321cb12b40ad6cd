"""Items made ready for a task model: rows, gold, where features come from; and what the model says of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyseme.errors import InputError
from polyseme.tasks.encoder_rows import TaskRow, word_rows
from polyseme.tasks.items import Item
from polyseme.transfer.frozen_features import (
    VectorSource,
    WholeSource,
    different_documents,
    whole_store,
    word_store,
)
from polyseme.transfer.gold import Judged, gold_of, judged
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.unit_batches import RowSource, Source, Unit, by_length
from polyseme.types import Progress

PREDICTED_PIECES = {"cuda": 32768, "cpu": 4096}
"""Padded pieces (or words) that are judged together."""


@dataclass
class Prepared:
    """Some items, ready to be learned from or judged."""

    items: Sequence[Item]
    source: Source

    @property
    def n_pieces(self) -> int:
        """Pieces that the encoder reads to go through all of them once."""
        return sum(unit.n_pieces for unit in self.source.units)

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
) -> Prepared:
    """Make items ready; frozen vectors are computed here, unless the cache has them."""
    config = model.config
    _check_marks(model.head.config.n_marks, items)
    reads = model.row_maker is not None and (not config.frozen or config.whole)
    if reads and model.row_maker is not None:
        rows = model.row_maker.rows(config.kind, items)
        if model.inputs is not None:
            rows = _with_strings(rows, items, config.kind)
    else:
        rows = word_rows(config.kind, items, strings=model.inputs is not None)
    units = _units(model, items, rows, learning=learning)
    return Prepared(items, _source(model, items, units, cache, progress))


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
    beside: Any = {"with_marks": config.with_marks, "inputs": model.inputs, "tags": config.kind == "tag"}
    if bundle is None:
        return VectorSource(units, None, None, device=model.device, apart=config.apart, **beside)
    if not config.frozen:
        return RowSource(units, **beside)
    if config.whole:
        texts = [row.text for unit in units for row in unit.rows]
        store = whole_store(bundle, texts, choice=model.choice, layer=config.layer, cache=cache, progress=progress)
        return WholeSource(units, store, device=model.device)
    documents = different_documents(items)
    store = word_store(
        bundle,
        documents,
        layer=config.layer,
        pool=config.pool,
        stack=config.stack,  # type: ignore[arg-type]
        cache=cache,
        progress=progress,
    )
    places = {key: number for number, key in enumerate(documents)}
    return VectorSource(units, store, places, device=model.device, apart=config.apart, **beside)


def _units(model: TaskModel, items: Sequence[Item], rows: list[list[TaskRow]], *, learning: bool) -> list[Unit]:
    """Rows by themselves; the choices of an item together."""
    head = model.head.config
    made = []
    for item, its in zip(items, rows, strict=True):
        groups = [tuple(its)] if head.kind == "choose" else [(row,) for row in its]
        made += [Unit(group, item, gold_of(head, item, group[0]) if learning else None) for group in groups if group]
    return made


def _with_strings(rows: list[list[TaskRow]], items: Sequence[Item], kind: str) -> list[list[TaskRow]]:
    """Rows that know the words they are of, too."""
    spelled = word_rows(kind, items, strings=True)
    return [
        [
            TaskRow(
                row.item,
                row.text,
                row.second,
                row.first_word,
                row.choice,
                other[0].strings[row.first_word : row.first_word + row.n_words],
                other[min(row.choice, len(other) - 1)].second_strings,
            )
            for row in its
        ]
        for its, other in zip(rows, spelled, strict=True)
    ]


def judge(model: TaskModel, prepared: Prepared, *, autocast: AbstractContextManager[Any] | None = None) -> list[Judged]:
    """What a model says of items, in their order; batches are of like lengths, and each row is judged by itself."""
    source = prepared.source
    device = model.device
    labels: list[Any] = [None] * len(source.units)
    probabilities: list[Any] = [None] * len(source.units)
    model.eval()
    with torch.inference_mode(), autocast or contextlib.nullcontext():
        for numbers in by_length(source.lengths, PREDICTED_PIECES.get(device.type, 4096)):
            found = model.predict(source.batch(numbers.tolist()).to(device))
            for place, number in enumerate(numbers.tolist()):
                labels[number] = found.labels[place]
                if found.probabilities is not None:
                    probabilities[number] = found.probabilities[place]
    rows = [unit.rows[0] for unit in source.units]
    return judged(model.head.config, prepared.items, rows, labels, probabilities)
