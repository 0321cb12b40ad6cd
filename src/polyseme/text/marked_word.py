r"""One word of a text, marked with brackets: `A [crane] caught a fish.`

A bracket that belongs to the text is written `\[` or `\]`. A backslash has a meaning only before a bracket; a literal
one there is doubled: `\\[`. A mask, `[MASK]` or the model's own, is text and marks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyseme.errors import InputError
from polyseme.text.documents import make_document
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.types import Document, Word

EXAMPLE = "Mark one word, as in: A [crane] caught a fish."
ESCAPE = r"A bracket that belongs to the text is written \[ or \]."


class MarkedText(NamedTuple):
    """A text without its marks, and the offsets of the marked part."""

    text: str
    start: int
    end: int


def read_marks(source: str, masks: Sequence[str] = (MASK_TEXT,)) -> MarkedText:
    r"""The text without its brackets, and the offsets of the marked part. There must be exactly one mark.

    >>> read_marks(r"A [crane] caught a \[very\] big fish.")
    MarkedText(text='A crane caught a [very] big fish.', start=2, end=7)
    """
    plain: list[str] = []
    opened: int | None = None  # offset in `source`; start and end are offsets in the plain text
    start: int | None = None
    end: int | None = None
    for place, part, is_mark in _parts(source, masks):
        if not is_mark:
            plain.append(part)
        elif part == "[":
            if opened is not None:
                raise InputError(f"A second '[' is at character {place} of {_shown(source)}. {ESCAPE} {EXAMPLE}")
            opened, start = place, sum(map(len, plain))
        else:
            if opened is None or end is not None:
                raise InputError(
                    f"The ']' at character {place} of {_shown(source)} closes no bracket. {ESCAPE} {EXAMPLE}"
                )
            end = sum(map(len, plain))
    if start is None:
        only_masks = any(mask in source for mask in masks)
        raise InputError(f"No word is marked in {_shown(source)}{' (a mask marks nothing)' * only_masks}. {EXAMPLE}")
    if end is None:
        raise InputError(f"The '[' at character {opened} of {_shown(source)} is not closed. {ESCAPE} {EXAMPLE}")
    return MarkedText("".join(plain), start, end)


def marked_use(source: str, masks: Sequence[str] = (MASK_TEXT,)) -> Document:
    """A document with the marked word, or the marked words together, as its only word.

    The mark must begin where a word begins and end where one ends; blanks inside the brackets do not count.
    """
    text, start, end = read_marks(source, masks)
    document = make_document(text)
    text = document.text  # lone surrogates are replaced in it
    inner = text[start:end]
    if not inner.strip():
        raise InputError(f"The brackets of {_shown(source)} have nothing between them. {EXAMPLE}")
    start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    _check_bounds(document, start, end)
    return Document(text=text, words=[Word(text[start:end], start, end)])


@dataclass(frozen=True, kw_only=True)
class SpanDocument(Document):
    """A document of which a span of words is marked."""

    first: int
    last: int
    """The numbers of its first and last word, both counted."""

    @property
    def span(self) -> tuple[int, int]:
        """Where it is in the text."""
        return self.words[self.first].start, self.words[self.last].end


def marked_span(document: Document) -> SpanDocument:
    """A document whose text has a span of whole words in brackets, without the brackets."""
    if document.pretokenized:
        raise InputError("A span is marked in a text, and this is a list of words. Write it as a text.")
    marked = marked_use(document.text)
    plain = make_document(marked.text, document.id, document.fields)
    [whole] = marked.words
    inside = [number for number, word in enumerate(plain.words) if whole.start <= word.start and word.end <= whole.end]
    return SpanDocument(
        text=plain.text, words=plain.words, id=plain.id, fields=plain.fields, first=inside[0], last=inside[-1]
    )


def _check_bounds(document: Document, start: int, end: int) -> None:
    """Refuse a mark that cuts a word in two, and name the word."""
    for place, side in ((start, "begins"), (end, "ends")):
        for word in document.words:
            if word.start < place < word.end:
                raise InputError(
                    f"The mark {side} inside a word: at character {place} of {_shown(document.text)}, within "
                    f"{str(word)!r} ({word.start} to {word.end}). Mark one or more whole words: [{word}]."
                )
    if not any(start <= word.start and word.end <= end for word in document.words):
        raise InputError(
            f"There is no word in {document.text[start:end]!r}, which is marked in {_shown(document.text)}. {EXAMPLE}"
        )


def _parts(source: str, masks: Sequence[str]) -> Iterator[tuple[int, str, bool]]:
    """The text cut at its brackets: the offset of each part, its unescaped text, and whether it is a mark."""
    end = 0
    for match in re.finditer(r"(\\*)([\[\]])", source):
        if match.start() < end:  # the closing bracket of a mask
            continue
        yield end, source[end : match.start()] + "\\" * (len(match[1]) // 2), False
        place = match.start(2)
        literal = (
            match[2] if len(match[1]) % 2 else next((mask for mask in masks if source.startswith(mask, place)), "")
        )
        yield place, literal or match[2], not literal
        end = place + len(literal or match[2])
    yield end, source[end:], False


def _shown(text: str) -> str:
    """The text as a message shows it; a long one is truncated."""
    return repr(text if len(text) <= 80 else text[:79] + "…")
