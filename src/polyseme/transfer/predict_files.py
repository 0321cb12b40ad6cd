"""`predict` over files: what a task model says of every text, in their order and in bounded memory.

Texts go in chunks (`files.chunks`), and batches never cross one. Work that was stopped is gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.cost import Cost, peak_memory
from polyseme.files.atomic import AnyPath
from polyseme.files.chunked_job import Chunk, Chunks, Work, write_chunks
from polyseme.files.row_reader import read_rows
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.files.source_paths import Sources
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.items import Item
from polyseme.tasks.kind import Prediction
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.predict_columns import Columns, is_squad, read_questions
from polyseme.transfer.prediction_files import writer_for
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.train_step import autocast
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
        judgments = judge(self.model, prepared, autocast=autocast(self.model.device, bf16=self.bf16))
        config = self.model.head.config
        self.tally.texts += len(items)
        read = self._words_read - before
        self.tally.words += read or sum(unit.rows[0].n_words for unit in prepared.source.units)
        self.tally.pieces += prepared.n_pieces
        self.tally.flops += self.model.forward_flops(prepared.row_lengths)
        kind = KINDS[config.kind]
        return [kind.prediction(config, item, each) for item, each in zip(items, judgments, strict=True)]

    def in_chunks(self, items: Sequence[Item], told: Progress | None = None) -> list[Prediction]:
        """The same in bounded memory, told how many are done."""
        tell = told or _nobody
        found: list[Prediction] = []
        tell(0, len(items))
        for start in range(0, len(items), CHUNK_TEXTS):
            found += self(items[start : start + CHUNK_TEXTS])
            tell(len(found), len(items))
        return found

    @property
    def _words_read(self) -> int:
        return 0 if self.model.row_maker is None else self.model.row_maker.tally.words

    def notes(self) -> list[str]:
        """What was not read as it stands."""
        maker = self.model.row_maker
        return [] if maker is None else maker.tally.notes(maker.max_pieces)

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
    kept = tuple(reading.get("fields", ()))
    told = progress or _nobody

    def make(chunk: Chunk[Item]) -> list[dict[str, Any]]:
        return [each.to_json() for each in predictor(chunk.units)]

    def write(path: Path, made: Iterable[list[dict[str, Any]]]) -> None:
        with writer_for(path, config, fields=kept, name=Path(output or path).name) as writer:
            for records in made:
                writer.write([Prediction.from_json(each) for each in records])

    with _rows(config, sources, reading, columns) as rows:
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


def _rows(config: HeadConfig, sources: Sources, reading: Mapping[str, Any], columns: Columns) -> Reading[Row]:
    """What is read; the columns are checked first."""
    columns.check(config)
    asked = {**reading, "field": columns.field, "fields": columns.fields(tuple(reading.get("fields", ())))}
    return (read_questions if is_squad(config.kind, sources, reading.get("format")) else read_rows)(sources, **asked)


def _given(item: Item) -> list[Any]:
    return [item.id, item.text, item.words, item.second, item.choices, item.marks, dict(item.fields)]


def _nobody(done: int, total: int | None) -> None:
    """No one is told."""
