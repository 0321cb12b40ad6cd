"""Steps and what they read: units in an order that seed and epoch decide, rows of like length together, padded little.

A unit is what stays together: a row, or all choices of an item.

Shapes: R rows, T pieces of the longest, W words of the longest, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyseme.embedding.word_rows import PaddedRows
from polyseme.heads.head import NO_GOLD, Features
from polyseme.heads.word_inputs import WordInputs, WordNumbers
from polyseme.tasks.encoder_rows import TaskRow, Text
from polyseme.tasks.items import Item
from polyseme.transfer.stacked_inputs import InputVectors

CHUNK_BATCHES = 50
"""Batches' worth of units that are sorted by length together, at most; fewer where there are few."""


@dataclass
class ReadRows:
    """What one call of the encoder reads, and what is taken from its states."""

    pieces: Tensor
    lengths: Tensor | None
    segments: Tensor | None
    whole: Tensor
    """[R]: the place of the piece that may stand for the whole row."""
    begins: Tensor
    """[R, W]: where each word begins among the pieces of all rows laid flat; 0 where there is none."""
    ends: Tensor
    mask: Tensor
    """[R, W]"""

    def to(self, device: torch.device) -> ReadRows:
        moved: dict[str, Any] = {name: _move(each, device) for name, each in vars(self).items()}
        return ReadRows(**moved)


@dataclass
class TaskBatch:
    """Units, ready for a task model: rows to be read, or the features themselves, and the gold."""

    rows: ReadRows | None = None
    second: ReadRows | None = None
    features: Features | None = None
    """Frozen vectors, with an axis of layers where they are still to be mixed."""
    words: WordNumbers | None = None
    """The words themselves, for inputs that are learned with the head."""
    second_words: WordNumbers | None = None
    stacked: InputVectors | None = None
    """The vectors of frozen inputs."""
    second_stacked: InputVectors | None = None
    marks: Tensor | None = None
    second_marks: Tensor | None = None
    groups: Tensor | None = None
    gold: Tensor | None = None
    n_pieces: int = 0
    """Real pieces that the encoder reads."""

    def to(self, device: torch.device) -> TaskBatch:
        moved = {name: each.to(device) for name, each in vars(self).items() if hasattr(each, "to")}
        return replace(self, **moved)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in a fixed order."""
        for each in vars(self).values():
            if isinstance(each, Tensor):
                yield each
            elif isinstance(each, ReadRows) or hasattr(each, "mask"):
                yield from (part for part in vars(each).values() if isinstance(part, Tensor))


@dataclass(frozen=True)
class Unit:
    """What stays together in a batch."""

    rows: tuple[TaskRow, ...]
    item: Item
    gold: NDArray[Any] | None = None

    @property
    def n_pieces(self) -> int:
        return sum(len(row) for row in self.rows)


class Source(Protocol):
    """Where batches come from."""

    units: Sequence[Unit]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How long each unit's longest row is: in pieces, or in words where vectors are there already."""

    def batch(self, numbers: Sequence[int], longest: int | None = None) -> TaskBatch:
        """The units of these numbers; rows at least `longest` long, where that is given."""


class StackedSource(Protocol):
    """Where the vectors of frozen inputs come from."""

    def vectors(
        self, rows: Sequence[tuple[Unit, TaskRow]], longest: int | None
    ) -> tuple[InputVectors, InputVectors | None]:
        """Those of the words of these rows, and of their second texts where they have any."""


class RowSource:
    """Units that the encoder reads in every step."""

    def __init__(
        self,
        units: Sequence[Unit],
        *,
        tags: bool = False,
        with_marks: bool = False,
        inputs: WordInputs | None = None,
        stacked: StackedSource | None = None,
    ) -> None:
        self.units = units
        self.tags = tags
        """Whether the gold is one number per word."""
        self.with_marks = with_marks
        self.inputs = inputs
        self.stacked = stacked
        self.lengths: NDArray[np.int64] = np.array(
            [max(max(len(row.text), len(row.second or ())) for row in unit.rows) for unit in units], dtype=np.int64
        )

    def batch(self, numbers: Sequence[int], longest: int | None = None) -> TaskBatch:
        units = [self.units[number] for number in numbers]
        rows = [row for unit in units for row in unit.rows]
        seconds = [row.second for row in rows if row.second is not None]
        batch = TaskBatch(
            rows=read_rows([row.text for row in rows], longest),
            second=read_rows(seconds, longest) if seconds else None,
            n_pieces=sum(map(len, rows)),
            **beside(units, with_marks=self.with_marks, inputs=self.inputs, stacked=self.stacked, longest=longest),
        )
        return batch if longest is None else widened(batch, tags=self.tags)


def read_rows(texts: Sequence[Text], longest: int | None = None) -> ReadRows:
    """Rows padded side by side, with the places of their words."""
    padded = PaddedRows.of(texts, longest)
    n_pieces = padded.ids.shape[1]
    most = max((len(text.words) for text in texts), default=0)
    if longest is not None and most:
        most = max(most, longest)  # one number of words for each length of rows
    places = np.zeros((2, len(texts), most), dtype=np.int64)
    mask = np.zeros((len(texts), most), dtype=np.bool_)
    for number, text in enumerate(texts):
        places[:, number, : len(text.words)] = text.words.T + number * n_pieces
        mask[number, : len(text.words)] = True
    full = longest is None and bool((padded.lengths == n_pieces).all())
    return ReadRows(
        pieces=torch.from_numpy(padded.ids),
        lengths=None if full else torch.from_numpy(padded.lengths),
        segments=torch.from_numpy(padded.segments) if padded.segments.any() else None,
        whole=torch.tensor([text.whole for text in texts], dtype=torch.long),
        begins=torch.from_numpy(places[0]),
        ends=torch.from_numpy(places[1]),
        mask=torch.from_numpy(mask),
    )


def beside(
    units: Sequence[Unit],
    *,
    with_marks: bool = False,
    inputs: WordInputs | None = None,
    stacked: StackedSource | None = None,
    longest: int | None = None,
) -> dict[str, Any]:
    """What goes with the rows of these units: gold, marks, groups, words, and vectors of frozen inputs."""
    rows = [(unit, row) for unit in units for row in unit.rows]
    golds = [unit.gold for unit in units if unit.gold is not None]
    tensors: dict[str, Any] = {}
    if golds:
        tensors["gold"] = torch.from_numpy(_pad(golds, NO_GOLD))
    if with_marks:
        tensors["marks"] = torch.from_numpy(_pad([_marks(unit.item, row) for unit, row in rows], 0))
        seconds = [_second_marks(unit.item, row) for unit, row in rows if row.second is not None]
        if seconds:
            tensors["second_marks"] = torch.from_numpy(_pad(seconds, 0))
    if any(unit.item.choices or len(unit.rows) > 1 for unit in units):
        groups = [number for number, unit in enumerate(units) for _ in unit.rows]
        tensors["groups"] = torch.tensor(groups, dtype=torch.long)
    if inputs is not None:
        tensors["words"] = inputs.read([row.strings for _, row in rows], longest)
        if any(row.second is not None for _, row in rows):
            tensors["second_words"] = inputs.read([row.second_strings for _, row in rows], longest)
    if stacked is not None:
        tensors["stacked"], tensors["second_stacked"] = stacked.vectors(rows, longest)
    return tensors


def order(lengths: NDArray[np.int64], batch: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The batches of an epoch: all units once, shuffled, those of like length together within a stretch of batches.

    A function of its arguments alone, so that resuming needs nothing but a step's number.
    """
    rng = np.random.default_rng((0x7A51, seed, epoch))
    shuffled = rng.permutation(len(lengths))
    per_chunk = batch * max(1, min(CHUNK_BATCHES, len(lengths) // (4 * batch)))
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(shuffled), per_chunk):
        chunk = shuffled[start : start + per_chunk]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        # the batch that is not full takes the shortest, so that the long ones are not padded for
        spare = len(chunk) % batch
        cuts = [*([spare] if spare else []), *range(spare + batch, len(chunk), batch)]
        batches += [each for each in np.split(chunk, cuts) if len(each)]
    return [batches[place] for place in rng.permutation(len(batches))]


def by_length(lengths: NDArray[np.int64], budget: int, most: int = 1024) -> list[NDArray[np.int64]]:
    """All units once, by length, as many together as a budget of padded pieces takes: how predictions are made."""
    sorted_ = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(sorted_):
        n = int(max(1, min(most, budget // max(int(lengths[sorted_[start]]), 1))))
        batches.append(sorted_[start : start + n])
        start += n
    return batches


def _marks(item: Item, row: TaskRow) -> NDArray[np.int64]:
    marks = row.marks or item.marks[row.first_word : row.first_word + row.n_words] or (0,) * row.n_words
    return np.array(marks, dtype=np.int64)


def _second_marks(item: Item, row: TaskRow) -> NDArray[np.int64]:
    n_words = 0 if row.second is None else len(row.second.words)
    return np.array(row.second_marks or item.second_marks or (0,) * n_words, dtype=np.int64)


def _pad(arrays: Sequence[NDArray[Any]], filling: int) -> NDArray[Any]:
    """Stacked; those of words padded on the right."""
    if arrays[0].ndim == 0 or all(each.shape == arrays[0].shape for each in arrays):
        return np.stack(arrays)
    room = np.full((len(arrays), max(map(len, arrays))), filling, dtype=arrays[0].dtype)
    for number, each in enumerate(arrays):
        room[number, : len(each)] = each
    return room


def widened(batch: TaskBatch, *, tags: bool) -> TaskBatch:
    """Marks, and gold that is one number per word (`tags`), padded to as many words as the rows have room for."""
    of_words = (batch.rows, batch.features, batch.words, batch.stacked)
    n_words = max(each.mask.shape[1] for each in of_words if each is not None)
    fillings = {"marks": (0, n_words), **({"gold": (NO_GOLD, n_words)} if tags else {})}
    if batch.second_marks is not None:
        seconds = [batch.second, batch.second_words, batch.second_stacked]
        masks = [each.mask for each in seconds if each is not None]
        if batch.features is not None and batch.features.second_mask is not None:
            masks.append(batch.features.second_mask)
        fillings["second_marks"] = (0, max(mask.shape[1] for mask in masks))
    for name, (filling, width) in fillings.items():
        tensor = getattr(batch, name)
        if tensor is not None:
            setattr(batch, name, F.pad(tensor, (0, width - tensor.shape[1]), value=filling))
    return batch


def _move(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device, non_blocking=True)
