"""Rows of users' files to items, by the kind of task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyseme.datasets.multiple_choice import answer_index
from polyseme.datasets.sequence_labeling import last_column
from polyseme.datasets.squad import found_answer
from polyseme.datasets.tab_separated import Said
from polyseme.errors import InputError
from polyseme.files.readers.conllu import COLUMNS as CONLLU_COLUMNS
from polyseme.files.reading_options import Quotes
from polyseme.files.row_reader import read_rows
from polyseme.files.rows import Place, Row, shown
from polyseme.tasks.data_columns import OwnColumns, resolved
from polyseme.tasks.items import Answer, Item

_NO_MARK = ("0", "_", "-", "O", "")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was asked of a user's files, besides the columns."""

    separator: str | None = None
    """What stands between several labels in one column."""
    first: int = 0
    """choose: the number of the first choice."""
    repair: bool = False
    quotes: Quotes = "double"
    delimiter: str | None = None


def own_items(file: str, kind: str, format: str, columns: OwnColumns, wanted: Wanted, said: Said) -> list[Item]:
    """The items of a file that has rows with columns."""
    if format in ("conll", "conllu"):
        return list(_sentences(file, format, columns))
    columns = resolved(columns, file, kind, format, wanted.delimiter)
    return [_ITEMS[kind](row, columns, wanted, said) for row in _rows(file, format, columns, wanted)]


def _rows(file: str, format: str, columns: OwnColumns, wanted: Wanted) -> Iterator[Row]:
    beside = [columns.second, columns.label, columns.start, columns.marks, *columns.of_choices()]
    reading: dict[str, Any] = {}
    if format in ("csv", "tsv"):
        reading = {"quotes": wanted.quotes, "delimiter": wanted.delimiter}
    with read_rows(
        file,
        format=format,
        field=None if columns.text is None else str(columns.text),
        id_field=None if columns.id is None else str(columns.id),
        fields=[str(name) for name in beside if name is not None],
        **reading,
    ) as rows:
        yield from rows


# --- labels and pairs ------------------------------------------------------------------------------------------------


def _labelled(row: Row, columns: OwnColumns, wanted: Wanted, said: Said) -> Item:
    second = (
        None if columns.second is None else text_of(row.fields[str(columns.second)], str(columns.second), row.place)
    )
    gold = _label(row.fields[str(columns.label)], columns, wanted, row.place)
    if isinstance(row.content, str):
        return Item(text=row.content, second=second, gold=gold, id=row.id, place=str(row.place))
    return Item.of_words(row.content, second=second, gold=gold, id=row.id, place=str(row.place))


def _label(value: Any, columns: OwnColumns, wanted: Wanted, place: Place) -> Any:
    if isinstance(value, list):
        return tuple(sorted({_one_label(each, columns, place) for each in value}))
    if wanted.separator is not None and (isinstance(value, str) or value is None):
        parts = (value or "").split(wanted.separator)
        return tuple(sorted({part.strip() for part in parts if part.strip()}))
    return _one_label(value, columns, place)


def _one_label(value: Any, columns: OwnColumns, place: Place) -> str:
    if (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    ):
        raise InputError(f"{place}: the label, in {columns.label!r}, is empty. Leave such rows out, or give them one.")
    if isinstance(value, Mapping | list):
        raise InputError(
            f"{place}: the label, in {columns.label!r}, must be a text or a number. Got {value!r} instead."
        )
    return str(value).strip()


def text_of(value: Any, name: str, place: Place) -> str:
    """A text beside the first: the second, or a choice."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    if not isinstance(value, str):
        raise InputError(f"{place}: {name!r} must be a text. Got {value!r} instead.")
    return value


# --- tags ------------------------------------------------------------------------------------------------------------


def _tagged(row: Row, columns: OwnColumns, wanted: Wanted, said: Said) -> Item:
    if isinstance(row.content, str):
        raise InputError(f"{row.place}: {columns.text!r} must be a list of words, of which each has a tag. Got a text.")
    marks = () if columns.marks is None else marks_of(row, row.fields[str(columns.marks)])
    return _of_tags(row, row.fields[str(columns.label)], marks)


def _of_tags(row: Row, tags: Any, marks: tuple[int, ...]) -> Item:
    words = tuple(str(word) for word in row.content)
    if not isinstance(tags, list) or not all(isinstance(tag, str | int) for tag in tags):
        raise InputError(
            f"{row.place}: the tags must be a list with one for each word. Got {shown(str(tags))!r} instead."
        )
    _check_length(row, "tags", tags)
    return Item.of_words(words, gold=tuple(map(str, tags)), marks=marks, id=row.id, place=str(row.place))


def _check_length(row: Row, what: str, given: Sequence[Any]) -> None:
    if len(given) != len(row.content):
        raise InputError(f"{row.place}: there are {len(row.content)} words and {len(given)} {what}.")


def marks_of(row: Row, values: Any) -> tuple[int, ...]:
    """The marks of a row's words: numbers as they are; of other things, whether there is one."""
    if isinstance(row.content, str):
        raise InputError(f"{row.place}: the text must be a list of words, of which each has a mark. Got a text.")
    if not isinstance(values, list):
        raise InputError(
            f"{row.place}: the marks must be a list with one for each word. Got {shown(str(values))!r} instead."
        )
    _check_length(row, "marks", values)
    return tuple(map(_mark, values))


def _mark(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return int(bool(value))
    return int(value) if str(value).isdecimal() else int(str(value) not in _NO_MARK)


def _sentences(file: str, format: str, columns: OwnColumns) -> Iterator[Item]:
    """CoNLL by the numbers of its columns, CoNLL-U by their names or numbers."""
    label, marks = columns.label, columns.marks
    if format == "conllu":
        label, marks = conllu_name("upos" if label is None else label), None if marks is None else conllu_name(marks)
    asked = "all" if label is None else [str(name) for name in (label, marks) if name is not None]
    with read_rows(
        file, format=format, field=None if columns.text is None else str(columns.text), fields=asked
    ) as rows:
        for row in rows:
            column = last_column(row, int(columns.text or 1)) if label is None else str(label)
            yield _of_tags(row, row.fields[column], () if marks is None else marks_of(row, row.fields[str(marks)]))


def conllu_name(column: str | int) -> str:
    """The name of a column of CoNLL-U that is named, or numbered."""
    spelled = str(column)
    if spelled.isdecimal() and 1 <= int(spelled) <= len(CONLLU_COLUMNS):
        return CONLLU_COLUMNS[int(spelled) - 1]
    return spelled.lower()


# --- answers and choices ---------------------------------------------------------------------------------------------


def _asked(row: Row, columns: OwnColumns, wanted: Wanted, said: Said) -> Item:
    passage = text_of(row.content, str(columns.text), row.place)
    start = None if columns.start is None else row.fields[str(columns.start)]
    gold = _answers(passage, row.fields[str(columns.label)], start, row.place, wanted, said)
    question = text_of(row.fields[str(columns.second)], str(columns.second), row.place)
    return Item(text=passage, second=question, gold=gold, id=row.id, place=str(row.place))


def _answers(passage: str, value: Any, start: Any, place: Place, wanted: Wanted, said: Said) -> tuple[Answer, ...]:
    """An answer, several, none (null, empty), or SQuAD's object with lists of texts and starts."""
    if isinstance(value, Mapping):
        texts, starts = value.get("text", []), value.get("answer_start", [])
    else:
        texts = value if isinstance(value, list) else [] if value in (None, "") else [value]
        starts = start if isinstance(start, list) else [start] * len(texts)
    texts, starts = (each if isinstance(each, list) else [each] for each in (texts, starts))
    starts = starts or [None] * len(texts)
    if len(texts) != len(starts):
        raise InputError(f"{place}: there are {len(texts)} answers and {len(starts)} places where they start.")
    return tuple(
        found_answer(passage, text, _whole_number(at, place), place, said, repair=wanted.repair)
        for text, at in zip(texts, starts, strict=True)
    )


def _whole_number(value: Any, place: Place) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InputError(f"{place}: where an answer starts must be a whole number. Got {value!r} instead.") from None


def _choosing(row: Row, columns: OwnColumns, wanted: Wanted, said: Said) -> Item:
    names = [str(name) for name in columns.of_choices()]
    values = [row.fields[name] for name in names]
    given = values[0] if len(names) == 1 and isinstance(values[0], list) else values
    choices = tuple(text_of(each, f"choice {number}", row.place) for number, each in enumerate(given, start=1))
    if len(choices) < 2:
        raise InputError(f"{row.place}: there must be two choices or more. Got {len(choices)}.")
    key = row.fields[str(columns.label)]
    if key in (None, ""):
        raise InputError(f"{row.place}: the answer, in {columns.label!r}, is empty.")
    return Item(
        text=text_of(row.content, str(columns.text), row.place),
        choices=choices,
        gold=answer_index(key, choices, row.place, first=wanted.first),
        id=row.id,
        place=str(row.place),
    )


_ITEMS: Mapping[str, Callable[[Row, OwnColumns, Wanted, Said], Item]] = {
    "classify": _labelled,
    "pair": _labelled,
    "tag": _tagged,
    "span": _asked,
    "choose": _choosing,
}


# --- numbers ---------------------------------------------------------------------------------------------------------


def look_like_scores(items: Sequence[Item]) -> bool:
    """Whether all labels are numbers and some are between whole ones, so that they are a scale and no classes."""
    try:
        numbers = [float(item.gold) for item in items]
    except (TypeError, ValueError):
        return False
    return all(map(math.isfinite, numbers)) and any(number != int(number) for number in numbers)


def with_scores(items: Sequence[Item]) -> list[Item]:
    """The items with numbers for gold."""
    return [replace(item, gold=_score(item)) for item in items]


def _score(item: Item) -> float:
    try:
        number = float(item.gold)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{item.place}: the score must be a number, for regression. Got {item.gold!r} instead.")
    return number
