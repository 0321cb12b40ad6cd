"""`predict` over files: what a task model says of every text, in their order and in bounded memory.

The job is `files.chunked_job`'s: batches never cross a chunk, and work that was stopped is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.cost import Cost, Tally
from polyseme.files.atomic import AnyPath, explained, whole_file
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import Job, Writer, every, results_of, run_job
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
        self.tally.documents += len(items)
        read = self._words_read - before
        self.tally.words += read or sum(unit.rows[0].n_words for unit in prepared.source.units)
        self.tally.pieces += prepared.n_pieces
        self.tally.flops += self.model.forward_flops(prepared.row_lengths)
        kind = KINDS[config.kind]
        return [kind.prediction(config, item, each) for item, each in zip(items, judgments, strict=True)]

    def in_chunks(self, items: Sequence[Item], progress: Progress | None = None) -> list[Prediction]:
        """The same in bounded memory, told how many are done."""
        tell = progress or _nobody
        predictions: list[Prediction] = []
        tell(0, len(items))
        for start in range(0, len(items), CHUNK_TEXTS):
            predictions += self(items[start : start + CHUNK_TEXTS])
            tell(len(predictions), len(items))
        return predictions

    @property
    def _words_read(self) -> int:
        return 0 if self.model.row_maker is None else self.model.row_maker.tally.words

    def notes(self) -> list[str]:
        """What was not read as it stands."""
        maker = self.model.row_maker
        return [] if maker is None else maker.tally.notes(maker.max_pieces)

    def cost(self, seconds: float) -> Cost:
        return self.tally.cost(seconds, self.model.device)


class _Stored(JsonLines):
    def save(self, path: Path, results: Sequence[Prediction]) -> dict[str, Any]:
        return super().save(path, [each.to_json() for each in results])

    def load(self, path: Path) -> Iterator[Prediction]:
        return map(Prediction.from_json, super().load(path))


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
) -> list[Prediction]:
    """Predict for every text of some files; the predictions are returned where there is no output."""
    config = predictor.model.head.config
    fields = tuple(reading.get("fields", ()))

    @contextmanager
    def open_output(path: AnyPath, force: bool, from_storage: bool) -> Iterator[Writer[Prediction]]:
        with (
            whole_file(path, force=force) as made,
            explained(path),
            writer_for(made, config, fields=fields, name=Path(output or path).name) as writer,
        ):
            yield writer

    job = Job(
        noun="texts",
        ends_chunk=every(CHUNK_TEXTS),
        prepare=lambda rows: [columns.item(row, fields) for row in rows],
        compute=lambda chunk, on_batch: predictor(chunk.units),
        tally=predictor.tally,
        open_output=open_output,
        storage=_Stored(),
        settings=settings,
    )
    with _rows(config, sources, reading, columns) as rows:
        if output is None:
            return [each for chunk in results_of(job, rows, progress) for each in chunk]
        run_job(job, rows, output, force=force, progress=progress)
        return []


def _rows(config: HeadConfig, sources: Sources, reading: Mapping[str, Any], columns: Columns) -> Reading[Row]:
    """What is read; the columns are checked first."""
    columns.check(config)
    options = {**reading, "field": columns.field, "fields": columns.fields(tuple(reading.get("fields", ())))}
    return (read_questions if is_squad(config.kind, sources, reading.get("format")) else read_rows)(sources, **options)


def _nobody(done: int, total: int | None) -> None:
    """No one is told."""
