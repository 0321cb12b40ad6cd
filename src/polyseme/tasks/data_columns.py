"""The columns of users' files that a task is made of, by name or, counted from 1, by number."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyseme.errors import InputError, OptionError
from polyseme.extras import optional
from polyseme.files.lines import lines_of
from polyseme.files.row_reader import ENDINGS
from polyseme.files.rows import no_field, shown
from polyseme.files.source import open_source, suffixes

Column = str | int

USUAL: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "classify": {"text": ("text", "sentence"), "label": ("label", "labels")},
    "pair": {
        "text": ("sentence1", "premise", "text1", "text_a"),
        "second": ("sentence2", "hypothesis", "text2", "text_b"),
        "label": ("label", "score"),
    },
    "tag": {"text": ("words", "tokens"), "label": ("tags", "ner_tags", "labels")},
    "span": {"text": ("context", "passage"), "second": ("question",), "label": ("answers", "answer")},
    "choose": {
        "text": ("question", "context", "text"),
        "choices": ("choices",),
        "label": ("answer", "answerKey", "label"),
    },
}
"""Of each kind of task, what its columns are called where nobody says it."""


@dataclass(frozen=True, kw_only=True)
class OwnColumns:
    """Which columns hold what."""

    text: Column | None = None
    second: Column | None = None
    label: Column | None = None
    choices: Sequence[Column] | Column | None = None
    """choose: a column for each choice, or one with a list of them."""
    start: Column | None = None
    """span: that of the character at which the answer starts."""
    marks: Column | None = None
    """tag: that of a number a word, as 1 at a predicate."""
    id: Column | None = None

    def of_choices(self) -> list[Column]:
        if self.choices is None:
            return []
        return [self.choices] if isinstance(self.choices, str | int) else list(self.choices)


def format_of(file: str, kind: str, format: str | None) -> str:
    """How a file is read: by the option, or by its ending. Tags come in lists or in CoNLL, a word a line."""
    ending = suffixes(file)[0]
    found = format or ENDINGS.get(ending, "json" if ending == ".json" else "text")
    if kind == "tag" and format is None and found in ("tsv", "text"):
        return "conll"
    if kind == "tag" and found not in ("conll", "conllu", "jsonl", "parquet"):
        raise OptionError(
            f"{file} is read as {found}, and tags come as CoNLL or CoNLL-U, a word a line, or as JSON lines or Parquet "
            "with a list of words and a list of tags. Say with --format (format=…) what it is."
        )
    if kind != "tag" and found in ("conll", "conllu", "text"):
        raise OptionError(
            f"{file} is read as {found}, and the data of {kind} comes as CSV, TSV, JSON lines or Parquet, with "
            "columns. Say with --format (format=…) what it is."
        )
    return found


def resolved(columns: OwnColumns, file: str, kind: str, format: str, delimiter: str | None) -> OwnColumns:
    """The columns by name: those that were numbered, and the usual ones where none was said."""
    names = header_of(file, format, delimiter)

    def named(role: str, column: Column | None) -> str | None:
        if column is None:
            return _usual(role, names, file, kind) if role in USUAL[kind] else None
        found = column_in(names, column, kind, role)
        if found is None and isinstance(column, str) and not column.isdecimal():
            raise no_field(column, names, file)
        if found is None:
            raise OptionError(
                f"{file} has {len(names)} columns ({_listed(names)}), counted from 1. Got {column} for {role!r} "
                "instead."
            )
        return found

    roles = ("text", "second", "label", "start", "marks", "id")
    found: dict[str, Any] = {role: named(role, getattr(columns, role)) for role in roles}
    if kind == "choose":
        given = columns.of_choices()
        found["choices"] = [named("choices", each) for each in given] or [named("choices", None)]
    _refuse_doubled(found, file)
    return replace(columns, **found)


def column_in(names: Sequence[str], column: Column | None, kind: str, role: str) -> str | None:
    """The name of the column for a role among those of a file, as it was named, numbered or is usual; None: not there.

    >>> column_in(["number", "review"], 2, "classify", "text")
    'review'
    """
    if column is None:
        return next((name for name in USUAL[kind].get(role, ()) if name in names), None)
    if isinstance(column, str) and (column in names or not column.isdecimal()):
        return column if _is_there(column, names) else None
    return names[int(column) - 1] if 1 <= int(column) <= len(names) else None


def _usual(role: str, names: Sequence[str], file: str, kind: str) -> str:
    found = column_in(names, None, kind, role)
    if found is not None:
        return found
    raise OptionError(
        f"Which column of {file} is the {role} of {kind}? Say so with the option {role!r}. There are: {_listed(names)}."
    )


def _is_there(column: str, names: Sequence[str]) -> bool:
    return column in names or column.partition(".")[0] in names


def _refuse_doubled(found: Mapping[str, Any], file: str) -> None:
    taken: dict[str, str] = {}
    for role in ("text", "second", "label"):
        column = found.get(role)
        if column is not None and column in taken:
            raise OptionError(f"The column {column!r} of {file} is both {taken[column]!r} and {role!r}.")
        if column is not None:
            taken[column] = role


def header_of(file: str, format: str, delimiter: str | None) -> list[str]:
    """The names of the columns of a file."""
    if format == "parquet":
        parquet: Any = optional("pyarrow.parquet")
        try:
            return list(parquet.read_schema(file).names)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is no Parquet file, or was cut short: {shown(str(error))}.") from error
    source = open_source(file)
    try:
        line = next((line for line in lines_of(source) if line.text.strip()), None)
    finally:
        source.close()
    if line is None:
        raise InputError(f"{file} is empty: there is nothing to read.")
    if format == "jsonl":
        return _keys(line.text, f"{file}, line {line.number}")
    return next(csv.reader([line.text], delimiter=delimiter or ("," if format == "csv" else "\t")))


def _keys(text: str, place: str) -> list[str]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{place}: this is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InputError(f"{place}: a line must be an object with fields, of which one is the text and one the label.")
    return list(value)


def _listed(names: Sequence[str]) -> str:
    more = ", …" if len(names) > 20 else ""
    return ", ".join(shown(name) for name in names[:20]) + more
