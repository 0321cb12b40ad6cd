r"""Text as terminals may show it: characters that a terminal obeys are escaped.

Escape sequences in a text, a file name or a label could otherwise clear the screen, set its title or hide what is
written, and marks of direction show letters in another order than they stand. What is escaped once stays as it is, so
that nobody needs to know whether it was.
"""

from __future__ import annotations

import json
import re

_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_LINE_ENDS = "\u2028\u2029"
_SURROGATES = "\ud800-\udfff"
"""Of file names that are not UTF-8: nothing encodes them."""
_OBEYED = re.compile(f"[\0-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}{_LINE_ENDS}{_SURROGATES}]")
_LAYOUT = re.compile("[\n\t]")


def visible(text: str, *, one_line: bool = False) -> str:
    r"""The text with escapes for controls, marks of direction and what cannot be encoded; line ends and tabs stay.

    >>> print(visible("a\x1b[31mb\a \u202egnp.exe"))
    a\x1b[31mb\x07 \u202egnp.exe
    >>> print(visible("two\nlines", one_line=True))
    two\nlines
    """
    text = _OBEYED.sub(_escape, text)
    return _LAYOUT.sub(_escape, text) if one_line else text


def visible_json(text: str) -> str:
    r"""The same for JSON, in JSON's own escapes: it means what it meant.

    >>> print(visible_json('"\x9b\u202e"'))
    "\u009b\u202e"
    """
    return _OBEYED.sub(lambda match: json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f", text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
