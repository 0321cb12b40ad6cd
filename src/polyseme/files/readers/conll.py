"""CoNLL: a word a line with what is said of it in columns, and a blank line after each sentence.

- Columns are separated by tabs, or by blanks in a file whose first sentence has no tab. All lines of a sentence have
  the same number of columns.
- The word is in column 1, or in the one whose number is the `field`. Column numbers are also the names of the other
  `fields`, each a list with a value a word.
- A line that begins with `-DOCSTART-` begins a document and is no word; the field `document` is the number of the
  document that a sentence stands in.
- Lines that begin with `#` may be comments or words, as in `#metoo O`. They are comments before the first word of a
  sentence, if they have another number of columns than its words; the field `comments` is the list of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.asked import Asked
from polyseme.files.lines import Line, lines_of
from polyseme.files.readers.blocks import blocks
from polyseme.files.rows import Place, Row
from polyseme.files.source import Source

DOCUMENT_MARK = "-DOCSTART-"
_FURTHER = ("document", "comments")


class _Sentence(NamedTuple):
    words: list[list[str]]
    """The columns of each word."""
    comments: list[str]
    lines: list[Line]
    """That of each word."""
    document: int

    @property
    def width(self) -> int:
        return len(self.words[0])


def read(source: Source, asked: Asked) -> Iterator[Row]:
    """A row a sentence, with its own words."""
    field = "1" if asked.field is None else asked.field
    if not (field.isdecimal() and int(field)):
        raise OptionError(
            f"The columns of {source.name} have no names: the field of a CoNLL file must be a number from 1 on. Got "
            f"{field!r} instead."
        )
    return _rows(_Sentences(source.name).of(lines_of(source)), int(field), source.name, asked)


def _rows(sentences: Iterable[_Sentence], column: int, name: str, asked: Asked) -> Iterator[Row]:
    any_rows = False
    for number, sentence in enumerate(sentences, start=1):
        any_rows = True
        place = Place(name, sentence.lines[0].number)
        if column > sentence.width:
            raise InputError(f"{place}: there is no column {column}. The sentence has {sentence.width}.")
        words = [columns[column - 1] for columns in sentence.words]
        for word, line in zip(words, sentence.lines, strict=True):
            if not word.strip():
                raise InputError(f"{Place(name, line.number)}: the word, in column {column}, is empty.")
        yield Row(words, asked.numbered(number), place, _beside(sentence, column, asked, place) if asked.fields else {})
    if not any_rows:
        raise InputError(f"{name} has no words in it: there is nothing to read.")


def _beside(sentence: _Sentence, column: int, asked: Asked, place: Place) -> dict[str, Any]:
    columns = {str(number): list(values) for number, values in enumerate(zip(*sentence.words, strict=True), start=1)}
    there = {**columns, "document": sentence.document, "comments": sentence.comments}
    if asked.keeps_all:
        del there[str(column)]
        return there
    for name in asked.fields:
        if name not in there:
            raise InputError(f"{place}: there is no field {name!r}. {nearest(name, there)}")
    return {name: there[name] for name in asked.fields}


class _Sentences:
    """Lines to sentences; what was seen of the file decides what separates columns and what a `#` means."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tabs: bool | None = None
        self._width = 0
        self._narrow = False
        self._document = 0

    def of(self, lines: Iterable[Line]) -> Iterator[_Sentence]:
        for block in blocks(self._clean(lines)):
            for part in self._parts(block):
                sentence = self._sentence(part)
                if sentence is not None:
                    yield sentence

    def _clean(self, lines: Iterable[Line]) -> Iterator[Line]:
        for line in lines:
            if "\r" in line.text:
                raise InputError(
                    f"{Place(self._name, line.number)}: there is a carriage return within the line; only \\n and "
                    "\\r\\n end a line. If each ends one, convert the file: tr '\\r' '\\n'"
                )
            yield line

    def _parts(self, block: list[Line]) -> Iterator[list[Line]]:
        """The lines of a block between the marks of documents."""
        part: list[Line] = []
        for line in block:
            if line.text.split(None, 1)[0] == DOCUMENT_MARK:
                yield part
                self._document += 1
                part = []
            else:
                part.append(line)
        yield part

    def _sentence(self, lines: list[Line]) -> _Sentence | None:
        if not lines:
            return None
        if self._tabs is None:
            self._tabs = any("\t" in line.text for line in lines)
        columns = [self._columns(line.text) for line in lines]
        width = self._width_of(lines, columns)
        n_comments = 0
        while n_comments < len(lines) and lines[n_comments].text.startswith("#") and len(columns[n_comments]) != width:
            n_comments += 1
        lines, words, comments = lines[n_comments:], columns[n_comments:], [line.text for line in lines[:n_comments]]
        if not words:
            return None
        for line, found in zip(lines, words, strict=True):
            self._check(line, len(found), width)
        self._narrow = width == 1 if not self._width else self._narrow
        self._width = width
        return _Sentence(words, comments, lines, self._document)

    def _columns(self, text: str) -> list[str]:
        return text.split("\t") if self._tabs else [column for column in text.split(" ") if column]

    def _width_of(self, lines: list[Line], columns: list[list[str]]) -> int:
        """How many columns the words of a sentence have: as many as the first line that is certainly one."""
        for line, found in zip(lines, columns, strict=True):
            if not line.text.startswith("#"):
                return len(found)
        return self._width or (len(columns[-1]) if self._tabs else 0)

    def _check(self, line: Line, n_columns: int, width: int) -> None:
        if n_columns != width or (n_columns == 1 and self._width and not self._narrow):
            expected = width if n_columns != width else self._width
            by = "tabs" if self._tabs else "blanks"
            raise InputError(
                f"{Place(self._name, line.number)}: the number of columns, separated by {by}, is {n_columns}, and that "
                f"of the words before is {expected}."
            )
