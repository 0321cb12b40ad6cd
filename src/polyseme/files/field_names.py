"""Names of the input's fields in an output, which are never refused, and their values for single words.

A field whose name the output has a meaning for (`id`) is called `fields.id` there; one without a name, `unnamed`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from polyseme.errors import PolysemeWarning

PREFIX = "fields."
UNNAMED = "unnamed"


class ColumnNames:
    """From names of fields to those of their columns; a field that comes later has a name that is free."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._own = frozenset(taken)
        self.columns: dict[str, str] = {}

    def of(self, fields: Iterable[str]) -> Mapping[str, str]:
        """The columns of fields, and of all before."""
        for name in fields:
            if name not in self.columns:
                self.columns[name] = column = self._free(name)
                self._taken.add(column)
                if column != name:
                    why = "has one of its own" if name in self._own else "needs a name for it"
                    message = f"The field {name!r} is called {column!r} in the output, which {why}."
                    warnings.warn(message, PolysemeWarning, stacklevel=2)
        return self.columns

    def _free(self, name: str) -> str:
        column = name.encode("utf-8", "replace").decode() or UNNAMED
        while column in self._taken:
            column = PREFIX + column
        return column


def fields_of_words(fields: Mapping[str, Any], places: Sequence[int], n_words: int) -> dict[str, Any]:
    """The fields of words at some places of a text: of a field with a value for each of its words, theirs alone.

    >>> fields_of_words({"upos": ["NOUN", "VERB"], "genre": "news"}, [1], 2)
    {'upos': 'VERB', 'genre': 'news'}
    """

    def value_of(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != n_words:
            return value
        return value[places[0]] if len(places) == 1 else [value[at] for at in places]

    return {name: value_of(value) for name, value in fields.items()}


def as_text(value: Any) -> str | None:
    """A value as a text; what is none, as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)  # a date, a decimal …
