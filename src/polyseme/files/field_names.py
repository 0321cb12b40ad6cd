"""Names of the input's fields in an output, which are never refused.

A field whose name the output has a meaning for (`id`) is called `fields.id` there; one without a name, `unnamed`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping
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


def as_text(value: Any) -> str | None:
    """A value as a text; what is none, as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)  # a date, a decimal …
