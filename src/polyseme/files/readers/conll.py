"""CoNLL: one word per line with its annotations in columns, and a blank line after each sentence.

- Columns are separated by tabs, or by blanks in a file whose first sentence has no tab. All lines of a sentence have
  the same number of columns.
- The word is in column 1, or in the one whose number is the `field`. Column numbers are also the names of the other
  `fields`, each a list with one value per word.
- A line that begins with `-DOCSTART-` begins a document and is no word; the field `document` is the number of the
  document that a sentence is in.
- Lines that begin with `#` may be comments or words, as in `#metoo O`. They are comments before the first word of a
  sentence, if they have another number of columns than its words; `#begin document` and `#end document` always are.
  The field `comments` is the list of them; those that stand by themselves belong to the next sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from polyseme.errors import InputError, OptionError
from polyseme.files.lines import Line, requested_lines, sentences
from polyseme.files.reading_options import RowRequest
from polyseme.files.rows import Place, Row, no_field
from polyseme.files.source import Source

_DOCUMENT_MARK = re.compile(r"-DOCSTART-(?:[ \t]|$)")
_DOCUMENT_BOUND = re.compile(r"#(?:begin|end) document\b")
_BLANKS = re.compile("[ \t]+")


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


def read(source: Source, request: RowRequest) -> Iterator[Row]:
    """One row per sentence, with its own words."""
    field = "1" if request.field is None else request.field
    if not (field.isdecimal() and int(field)):
        raise OptionError(
            f"The columns of {source.name} have no names: the field of a CoNLL file must be a number from 1 on. Got "
            f"{field!r} instead."
        )
    lines = requested_lines(source, request)
    return _rows(_Sentences(source.name, request).of(lines), int(field), source.name, request)


def _rows(sentences: Iterable[_Sentence], column: int, name: str, request: RowRequest) -> Iterator[Row]:
    any_rows = False
    for number, sentence in enumerate(sentences, start=1):
        any_rows = True
        row = request.attempt(partial(_row, sentence, column, number, name, request))
        if row is not None:
            yield row
    if not any_rows:
        raise InputError(f"{name} has no words in it: there is nothing to read.")


def _row(sentence: _Sentence, column: int, number: int, name: str, request: RowRequest) -> Row:
    place = Place(name, sentence.lines[0].number)
    if column > sentence.width:
        raise InputError(f"{place}: there is no column {column}. The sentence has {sentence.width}.")
    words = [columns[column - 1] for columns in sentence.words]
    for word, line in zip(words, sentence.lines, strict=True):
        if not word.strip():
            raise InputError(f"{Place(name, line.number)}: the word, in column {column}, is empty.")
    beside = _beside(sentence, column, request, place) if request.fields else {}
    return Row(words, request.numbered(number), place, beside)


def _beside(sentence: _Sentence, column: int, request: RowRequest, place: Place) -> dict[str, Any]:
    columns = {str(number): list(values) for number, values in enumerate(zip(*sentence.words, strict=True), start=1)}
    there = {**columns, "document": sentence.document, "comments": sentence.comments}
    if request.keeps_all:
        del there[str(column)]
        return there
    for name in request.fields:
        if name not in there:
            raise no_field(name, there, place)
    return {name: there[name] for name in request.fields}


def _is_comment(text: str, n_columns: int, width: int) -> bool:
    return text.startswith("#") and (n_columns != width or _DOCUMENT_BOUND.match(text) is not None)


class _Sentences:
    """Lines to sentences; what was seen of the file decides what separates columns and what a `#` means."""

    def __init__(self, name: str, request: RowRequest) -> None:
        self._name = name
        self._request = request
        self._tabs: bool | None = None
        self._width: int | None = None
        self._document = 0
        self._comments: list[str] = []

    def of(self, lines: Iterable[Line]) -> Iterator[_Sentence]:
        for block in sentences(lines, self._name, self._request.max_text_bytes):
            for part in self._parts(block):
                sentence = self._request.attempt(partial(self._sentence, part))
                if sentence is not None:
                    yield sentence

    def _parts(self, block: list[Line]) -> Iterator[list[Line]]:
        """The lines of a block between the marks of documents."""
        part: list[Line] = []
        for line in block:
            if _DOCUMENT_MARK.match(line.text):
                yield part
                self._document += 1
                part = []
            else:
                part.append(line)
        yield part

    def _sentence(self, lines: list[Line]) -> _Sentence | None:
        tabs = any("\t" in line.text for line in lines) if self._tabs is None else self._tabs
        columns = [line.text.split("\t") if tabs else _BLANKS.split(line.text.strip(" \t")) for line in lines]
        width = self._width_of(lines, columns, tabs)
        first = 0
        while first < len(lines) and _is_comment(lines[first].text, len(columns[first]), width):
            first += 1
        self._comments += [line.text for line in lines[:first]]
        if first == len(lines):
            return None
        for line, fields in zip(lines[first:], columns[first:], strict=True):
            self._check(line, len(fields), width, tabs)
        comments, self._comments = self._comments, []
        self._tabs, self._width = tabs, width
        return _Sentence(columns[first:], comments, lines[first:], self._document)

    def _width_of(self, lines: list[Line], columns: list[list[str]], tabs: bool) -> int:
        """How many columns the words of a sentence have: as many as the first line that is certainly one."""
        for line, fields in zip(lines, columns, strict=True):
            if not line.text.startswith("#"):
                return len(fields)
        if self._width is not None:
            return self._width
        return len(columns[-1]) if tabs else 1

    def _check(self, line: Line, n_columns: int, width: int, tabs: bool) -> None:
        """Sentences may differ in their columns (one per predicate), but not in whether there is more than one."""
        expected = width
        if n_columns == width and self._width is not None and (width == 1) != (self._width == 1):
            expected = self._width
        if n_columns != expected:
            raise InputError(
                f"{Place(self._name, line.number)}: the line has {n_columns} columns, separated by "
                f"{'tabs' if tabs else 'blanks'}, and the lines around it have {expected}. Give all lines the same."
            )
