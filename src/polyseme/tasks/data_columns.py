"""The columns of users' files that a task is read from, by name or, counted from 1, by number."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyseme.errors import InputError, OptionError
from polyseme.extras import optional
from polyseme.files.in_memory import InMemory
from polyseme.files.lines import lines_of
from polyseme.files.rows import Place, Row, excerpt, no_field, read_rows
from polyseme.files.source import open_source
from polyseme.files.source_paths import Sources
from polyseme.json_reading import parse_json
from polyseme.options import doc, option
from polyseme.text.tag_schemes import named_scheme
from polyseme.verb_options.task_options import Column, TaskDataOptions

UsualNames = Mapping[str, tuple[str, ...]]
"""Of each role of a column (text, second, label, choices) the names that it usually has, the likeliest first."""
DEV_SHARE = 0.1
"""The part of the training items that becomes dev where there is no dev."""


@dataclass(frozen=True, kw_only=True)
class DataOptions(TaskDataOptions):
    """How users' files are read: what `finetune` takes, and what only callers from Python need."""

    kind: str = dataclasses.field(
        kw_only=False, metadata=doc("Kind of the task: classify, pair, tag, span, choose, edge, edge-pair.")
    )
    files: Mapping[str, Sources] = dataclasses.field(
        kw_only=False,
        metadata=doc("File or table of each split (train, dev, test). Without dev, part of train becomes dev."),
    )
    id: Column | None = option(None, "Column with the id of a row.", default="none")
    first: int = option(0, "Number of the first choice, where answers are numbers.")
    dev_share: float = option(DEV_SHARE, "Part of train that becomes dev where there is none.")
    seed: int = option(0, "Seed that draws that part.")
    name: str | None = option(None, "Name of the task.", default="that of the first file")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.dev_share < 1:
            raise OptionError(
                f"The part of train that becomes dev must be between 0 and 1. Got {self.dev_share} instead."
            )
        if self.scheme is not None:
            object.__setattr__(self, "scheme", named_scheme(self.scheme))
        if self.scheme == "BILOU":
            raise OptionError("Nothing is turned into BILOU. Ask for BIOES, which says the same with other letters.")

    def choice_columns(self) -> list[Column]:
        if self.choices is None:
            return []
        return [self.choices] if isinstance(self.choices, str | int) else list(self.choices)


def resolve_columns(options: DataOptions, file: str | InMemory, usual: UsualNames, *, format: str) -> DataOptions:
    """The columns by name: those that were numbered, and the usual ones where none was named."""
    names = header_of(file, format, options.delimiter)

    def name_of(role: str, column: Column | None) -> str | None:
        if column is None and role not in usual:
            return None
        name = column_in(names, column, usual.get(role, ()))
        if name is not None:
            return name
        if column is None:
            raise OptionError(
                f"Which column of {file} is the {role} of {options.kind}? Say so with the option {role!r}. There are: "
                f"{_names(names)}."
            )
        if isinstance(column, str) and not column.isdecimal():
            raise no_field(column, names, str(file))
        raise OptionError(
            f"{file} has {len(names)} columns ({_names(names)}), counted from 1. Got {column} for {role!r} instead."
        )

    roles = ("text", "second", "label", "start", "marks", "first_span", "second_span", "id")
    resolved: dict[str, Any] = {role: name_of(role, getattr(options, role)) for role in roles}
    if "choices" in usual:
        listed: list[Column | None] = [*options.choice_columns()]
        resolved["choices"] = [name_of("choices", each) for each in listed or [None]]
    taken: dict[str, str] = {}
    for role in ("text", "second", "label"):
        column = resolved[role]
        if column in taken:
            raise OptionError(f"The column {column!r} of {file} is both {taken[column]!r} and {role!r}.")
        if column is not None:
            taken[column] = role
    return replace(options, **resolved)


def column_in(names: Sequence[str], column: Column | None, usual: Sequence[str]) -> str | None:
    """The name of a column among those of a file, as it was named, numbered or is usual; None: not there.

    >>> column_in(["number", "review"], 2, ())
    'review'
    """
    if column is None:
        return next((name for name in usual if name in names), None)
    if isinstance(column, str) and (column in names or not column.isdecimal()):
        return column if column in names or column.partition(".")[0] in names else None
    return names[int(column) - 1] if 1 <= int(column) <= len(names) else None


def column_rows(file: str | InMemory, format: str, options: DataOptions) -> Iterator[Row]:
    """The rows of a file, or of a table in memory, with the values of the columns."""
    spans = [options.first_span, options.second_span]
    others = [options.second, options.label, options.start, options.marks, *spans, *options.choice_columns()]
    reading: dict[str, Any] = {} if isinstance(file, InMemory) else {"format": format}
    if not isinstance(file, InMemory) and format != "parquet":
        reading["max_text_bytes"] = options.max_text_bytes
    if format in ("csv", "tsv"):
        reading |= {"quotes": options.quotes, "delimiter": options.delimiter}
    with read_rows(
        file,
        field=None if options.text is None else str(options.text),
        id_field=None if options.id is None else str(options.id),
        fields=[str(name) for name in others if name is not None],
        **reading,
    ) as rows:
        yield from rows


def text_of(value: Any, name: str, place: Place) -> str:
    """A text in another column than the first: the second text, or a choice."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    if not isinstance(value, str):
        raise InputError(f"{place}: {name!r} must be a text. Got {value!r} instead.")
    return value


def marks_of(row: Row, values: Any) -> tuple[int, ...]:
    """The marks of a row's words: numbers as they are; of other things, whether there is one."""
    if isinstance(row.content, str):
        raise InputError(f"{row.place}: the text must be a list of words, of which each has a mark. Got a text.")
    if not isinstance(values, list):
        raise InputError(
            f"{row.place}: the marks must be a list with one for each word. Got {excerpt(str(values))!r} instead."
        )
    check_length(row, "marks", values)
    return tuple(map(_mark, values))


def _mark(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return int(bool(value))
    return int(value) if str(value).isdecimal() else int(str(value) not in ("_", "-", "O", ""))


def check_length(row: Row, noun: str, values: Sequence[Any]) -> None:
    """Refuse a row that has not as many values as words."""
    if len(values) != len(row.content):
        raise InputError(f"{row.place}: there are {len(row.content)} words and {len(values)} {noun}.")


def header_of(file: str | InMemory, format: str, delimiter: str | None) -> list[str]:
    """The names of the columns of a file, or of a table in memory."""
    if isinstance(file, InMemory):
        return list(file.columns or ())
    if format == "parquet":
        parquet: Any = optional("pyarrow.parquet")
        try:
            return list(parquet.read_schema(file).names)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is no Parquet file, or was cut short: {excerpt(str(error))}.") from error
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
        value = parse_json(text)
    except ValueError as error:
        raise InputError(f"{place}: this is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InputError(f"{place}: a line must be an object with fields, of which one is the text and one the label.")
    return list(value)


def _names(names: Sequence[str]) -> str:
    more = ", …" if len(names) > 20 else ""
    return ", ".join(excerpt(name) for name in names[:20]) + more
