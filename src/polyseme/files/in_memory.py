"""Texts and tables that the caller holds, wherever files can be named: lists, frames, datasets, Arrow tables.

| given | is |
|---|---|
| a string or a path | a file, folder or pattern, or `-` |
| a list of those | likewise, if one of them is a path or is there; else its strings are texts |
| a list of lists of words, or of documents | texts with words of their own |
| an argument of the command line | a file; or a text, if it can be nothing else (`file_or_text`) |
| a list of mappings, a mapping of columns | a table |
| a frame (pandas, polars), an Arrow table, a dataset of `datasets` | a table |
| a column of those (a Series, an array) | texts |

Nothing is imported for it: what something is shows in what it can do.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme.errors import InputError
from polyseme.files.readers import ENDINGS, STRUCTURED
from polyseme.files.source import STANDARD_INPUT, suffixes
from polyseme.files.source_paths import FileName, Sources
from polyseme.types import Document

AT_ONCE = 256
"""Rows that are taken out of a table at a time."""
_LONGEST_NAME = 1024
"""Characters of a string that may still be the name of a file."""
_MOST_FILES = 1000
"""Strings of a longer list are texts, also where one looks like the name of a file that is not there."""
_BLANK = re.compile(r"\s")


@dataclass(frozen=True)
class InMemory:
    """Rows that the caller holds."""

    name: str
    """What it is, for messages: "the pandas DataFrame"."""
    columns: tuple[str, ...] | None
    """The names of its columns; None: texts by themselves."""
    n_rows: int | None
    """None: known at the end only."""
    rows: Callable[[], Iterator[Any]]
    """From the start: records by the names of columns, or texts."""

    def __iter__(self) -> Iterator[Any]:
        return self.rows()

    def __str__(self) -> str:
        return self.name

    @property
    def unit(self) -> str:
        return "text" if self.columns is None else "row"


Inputs = list[FileName] | InMemory


def inputs_of(sources: Sources) -> list[FileName] | InMemory:
    """The names of files, or what is in memory."""
    if isinstance(sources, InMemory):
        return sources
    if isinstance(sources, str | os.PathLike):
        return [FileName(os.fspath(sources))]
    table = _table_of(sources)
    if table is not None:
        return table
    items = _listed(sources)
    if _to_list(sources) is not None:
        return _in_memory(f"the {_library(sources)} {type(sources).__name__}", None, items)
    if not items or all(isinstance(each, str | os.PathLike) for each in items):
        return _names_or_texts(items)
    if all(isinstance(each, Mapping) for each in items):
        columns = dict.fromkeys(name for each in items for name in each)
        return _in_memory("the list of records", tuple(map(str, columns)), items)
    return _in_memory("the list of texts", None, items)


def names_of(inputs: Inputs) -> list[str]:
    """The names of files among inputs, which no output may replace."""
    return [] if isinstance(inputs, InMemory) else list(inputs)


def describe_inputs(inputs: Inputs) -> list[str]:
    """Inputs as JSON: work on others is not resumed."""
    return [f"{inputs.name}, in memory"] if isinstance(inputs, InMemory) else list(inputs)


# --- what it is -------------------------------------------------------------------------------------------------------


def _table_of(data: Any) -> InMemory | None:
    """A frame, a dataset, an Arrow table or a mapping of columns; None: something else."""
    if isinstance(data, Mapping):
        return _of_columns(data)
    names = _column_names(data)
    if names is None:
        return None
    kind = type(data).__name__
    name = f"the {_library(data)} {kind}"
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise InputError(f"{name[0].upper()}{name[1:]}: {names.count(twice)} columns have the name {twice!r}.")
    n_rows = len(data) if hasattr(data, "__len__") else None
    return InMemory(name, tuple(map(str, names)), n_rows, lambda: _records(data))


def _column_names(data: Any) -> list[Any] | None:
    if hasattr(data, "collect_schema") and not hasattr(data, "iter_rows"):
        raise InputError("A lazy frame of polars has no rows yet. Compute them first: frame.collect().")
    for attribute in ("column_names", "columns"):  # Arrow and datasets have the first; Arrow's `columns` are no names
        names = getattr(data, attribute, None)
        if names is not None and not callable(names):
            return [*names]
    if hasattr(data, "column_names") and hasattr(data, "features"):  # a stream of datasets whose columns are not known
        return [*next(iter(data), {})]
    return None


def _library(data: Any) -> str:
    library = type(data).__module__.partition(".")[0]
    return {"pyarrow": "Arrow", "datasets": "datasets"}.get(library, library)


def _of_columns(data: Mapping[Any, Any]) -> InMemory:
    nested = next((name for name, value in data.items() if hasattr(value, "column_names")), None)
    if nested is not None:
        raise InputError(
            f"The dataset has several splits. Choose one, as in data[{nested!r}]. There are: {_names(data)}."
        )
    columns = {str(name): _listed(values) for name, values in data.items()}
    lengths = {len(values) for values in columns.values()}
    if not columns or len(lengths) > 1:
        counts = ", ".join(f"{name} {len(values):,}" for name, values in columns.items()) or "none"
        raise InputError(f"The columns of a mapping must have as many values each. Got: {counts}.")
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return _in_memory("the mapping of columns", tuple(columns), rows)


def _listed(data: Any) -> list[Any]:
    """A column, or anything that can be gone through once, as a list of plain values."""
    if isinstance(data, str | bytes | Document):
        if isinstance(data, bytes):
            raise InputError("What is read must be texts. Got bytes instead: decode them first.")
        return [data]
    if (to_list := _to_list(data)) is not None:
        values = to_list()
        return [_plain(value) for value in (values if isinstance(values, list) else [values])]
    try:
        return [_plain(each) for each in data]
    except TypeError:
        raise InputError(
            f"What is read must be files, texts or a table. Got a {type(data).__name__} instead."
        ) from None


def _to_list(column: Any) -> Callable[[], Any] | None:
    """The method by which a column gives its values: of Arrow, of polars and pandas, of NumPy."""
    methods = (getattr(column, name, None) for name in ("to_pylist", "to_list", "tolist"))
    return next((each for each in methods if callable(each)), None)


def _in_memory(name: str, columns: tuple[str, ...] | None, rows: Sequence[Any]) -> InMemory:
    return InMemory(name, columns, len(rows), lambda: iter(rows))


def _names(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))


# --- names of files, or texts -----------------------------------------------------------------------------------------


def _names_or_texts(strings: Sequence[Any]) -> list[FileName] | InMemory:
    """A list of strings: files, if they are there or can be nothing else; texts, if none of them is there."""
    files = [isinstance(each, os.PathLike) or is_there(each) for each in strings]
    if all(files):
        return [FileName(os.fspath(each)) for each in strings]
    if any(files):
        there, text = strings[files.index(True)], strings[files.index(False)]
        if _looks_like_a_file(text):
            raise InputError(f"There is no file {text} (looked for it in {Path.cwd()}).")
        raise InputError(
            f"The list has the name of a file in it, {os.fspath(there)!r}, and strings that are none, as "
            f"{text[:60]!r}. Give files by themselves, and texts by themselves; where all are texts, Python also takes "
            "them as a column: {'text': […]}."
        )
    missing = next((each for each in strings if _looks_like_a_file(each)), None)
    if missing is not None and len(strings) <= _MOST_FILES:
        raise InputError(
            f"There is no file {missing} (looked for it in {Path.cwd()}). If it is a text, give texts as a column: "
            "{'text': […]}."
        )
    return _in_memory("the list of texts", None, list(strings))


def file_or_text(argument: str) -> str:
    """What an argument is to a command that reads files or texts: a file name, or a text as it is.

    A text has two words or more, is no file, and does not look like one: a missing file is never taken for a text.

    >>> type(file_or_text("Dawn broke.")), type(file_or_text("no such file.txt")), type(file_or_text("-"))
    (<class 'str'>, <class 'polyseme.files.source_paths.FileName'>, <class 'polyseme.files.source_paths.FileName'>)
    """
    is_one_word = len(argument.split()) < 2
    return FileName(argument) if is_one_word or is_there(argument) or _looks_like_a_path(argument) else argument


def is_there(text: str) -> bool:
    """Whether a string names something that can be read: standard input, a file, a folder, or a pattern's matches."""
    if text == STANDARD_INPUT:
        return True
    if not text or len(text) > _LONGEST_NAME or "\n" in text or "\0" in text:
        return False
    if os.path.lexists(text):
        return True
    matches: Iterator[str] = iter(()) if _BLANK.search(text) else glob.iglob(text, recursive=True)  # noqa: PTH207
    return next(matches, None) is not None


def _looks_like_a_file(text: str) -> bool:
    """Whether a string can hardly be a text: it has no blank, and the ending of a format or a slash."""
    ending, compression = suffixes(text) if len(text) <= _LONGEST_NAME else ("", "")
    known = bool(compression) or ending in ENDINGS or ending in STRUCTURED
    return not _BLANK.search(text) and (known or (os.sep in text and "://" not in text)) and len(text) > len(ending)


def _looks_like_a_path(text: str) -> bool:
    """Whether a string of several words looks like the name of a file: by its beginning, its ending or its folder."""
    ending, compression = suffixes(text) if len(text) <= _LONGEST_NAME else ("", "")
    if text.startswith((os.sep, f".{os.sep}", f"..{os.sep}", f"~{os.sep}")):
        return True
    return bool(compression) or ending in ENDINGS or ending in STRUCTURED or is_there(os.path.dirname(text))  # noqa: PTH120


# --- records ----------------------------------------------------------------------------------------------------------


def _records(table: Any) -> Iterator[dict[str, Any]]:
    """The rows of a table, a few taken out at a time."""
    if hasattr(table, "iter_rows"):  # polars
        rows: Iterable[Mapping[Any, Any]] = table.iter_rows(named=True)
    elif hasattr(table, "iloc"):  # pandas
        rows = itertools.chain.from_iterable(
            table.iloc[start : start + AT_ONCE].to_dict("records") for start in range(0, len(table), AT_ONCE)
        )
    elif hasattr(table, "to_pylist"):  # Arrow
        rows = itertools.chain.from_iterable(
            table.slice(start, AT_ONCE).to_pylist() for start in range(0, len(table), AT_ONCE)
        )
    else:
        rows = table
    for row in rows:
        yield {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """A value without NumPy around it; a missing one is None."""
    if value is None or isinstance(value, str | bool | int | Mapping | Document | os.PathLike):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):  # of NumPy: an array or a number
        return _plain(value.tolist())
    if hasattr(value, "to_list"):
        return value.to_list()
    return None if type(value).__name__ in ("NAType", "NaTType") else value
