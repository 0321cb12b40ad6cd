"""JSON of any file, read in one place, with bounds.

Whoever reads JSON from a file, ours or another's, takes `parse_json` or `load_json`. What is nested deeper than
`MOST_DEPTH`, larger than `MOST_BYTES`, cut short, or of another kind than expected is a `ValueError` in words, which
the caller completes with the name of the file and what to do. Python's own parser ends deep nesting with a
`RecursionError`, or returns what breaks whoever walks through it later.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, ModelError, PolysemeError

MOST_DEPTH = 100
"""Lists and objects within each other. Real files have ten at most."""
MOST_BYTES = 1 << 28
"""Of one file: the largest vocabularies have a tenth of this."""

_OF_DAMAGE = (None, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EINVAL)
"""What the system says of parts that are missing, or are something else; libraries raise errors without a number."""
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value"}


def parse_json(
    content: str | bytes,
    *,
    kind: type | None = None,
    decode: Callable[[str], Any] | None = None,
    parse_int: Callable[[str], Any] | None = None,
) -> Any:
    """What a text of JSON holds; a `ValueError` where it is none, nested too deeply, or not of the `kind` (dict, list).

    `decode` is a decoder with rules of its own, `parse_int` what whole numbers become.

    >>> parse_json('{"a": [1]}', kind=dict)
    {'a': [1]}
    >>> parse_json("[" * 500 + "]" * 500)
    Traceback (most recent call last):
    ValueError: lists or objects are nested more than 100 deep
    """
    if isinstance(content, bytes):
        content = content.decode(json.detect_encoding(content))
    try:
        value = json.loads(content, parse_int=parse_int) if decode is None else decode(content)
    except RecursionError:
        raise _too_deep() from None
    if content.count("[") + content.count("{") > MOST_DEPTH:
        _check_depth(value)
    if kind is not None and not isinstance(value, kind):
        actual = "null" if value is None else _KINDS[type(value)]
        raise ValueError(f"it holds {actual}, and {_KINDS[kind]} is expected")
    return value


def load_json(path: Path, *, kind: type | None = None) -> Any:
    """What a file of JSON in UTF-8 holds; an `OSError` where it cannot be read, else a `ValueError` as above."""
    _check_size(path)
    return parse_json(path.read_text(encoding="utf-8"), kind=kind)


def refuse_large(path: Path) -> None:
    """Refuse a file that a library is to read as JSON, where it is too large."""
    with damage_reported(path, "Get the file again.", ModelError):
        _check_size(path)


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, and {MOST_BYTES:,} at most are read as JSON")


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value is a whole number, of at least so much.

    >>> is_count(3), is_count(3.0), is_count(True), is_count(0, least=1)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> bool:
    """Whether a value is a finite number.

    >>> is_number(0.5), is_number("0.5"), is_number(float("nan"))
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@contextlib.contextmanager
def damage_reported(path: object, advice: str, error: type[PolysemeError] = InputError) -> Iterator[None]:
    """Within this block, whatever comes of a file that is not as it should be is one error about the file.

    What the system otherwise refuses, a lack of memory, and errors of the class `error` pass as they are.
    """
    try:
        yield
    except (error, MemoryError):
        raise
    except Exception as reason:  # what damage makes of content is not bounded
        if isinstance(reason, OSError) and reason.errno not in _OF_DAMAGE:
            raise
        words = str(reason) if isinstance(reason, (ValueError, OSError, PolysemeError)) else repr(reason)
        raise error(f"{path} is damaged ({' '.join(words.split())[:300].rstrip('.')}). {advice}") from None


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [
            each
            for outer in level
            if type(outer) is dict or type(outer) is list
            for each in (outer.values() if type(outer) is dict else outer)
            if type(each) is dict or type(each) is list
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"lists or objects are nested more than {MOST_DEPTH} deep")
