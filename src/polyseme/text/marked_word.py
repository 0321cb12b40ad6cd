r"""One word of a text, marked with brackets: `A [crane] caught a fish.`

A bracket that belongs to the text is written `\[` or `\]`. A backslash means something only before a bracket; one that
stands there itself is doubled: `\\[`. A mask, `[MASK]` or the model's own, is text and marks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polyseme.errors import InputError
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.text.words import document
from polyseme.types import Document, Word

EXAMPLE = "Mark one word, as in: A [crane] caught a fish."
ESCAPE = r"A bracket that belongs to the text is written \[ or \]."


class Marked(NamedTuple):
    """A text without its marks, and where in it the marked stretch begins and ends."""

    text: str
    start: int
    end: int


def read_marks(given: str, masks: Sequence[str] = (MASK_TEXT,)) -> Marked:
    r"""What stands between the brackets of a text, which must be marked exactly once.

    >>> read_marks(r"A [crane] caught a \[very\] big fish.")
    Marked(text='A crane caught a [very] big fish.', start=2, end=7)
    """
    kept: list[str] = []
    opened: int | None = None  # where in `given`; start and end are places in what is kept
    start: int | None = None
    end: int | None = None
    for place, part, is_mark in _parts(given, masks):
        if not is_mark:
            kept.append(part)
        elif part == "[":
            if opened is not None:
                raise InputError(f"A second '[' stands at character {place} of {_shown(given)}. {ESCAPE} {EXAMPLE}")
            opened, start = place, sum(map(len, kept))
        else:
            if opened is None or end is not None:
                raise InputError(
                    f"The ']' at character {place} of {_shown(given)} closes no bracket. {ESCAPE} {EXAMPLE}"
                )
            end = sum(map(len, kept))
    if start is None:
        only_masks = any(mask in given for mask in masks)
        raise InputError(f"No word is marked in {_shown(given)}{' (a mask marks nothing)' * only_masks}. {EXAMPLE}")
    if end is None:
        raise InputError(f"The '[' at character {opened} of {_shown(given)} is not closed. {ESCAPE} {EXAMPLE}")
    return Marked("".join(kept), start, end)


def write_marks(marked: Marked) -> str:
    r"""The text with its mark, and with its own brackets escaped: what `read_marks` reads back.

    >>> write_marks(Marked("a [b] c", 6, 7))
    'a \\[b\\] [c]'
    """
    text, start, end = marked
    return f"{_escaped(text[:start])}[{_escaped(text[start:end])}]{_escaped(text[end:], last=True)}"


def marked_use(given: str, masks: Sequence[str] = (MASK_TEXT,)) -> Document:
    """A document whose only word is the marked one, or the marked words taken together.

    The mark must begin where a word begins and end where one ends; blanks inside the brackets do not count.
    """
    text, start, end = read_marks(given, masks)
    found = document(text)
    text = found.text  # lone surrogates are replaced in it
    inner = text[start:end]
    if not inner.strip():
        raise InputError(f"The brackets of {_shown(given)} have nothing between them. {EXAMPLE}")
    start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    _check_bounds(found, start, end)
    return Document(text=text, words=[Word(text[start:end], start, end)])


def _check_bounds(found: Document, start: int, end: int) -> None:
    """Refuse a mark that cuts a word in two, and name the word."""
    for place, side in ((start, "begins"), (end, "ends")):
        for word in found.words:
            if word.start < place < word.end:
                raise InputError(
                    f"The mark {side} inside a word: at character {place} of {_shown(found.text)}, within "
                    f"{str(word)!r} ({word.start} to {word.end}). Mark one or more whole words: [{word}]."
                )
    if not any(start <= word.start and word.end <= end for word in found.words):
        raise InputError(
            f"There is no word in {found.text[start:end]!r}, which is marked in {_shown(found.text)}. {EXAMPLE}"
        )


def _parts(given: str, masks: Sequence[str]) -> Iterator[tuple[int, str, bool]]:
    """The text cut at its brackets: where each part stands, how it is meant, and whether it is a mark."""
    end = 0
    for match in re.finditer(r"(\\*)([\[\]])", given):
        if match.start() < end:  # the closing bracket of a mask
            continue
        yield end, given[end : match.start()] + "\\" * (len(match[1]) // 2), False
        place = match.start(2)
        literal = match[2] if len(match[1]) % 2 else next((mask for mask in masks if given.startswith(mask, place)), "")
        yield place, literal or match[2], not literal
        end = place + len(literal or match[2])
    yield end, given[end:], False


def _escaped(part: str, *, last: bool = False) -> str:
    """A stretch of text with its brackets escaped, and the backslashes before one, or before a mark's, doubled."""
    part = re.sub(r"(\\*)([\[\]])", r"\1\1\\\2", part)
    return part if last else re.sub(r"(\\+)\Z", r"\1\1", part)


def _shown(text: str) -> str:
    """The text as a message shows it: long ones by their beginning."""
    return repr(text if len(text) <= 80 else text[:79] + "…")
