"""What a cell may follow: properties of a text, a number a character, after that character has been read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError, OptionError, nearest

Property = Callable[[str], Sequence[float]]
"""From a text to one number for each of its characters."""
Floats = NDArray[np.float64]

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def inside_quotes(text: str) -> list[float]:
    """1 from a double quote that opens on, 0 from the one that closes.

    >>> inside_quotes('a "b" c')
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    found, inside = [], False
    for character in text:
        inside = {'"': not inside, "“": True, "”": False, "«": True, "»": False}.get(character, inside)
        found.append(float(inside))
    return found


def inside_brackets(text: str) -> list[float]:
    """How many brackets are open.

    >>> inside_brackets("a(b[c])")
    [0.0, 1.0, 1.0, 2.0, 2.0, 1.0, 0.0]
    """
    found, depth = [], 0
    for character in text:
        depth = max(depth + BRACKETS.get(character, 0), 0)
        found.append(float(depth))
    return found


def position_in_line(text: str) -> list[float]:
    """Characters since the line began; the line's end counts as its last.

    >>> position_in_line("ab" + chr(10) + "c")
    [1.0, 2.0, 3.0, 1.0]
    """
    found, place = [], 0
    for before in ["\n", *text][: len(text)]:
        place = 1 if before == "\n" else place + 1
        found.append(float(place))
    return found


def position_in_word(text: str) -> list[float]:
    """Characters since the last blank.

    >>> position_in_word("ab c")
    [1.0, 2.0, 0.0, 1.0]
    """
    found, place = [], 0
    for character in text:
        place = 0 if character.isspace() else place + 1
        found.append(float(place))
    return found


PROPERTIES: Mapping[str, Property] = {
    "inside quotes": inside_quotes,
    "inside brackets": inside_brackets,
    "position in line": position_in_line,
    "position in word": position_in_word,
}


def find_property(given: str | Property) -> tuple[str, Property]:
    """A property and its name: one of the list, or a function of the user's own."""
    if isinstance(given, str):
        if given not in PROPERTIES:
            raise OptionError(
                f"There is no property {given!r}. {nearest(given, PROPERTIES)} Or give a function from a text to a "
                "number for each of its characters."
            )
        return given, PROPERTIES[given]
    if not callable(given):
        raise OptionError(f"A property is a name or a function of a text. Got a {type(given).__name__} instead.")
    return getattr(given, "__name__", "property").replace("_", " "), given


def values_of(name: str, property: Property, text: str) -> Floats:
    """A property's numbers over a text, which must differ somewhere for anything to go with them."""
    try:
        found = np.asarray(list(property(text)), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(0, np.nan)
    if found.shape != (len(text),) or not np.isfinite(found).all():
        raise InputError(
            f"The property {name!r} must give one finite number for each of the text's {len(text):,} characters."
        )
    return found
