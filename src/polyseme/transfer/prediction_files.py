"""What is said of one text, as a record; and the files that hold such records: .jsonl, .tsv, .parquet, .conll."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from polyseme.errors import OptionError, PolysemeWarning
from polyseme.extras import later
from polyseme.files.reading_options import ALL
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.encoder_rows import document_of
from polyseme.tasks.items import Item
from polyseme.transfer.gold import Judged

N_SPANS = 5
"""Answers besides the best that a record holds, at most."""
ENDINGS = (".jsonl", ".tsv", ".parquet", ".conll")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says of one text."""

    id: str
    text: str
    second: str | None = None
    label: Any = None
    """A label, a number, a list of labels, a tag a word, an answer (empty: none), or a choice's number from 0 on."""
    probability: Any = None
    """Of the label; of each word's tag; of the answer. None of numbers."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Of every label, or of every choice."""
    words: tuple[str, ...] = ()
    """In tagging."""
    answers: tuple[Mapping[str, Any], ...] = ()
    """The best answers, with their places in the text."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Prediction:
        given = dict(content)
        given["words"], given["answers"] = tuple(given["words"]), tuple(given["answers"])
        return cls(**given)

    def record(self, kind: str) -> dict[str, Any]:
        """What is written of it: nothing that its task does not have."""
        found: dict[str, Any] = {"id": self.id}
        if kind == "tag":
            found |= {"words": list(self.words), "tags": list(self.label), "probabilities": self.probability}
        else:
            found |= {"text": self.text}
            if self.second is not None:
                found["second"] = self.second
            found["label"] = list(self.label) if isinstance(self.label, tuple) else self.label
            if self.probability is not None:
                found["probability"] = self.probability
            if self.probabilities:
                found["probabilities"] = dict(self.probabilities)
            if kind == "span":
                found["answers"] = [dict(each) for each in self.answers]
        if self.fields:
            found["fields"] = dict(self.fields)
        return found


def prediction_of(config: HeadConfig, item: Item, judged: Judged) -> Prediction:
    """What was said of an item, as a record."""
    common: dict[str, Any] = {"id": item.id, "text": item.text, "second": item.second, "fields": dict(item.fields)}
    if config.kind == "tag":
        words = item.words or tuple(map(str, document_of(item).words))
        numbers = [config.labels.index(tag) for tag in judged.answer]
        shares = [float(share[number]) for number, share in zip(numbers, judged.probabilities, strict=True)]
        return Prediction(label=tuple(judged.answer), words=words, probability=shares, **common)
    if config.kind == "span":
        answers = tuple(
            {"text": text, "start": start, "end": end, "probability": float(share)}
            for start, end, text, share in judged.spans[: 1 + N_SPANS]
        )
        none = judged.probabilities[-1] if config.no_answer and judged.probabilities else None
        share = none if not judged.answer else judged.spans[0][3]
        return Prediction(label=judged.answer, probability=share, answers=answers, **common)
    if config.kind == "choose":
        by_choice = {str(number): float(share) for number, share in enumerate(judged.probabilities)}
        return Prediction(
            label=judged.answer, probability=judged.probabilities[judged.answer], probabilities=by_choice, **common
        )
    if config.regression:
        return Prediction(label=judged.answer, **common)
    by_label = dict(zip(config.labels, map(float, judged.probabilities), strict=True))
    if config.multi:
        return Prediction(label=tuple(judged.answer), probabilities=by_label, **common)
    return Prediction(label=judged.answer, probability=by_label[judged.answer], probabilities=by_label, **common)


# --- files ------------------------------------------------------------------------------------------------------------


class Writer(Protocol):
    """Takes predictions, some at a time."""

    def write(self, predictions: Sequence[Prediction]) -> None: ...


def check_predictions_output(output: Any, config: HeadConfig) -> None:
    """Refuse a name whose ending says nothing, or a format that the task has no use for."""
    suffix = Path(output).suffix.lower()
    if suffix not in ENDINGS:
        raise OptionError(f"{output}: predictions are written as {', '.join(ENDINGS)}. End the name in one of these.")
    if suffix == ".conll" and config.kind != "tag":
        raise OptionError(
            f"{output}: .conll holds a tag a word, and this model is for task {config.kind!r}. Take .jsonl."
        )


@contextmanager
def writer_for(path: Path, config: HeadConfig, *, fields: Sequence[str] = (), name: str = "") -> Iterator[Writer]:
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
        self.kind = config.kind

    def lines(self, prediction: Prediction) -> list[str]:
        return [json.dumps(prediction.record(self.kind), ensure_ascii=False, default=str)]

    def notes(self, name: str) -> list[str]:
        return []


class _Conll:
    """A word a line; the id and the fields, where some are asked for, are comments before the sentence."""

    def __init__(self, config: HeadConfig, fields: tuple[str, ...]) -> None:
        self.fields = fields
        self.n_empty = 0

    def lines(self, prediction: Prediction) -> list[str]:
        if not prediction.words:  # the format has none, and a blank line more would be no sentence either
            self.n_empty += 1
            return []
        kept = {"id": prediction.id, **prediction.fields} if self.fields else {}
        comments = [f"# {_plain(name)} = {_cell(value)}".rstrip() for name, value in kept.items()]
        rows = zip(prediction.words, prediction.label, strict=True)
        return [*comments, *(f"{_plain(word)}\t{_plain(tag)}" for word, tag in rows), ""]

    def notes(self, name: str) -> list[str]:
        if not self.n_empty:
            return []
        texts = "1 empty text has" if self.n_empty == 1 else f"{self.n_empty:,} empty texts have"
        return [
            f"{texts} no sentence in {name}: a sentence of CoNLL has words. Where all are to be counted, take .jsonl."
        ]


class _Tab:
    """A line a text, or a word in tagging; tabs and line breaks within a text become blanks.

    Fields come last, a column each, by their names; where such a name is taken already, as `fields.label`. Of all
    fields those of the first text have a column.
    """

    def __init__(self, config: HeadConfig, fields: tuple[str, ...]) -> None:
        self.kind = config.kind
        self.labels = () if config.kind in ("tag", "span", "choose") else config.labels
        self.fields: tuple[str, ...] | None = None if fields == (ALL,) else fields
        self.left_out: dict[str, None] = {}
        self._begun = False

    def lines(self, prediction: Prediction) -> list[str]:
        if self.fields is None:
            self.fields = tuple(prediction.fields)
        self.left_out |= dict.fromkeys(name for name in prediction.fields if name not in self.fields)
        made = ["\t".join(self._header(self.fields))] if not self._begun else []
        self._begun = True
        kept = [prediction.fields.get(name) for name in self.fields]
        return [*made, *("\t".join(cells) for cells in self._rows(prediction, kept))]

    def _header(self, fields: Sequence[str]) -> list[str]:
        if self.kind == "tag":
            names = ["id", "number", "word", "tag", "probability"]
        else:
            second = ["second"] if self._has_second else []
            shares = [f"p({_plain(each)})" for each in self.labels]
            names = ["id", "text", *second, "label", "probability", *shares]
        return [*names, *(f"fields.{_plain(name)}" if name in names else _plain(name) for name in fields)]

    @property
    def _has_second(self) -> bool:
        return self.kind in ("pair", "span")

    def _rows(self, prediction: Prediction, kept: Sequence[Any]) -> Iterator[list[str]]:
        if self.kind == "tag":
            rows = zip(prediction.words, prediction.label, prediction.probability, strict=True)
            for at, (word, tag, share) in enumerate(rows):
                own = [_of_word(value, at, len(prediction.words)) for value in kept]
                cells = [_plain(prediction.id), str(at + 1), _plain(word), _plain(tag), f"{share:.6g}"]
                yield [*cells, *map(_cell, own)]
            return
        label = ", ".join(prediction.label) if isinstance(prediction.label, list | tuple) else prediction.label
        share = "" if prediction.probability is None else f"{prediction.probability:.6g}"
        shares = [f"{prediction.probabilities[each]:.6g}" for each in self.labels]
        second = [_plain(prediction.second or "")] if self._has_second else []
        cells = [_plain(prediction.id), _plain(prediction.text), *second, _plain(str(label)), share, *shares]
        yield [*cells, *map(_cell, kept)]

    def notes(self, name: str) -> list[str]:
        if not self.left_out:
            return []
        listed = ", ".join(map(repr, list(self.left_out)[:5]))
        return [f"Fields that the first text lacks ({listed}) are left out of {name}. Name the fields, or take .jsonl."]


def _of_word(value: Any, at: int, n_words: int) -> Any:
    """What a field says of one word: its own part where there is one for each, else the whole."""
    return value[at] if isinstance(value, list) and len(value) == n_words else value


def _cell(value: Any) -> str:
    """A field's value on one line."""
    if value is None:
        return ""
    return _plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _plain(text: str) -> str:
    return " ".join(text.split()) if any(each in text for each in "\t\r\n") else text


@contextmanager
def _parquet(path: Path, config: HeadConfig) -> Iterator[Writer]:
    arrow, parquet = later("pyarrow"), later("pyarrow.parquet")
    schema = _schema(arrow, config)
    with parquet.ParquetWriter(path, schema) as file:
        yield _Table(file, arrow, schema, config)


class _Table:
    def __init__(self, file: Any, arrow: Any, schema: Any, config: HeadConfig) -> None:
        self.file = file
        self.arrow = arrow
        self.schema = schema
        self.config = config

    def write(self, predictions: Sequence[Prediction]) -> None:
        rows = []
        for each in predictions:
            row = each.record(self.config.kind)
            if "probabilities" in row and self.config.kind != "tag":
                row["probabilities"] = list(row["probabilities"].values())
            row["fields"] = json.dumps(row.get("fields", {}), ensure_ascii=False, default=str)
            rows.append({name: row.get(name) for name in self.schema.names})
        self.file.write_table(self.arrow.Table.from_pylist(rows, schema=self.schema))


def _schema(arrow: Any, config: HeadConfig) -> Any:
    text, floats = arrow.string(), arrow.list_(arrow.float64())
    strings = arrow.list_(text)
    if config.kind == "tag":
        columns = {"id": text, "words": strings, "tags": strings, "probabilities": floats}
    else:
        label = {"choose": arrow.int64()}.get(config.kind, text)
        label = arrow.float64() if config.regression else strings if config.multi else label
        columns = {"id": text, "text": text, "second": text, "label": label}
        columns |= {"probability": arrow.float64(), "probabilities": floats}
        if config.kind == "span":
            answer = {"text": text, "start": arrow.int64(), "end": arrow.int64(), "probability": arrow.float64()}
            columns["answers"] = arrow.list_(arrow.struct(answer))
    about = {"labels": json.dumps(list(config.labels))}
    return arrow.schema(list({**columns, "fields": text}.items()), metadata=about)
