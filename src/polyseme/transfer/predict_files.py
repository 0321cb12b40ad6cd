"""`predict` over files: what a task model says of every text, in their order and in bounded memory.

The job is `files.chunked_job`'s: batches never cross a chunk, and work that was stopped is resumed. Predictions are
written as .jsonl, .tsv or .parquet, and tags as .conll, too.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from polyseme.cost import Cost, Tally
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.extras import later
from polyseme.files.atomic import AnyPath, explained, whole_file
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import results_of, run_job
from polyseme.files.chunks import Job, Workers, Writer, every
from polyseme.files.field_names import ColumnNames
from polyseme.files.reading_options import ALL
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import Reading
from polyseme.files.source_paths import Sources
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.encoder_rows import RowTally
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.predictions import Judgment, Prediction
from polyseme.transfer.predict_columns import Columns, is_squad, read_questions
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.train_step import autocast
from polyseme.types import Progress

CHUNK_TEXTS = 256
"""Texts that are kept, or lost, together."""


@dataclass
class Predictor:
    """A task model, or several that answer together, as a function of items; it keeps a tally of all of them."""

    model: TaskModel
    others: Sequence[TaskModel] = ()
    """Models that answer together with the first (`Kind.joined`)."""
    bf16: bool = False
    card: Mapping[str, Any] = field(default_factory=dict)
    """What the folder of the first model says of its task (`task_card`)."""
    tally: Tally = field(default_factory=Tally)

    def __call__(self, items: Sequence[Item]) -> list[Prediction]:
        """What the model says of each, in their order."""
        if not items:
            return []
        before = self._words_read
        config = self.model.head.config
        kind = KINDS[config.kind]
        self.tally.documents += len(items)
        by_model: list[list[Judgment]] = []
        for model in (self.model, *self.others):
            read = _counts_of(model)
            prepared = prepare(model, items, learning=False)
            by_model.append(judge(model, prepared, autocast=autocast(model.device, bf16=self.bf16)))
            if model is self.model:
                self.tally.words += (self._words_read - before) or prepared.n_words
            self.tally.pieces += prepared.n_pieces
            self.tally.flops += prepared.forward_flops(model)
            for name, count in _counts_of(model).items():
                key = f"{len(by_model)} {name}"
                self.tally.sums[key] = self.tally.sums.get(key, 0.0) + count - read[name]
        judgments = by_model[0]
        if self.others:
            judgments = [kind.joined(config, each) for each in zip(*by_model, strict=True)]
        return [kind.prediction(config, item, each) for item, each in zip(items, judgments, strict=True)]

    def in_chunks(self, items: Sequence[Item], progress: Progress | None = None) -> list[Prediction]:
        """The same in bounded memory; `progress` is called with how many are done."""
        predictions: list[Prediction] = []
        for start in range(0, len(items), CHUNK_TEXTS):
            if progress is not None:
                progress(start, len(items))
            predictions += self(items[start : start + CHUNK_TEXTS])
        if progress is not None:
            progress(len(items), len(items))
        return predictions

    @property
    def _words_read(self) -> int:
        return 0 if self.model.row_maker is None else self.model.row_maker.tally.words

    def notes(self) -> list[str]:
        """Notes on what was cut or not known, by whichever process it was read."""
        notes: dict[str, None] = {}
        for number, model in enumerate((self.model, *self.others), start=1):
            counts = {name: int(self.tally.sums.get(f"{number} {name}", 0)) for name in _counts_of(model)}
            if model.row_maker is not None:
                notes |= dict.fromkeys(RowTally(**counts).notes(model.row_maker.max_pieces))
        return list(notes)

    def cost(self, seconds: float) -> Cost:
        return self.tally.cost(seconds, self.model.device)


def _counts_of(model: TaskModel) -> dict[str, int]:
    """What a model has counted of the texts that it read."""
    return {} if model.row_maker is None else asdict(model.row_maker.tally)


class _Stored(JsonLines):
    def save(self, path: Path, results: Sequence[Prediction]) -> dict[str, Any]:
        return super().save(path, [each.to_json() for each in results])

    def load(self, path: Path) -> Iterator[Prediction]:
        return map(Prediction.from_json, super().load(path))


def predicting_job(
    predictor: Predictor,
    output: AnyPath | None,
    *,
    fields: Sequence[str],
    columns: Columns,
    settings: Callable[[], Mapping[str, Any]],
) -> Job[Item, Prediction]:
    """What is done with rows; `fields` are those to keep."""
    config = predictor.model.head.config
    fields = tuple(fields)

    @contextmanager
    def open_output(path: AnyPath, force: bool, from_storage: bool) -> Iterator[Writer[Prediction]]:
        with (
            whole_file(path, force=force) as unfinished,
            explained(path),
            writer_for(unfinished, config, fields=fields, name=Path(output or path).name) as writer,
        ):
            yield writer

    return Job(
        noun="texts",
        ends_chunk=every(CHUNK_TEXTS),
        prepare=lambda rows: [columns.item(row, fields, KINDS[config.kind]) for row in rows],
        compute=lambda chunk, on_batch: predictor(chunk.units),
        tally=predictor.tally,
        open_output=open_output,
        storage=_Stored(),
        settings=settings,
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
    workers: Workers | None = None,
) -> list[Prediction]:
    """Predict for every text of some files; the predictions are returned where there is no output."""
    config = predictor.model.head.config
    job = predicting_job(predictor, output, fields=reading.get("fields", ()), columns=columns, settings=settings)
    with rows_of_inputs(config, sources, reading, columns) as rows:
        if output is None:
            return [each for chunk in results_of(job, rows, progress) for each in chunk]
        run_job(job, rows, output, force=force, progress=progress, workers=workers)
        return []


def rows_of_inputs(config: HeadConfig, sources: Sources, reading: Mapping[str, Any], columns: Columns) -> Reading[Row]:
    """What is read; the columns are checked first."""
    columns.check(config)
    fields = tuple(reading.get("fields", ()))
    options = {**reading, "field": columns.field, "fields": columns.fields(fields)}
    read: Callable[..., Reading[Row]] = partial(read_rows, null_is_empty=True)
    if is_squad(config.kind, sources, reading.get("format")):
        read = read_questions
    return read(sources, **options).without_bad(lambda row: columns.item(row, fields, KINDS[config.kind]))


# --- files of predictions ---------------------------------------------------------------------------------------------


def check_predictions_output(output: Any, config: HeadConfig) -> None:
    """Refuse a name whose ending says nothing, or a format that the task has no use for."""
    suffix = Path(output).suffix.lower()
    endings = list(dict.fromkeys(ending for kind in KINDS.values() for ending in kind.endings))
    if suffix not in endings:
        raise OptionError(f"{output}: predictions are written as {', '.join(endings)}. End the name in one of these.")
    if suffix not in KINDS[config.kind].endings:
        raise OptionError(
            f"{output}: .conll holds one tag per word, and this model is for task {config.kind!r}. Take .jsonl."
        )


@contextmanager
def writer_for(
    path: Path, config: HeadConfig, *, fields: Sequence[str] = (), name: str = ""
) -> Iterator[Writer[Prediction]]:
    """A file of predictions, by its ending; `fields` are those to keep, `name` is what it is called in the end."""
    check_predictions_output(path, config)
    if path.suffix.lower() == ".parquet":
        with _parquet(path, config) as writer:
            yield writer
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        lines: Any = {".jsonl": _Json, ".tsv": _Tab, ".conll": _Conll}[path.suffix.lower()](config, tuple(fields))
        yield _Lines(file, lines)
        for note in lines.notes(name or path.name):
            warnings.warn(note, PolysemeWarning, stacklevel=2)


class _Lines:
    def __init__(self, file: Any, form: Any) -> None:
        self.file = file
        self.form = form

    def write(self, predictions: Sequence[Prediction]) -> None:
        for each in predictions:
            self.file.writelines(f"{line}\n" for line in self.form.lines(each))


class _Json:
    def __init__(self, config: HeadConfig, fields: tuple[str, ...]) -> None:
        """All are in the records."""

    def lines(self, prediction: Prediction) -> list[str]:
        return [json.dumps(prediction.record(), ensure_ascii=False, default=str)]

    def notes(self, name: str) -> list[str]:
        return []


class _Conll:
    """One word per line; the id and the fields, where fields are kept, are comments before the sentence."""

    def __init__(self, config: HeadConfig, fields: tuple[str, ...]) -> None:
        self.fields = fields
        self.n_empty = 0

    def lines(self, prediction: Prediction) -> list[str]:
        if not prediction.words:  # the format has none, and a blank line more would be no sentence either
            self.n_empty += 1
            return []
        values = {"id": prediction.id, **prediction.fields} if self.fields else {}
        comments = [f"# {_plain_cell(name)} = {_cell(value)}".rstrip() for name, value in values.items()]
        rows = zip(prediction.words, prediction.label, strict=True)
        return [*comments, *(f"{_plain_cell(word)}\t{_plain_cell(tag)}" for word, tag in rows), ""]

    def notes(self, name: str) -> list[str]:
        if not self.n_empty:
            return []
        texts = "1 empty text has" if self.n_empty == 1 else f"{self.n_empty:,} empty texts have"
        return [
            f"{texts} no sentence in {name}: a sentence of CoNLL has words. Where all are to be counted, take .jsonl."
        ]


class _Tab:
    """One line per text, or per word in tagging; tabs and line breaks within a text become blanks.

    Fields come last, one column each, by their names; where such a name is taken already, as `fields.label`. With
    "all", the fields of the first text have a column.
    """

    def __init__(self, config: HeadConfig, fields: tuple[str, ...]) -> None:
        self.config = config
        self.kind = KINDS[config.kind]
        self.fields: tuple[str, ...] | None = None if fields == (ALL,) else fields
        self.left_out: dict[str, None] = {}
        self._begun = False

    def lines(self, prediction: Prediction) -> list[str]:
        if self.fields is None:
            self.fields = tuple(prediction.fields)
        self.left_out |= dict.fromkeys(name for name in prediction.fields if name not in self.fields)
        header = ["\t".join(self._header(self.fields))] if not self._begun else []
        self._begun = True
        values = [prediction.fields.get(name) for name in self.fields]
        rows = self.kind.table_rows(self.config, prediction, values)
        return [*header, *("\t".join([*map(_plain_cell, cells), *map(_cell, own)]) for cells, own in rows)]

    def _header(self, fields: Sequence[str]) -> list[str]:
        names = [_plain_cell(name) for name in self.kind.table_header(self.config)]
        return [*names, *(f"fields.{_plain_cell(name)}" if name in names else _plain_cell(name) for name in fields)]

    def notes(self, name: str) -> list[str]:
        if not self.left_out:
            return []
        listed = ", ".join(map(repr, list(self.left_out)[:5]))
        return [f"Fields that the first text lacks ({listed}) are left out of {name}. Name the fields, or take .jsonl."]


def _cell(value: Any) -> str:
    """A field's value on one line."""
    if value is None:
        return ""
    return _plain_cell(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _plain_cell(text: str) -> str:
    return " ".join(text.split()) if any(each in text for each in "\t\r\n") else text


@contextmanager
def _parquet(path: Path, config: HeadConfig) -> Iterator[Writer[Prediction]]:
    table = _Table(path, config)
    try:
        yield table
        table.close()
    except BaseException:
        table.close()
        raise


class _Table:
    """Predictions as columns, and a column for each field, with its type."""

    def __init__(self, path: Path, config: HeadConfig) -> None:
        self._arrow, self._typed = later("pyarrow"), later("polyseme.files.typed_columns")
        self._path = path
        self._metadata = {"labels": json.dumps(list(config.labels))}
        self._own = KINDS[config.kind].arrow_columns(self._arrow, config)
        self._names = ColumnNames(self._own)
        self._fields = self._typed.TypedColumns()
        self._file = self._open(path, self._schema())

    def write(self, predictions: Sequence[Prediction]) -> None:
        fields = [self._columns(each.fields) for each in predictions]
        self._fields.observe(fields)
        schema = self._schema()
        if schema != self._file.schema:
            self._file = self._typed.rewritten(self._path, self._file, schema, self._fields, self._open)
        own = [self._record(each) for each in predictions]
        arrays = [self._arrow.array([row.get(name) for row in own], kind) for name, kind in self._own.items()]
        beside = self._fields.arrays(fields)
        self._file.write_table(self._arrow.table([*arrays, *beside.values()], schema=schema))

    def close(self) -> None:
        self._file.close()

    def _columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        columns = self._names.of(fields)
        return {columns[name]: value for name, value in fields.items()}

    def _record(self, prediction: Prediction) -> dict[str, Any]:
        row = prediction.record()
        if isinstance(row.get("probabilities"), dict):
            row["probabilities"] = list(row["probabilities"].values())
        return row

    def _schema(self) -> Any:
        return self._arrow.schema([*self._own.items(), *self._fields.types.items()], metadata=self._metadata)

    def _open(self, path: Path, schema: Any) -> Any:
        return later("pyarrow.parquet").ParquetWriter(path, schema)
