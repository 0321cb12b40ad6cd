"""`predict` over files: what a task model says of every text, in their order and in bounded memory.

Texts go in chunks (`files.chunks`), and batches never cross one. Work that was stopped is gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.cost import Cost, peak_memory
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import AnyPath
from polyseme.files.chunks import Chunk, Chunks, Work, write_chunks
from polyseme.files.found import Sources
from polyseme.files.read import read_rows
from polyseme.files.rows import Row
from polyseme.tasks.items import Item
from polyseme.transfer.predictions import Prediction, prediction_of, writer_for
from polyseme.transfer.preparing import judge, prepare
from polyseme.transfer.steps import autocast
from polyseme.transfer.task_model import TaskModel
from polyseme.types import Progress

CHUNK_TEXTS = 256
"""Texts that are kept, or lost, together."""


@dataclass
class Tally:
    """What went through so far."""

    texts: int = 0
    words: int = 0
    pieces: int = 0
    flops: float = 0.0


@dataclass
class Predictor:
    """Items to predictions, as often as wanted; it keeps a tally of all of them."""

    model: TaskModel
    bf16: bool = False
    tally: Tally = field(default_factory=Tally)

    def __call__(self, items: Sequence[Item]) -> list[Prediction]:
        """What the model says of each, in their order."""
        if not items:
            return []
        before = self._words_read
        prepared = prepare(self.model, items, learning=False)
        judged = judge(self.model, prepared, autocast=autocast(self.model.device, bf16=self.bf16))
        config = self.model.head.config
        self.tally.texts += len(items)
        read = self._words_read - before
        self.tally.words += read or sum(unit.rows[0].n_words for unit in prepared.source.units)
        self.tally.pieces += prepared.n_pieces
        self.tally.flops += self.model.forward_flops(prepared.row_lengths)
        return [prediction_of(config, item, each) for item, each in zip(items, judged, strict=True)]

    @property
    def _words_read(self) -> int:
        return 0 if self.model.row_maker is None else self.model.row_maker.tally.words

    def notes(self) -> list[str]:
        """What was not read as it stands."""
        maker = self.model.row_maker
        return [] if maker is None else maker.tally.notes(maker.most_pieces)

    def cost(self, seconds: float) -> Cost:
        return Cost(
            pieces=self.tally.pieces,
            words=self.tally.words,
            documents=self.tally.texts,
            seconds=seconds,
            flops=self.tally.flops,
            peak_memory=peak_memory(),
            device=str(self.model.device),
        )


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the parts of an item stand besides the text: names of fields."""

    second: str | None = None
    choices: tuple[str, ...] = ()

    def fields(self, kept: Sequence[str]) -> tuple[str, ...]:
        """The fields that must be read."""
        if tuple(kept) == ("all",):
            return ("all",)
        needed = (self.second, *self.choices)
        return tuple(dict.fromkeys([*kept, *(name for name in needed if name is not None)]))

    def check(self, kind: str) -> None:
        if kind in ("pair", "span") and self.second is None:
            what = "the second text" if kind == "pair" else "the question"
            raise OptionError(f"A model for task {kind!r} needs the field with {what}. Name it (second=…, --second).")
        if kind == "choose" and not self.choices:
            raise OptionError(
                "A model that chooses needs the fields with the choices. Name them (choices=…, --choices)."
            )
        if kind in ("classify", "tag") and (self.second is not None or self.choices):
            raise OptionError(f"A model for task {kind!r} reads one text: leave out 'second' and 'choices'.")

    def item(self, row: Row, kept: Sequence[str]) -> Item:
        """A row as an item."""
        place = str(row.place)
        given = isinstance(row.content, str)
        text = str(row.content) if given else " ".join(row.content)
        words = () if given else tuple(row.content)
        choices: list[str] = []
        for name in self.choices:
            value = row.fields[name]
            choices += list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
        if self.choices and len(choices) < 2:
            raise InputError(f"{place}: there must be two choices or more. Got {len(choices)}.")
        fields = dict(row.fields)
        if tuple(kept) != ("all",):
            fields = {name: value for name, value in fields.items() if name in kept}
        second = None if self.second is None else str(row.fields[self.second])
        return Item(
            text=text, words=words, second=second, choices=tuple(choices), id=row.id, place=place, fields=fields
        )


def predict_files(
    predictor: Predictor,
    sources: Sources,
    output: AnyPath | None,
    *,
    reading: Mapping[str, Any],
    columns: Columns,
    settings: Callable[[], Mapping[str, Any]],
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Prediction], float]:
    """Predict for every text of some files; what was found, where there is no output, and an earlier run's seconds."""
    config = predictor.model.head.config
    columns.check(config.kind)
    kept = tuple(reading.get("fields", ()))
    told = progress or _nobody

    def make(chunk: Chunk[Item]) -> list[dict[str, Any]]:
        return [each.to_json() for each in predictor(chunk.units)]

    def write(path: Path, made: Iterable[list[dict[str, Any]]]) -> None:
        with writer_for(path, config) as writer:
            for records in made:
                writer.write([Prediction.from_json(each) for each in records])

    with read_rows(sources, **{**reading, "fields": columns.fields(kept)}) as rows:
        told(0, rows.total)
        chunks = Chunks(rows, CHUNK_TEXTS, lambda row: columns.item(row, kept), what="texts")
        if output is not None:
            work = Work(make=make, write=write, given=_given, tally=predictor.tally)
            return [], write_chunks(chunks, work, output, settings=settings, force=force, told=told)
        found = []
        for chunk in chunks:
            found += predictor(chunk.units)
            told(chunk.read_until, rows.total)
        return found, 0.0


def _given(item: Item) -> list[Any]:
    return [item.id, item.text, item.words, item.second, item.choices, dict(item.fields)]


def _nobody(done: int, total: int | None) -> None:
    """No one is told."""
