"""Plain text: a text a line, a sentence of a line, a paragraph between blank lines, or a whole file.

Texts of several lines keep the line ends between them as they stand, so that offsets point into what was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyseme.files.lines import Line, blocks, lines_of
from polyseme.files.reading_options import Asked, Sentences
from polyseme.files.rows import Place, Row
from polyseme.files.source import Source


def read(source: Source, asked: Asked) -> Iterator[Row]:
    """The texts of a file. A line's id is its number, a paragraph's likewise; an empty line is an empty text.

    Sentences are numbered over the whole file; a line's end is the end of one, and an empty line has none.
    """
    if asked.sentences is not None:
        return _sentences(lines_of(source), source.name, asked, asked.sentences)
    if asked.split == "line":
        return _lines(lines_of(source), source.name, asked)
    lines = lines_of(source, with_ends=True)
    if asked.split == "paragraph":
        return _paragraphs(lines, source.name, asked)
    return _whole(lines, source.name, asked)


def _lines(lines: Iterable[Line], name: str, asked: Asked) -> Iterator[Row]:
    for line in lines:
        yield Row(line.text, asked.numbered(line.number), Place(name, line.number))


def _sentences(lines: Iterable[Line], name: str, asked: Asked, sentences: Sentences) -> Iterator[Row]:
    number = 0
    for line in lines:
        for start, end in sentences(line.text):
            number += 1
            yield Row(line.text[start:end], asked.numbered(number), Place(name, line.number))


def _paragraphs(lines: Iterable[Line], name: str, asked: Asked) -> Iterator[Row]:
    for number, block in enumerate(blocks(lines), start=1):
        yield Row(_joined(block), asked.numbered(number), Place(name, block[0].number))


def _whole(lines: Iterable[Line], name: str, asked: Asked) -> Iterator[Row]:
    yield Row(_joined(lines), asked.file or asked.numbered(1), Place(name, 1))


def _joined(lines: Iterable[Line]) -> str:
    """The lines as one text, without the end of the last."""
    text = "".join(line.text for line in lines)
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
