"""JSON Lines: one object per line, of which one field is the text or the list of its words.

A file may also have a string, or a list of words, on each line. Blank lines hold no row. Numbers that JSON lacks
(NaN, Infinity) are read, since Python writes them; a key that stands twice in one object is refused, since it cannot
be known which of the two is meant.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from polyseme.errors import InputError
from polyseme.files.lines import Line, requested_lines
from polyseme.files.reading_options import RowRequest
from polyseme.files.rows import Place, Record, Row, excerpt, is_text, rows_of
from polyseme.files.source import Source
from polyseme.json_reading import parse_json

_WHOLE = "the line itself"
"""What the one field of a line is called that is no object."""


def read(source: Source, request: RowRequest) -> Iterator[Row]:
    """One row per line."""
    return rows_of(_records(requested_lines(source, request), source.name, request), request)


def _records(lines: Iterable[Line], name: str, request: RowRequest) -> Iterator[Record | None]:
    for line in lines:
        if line.text and not line.text.isspace():
            yield request.attempt(partial(_record, line.text, Place(name, line.number), request))


def _record(text: str, place: Place, request: RowRequest) -> Record:
    return Record(_fields(_parsed(text, place), place, request), place)


def _parsed(text: str, place: Place) -> Any:
    try:
        return parse_json(text, decode=_DECODER.decode)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: this is not JSON: {error.msg} at character {error.pos + 1} of the line.") from error
    except (
        ValueError
    ) as error:  # nested too deeply, a key that stands twice, a number with more digits than Python reads
        raise InputError(f"{place}: the JSON cannot be read: {error}.") from error


def _fields(value: Any, place: Place, request: RowRequest) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if request.field is None and is_text(value):
        return {_WHOLE: value}
    kind = {str: "a string", list: "a list", bool: "a truth value", type(None): "null"}.get(type(value), "a number")
    expected = "an object with fields" if request.field is not None else "an object, a string or a list of words"
    raise InputError(f"{place}: the line is {kind}. A line of JSON Lines must be {expected}.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {excerpt(twice)!r} stands twice in one object")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
