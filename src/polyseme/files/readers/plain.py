"""Plain text: one text per line, a sentence of a line, a paragraph between blank lines, or a whole file.

Texts of several lines keep the line ends between them as they stand, so that offsets point into what was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyseme.files.lines import Line, blocks, requested_lines, within
from polyseme.files.reading_options import RowRequest, Sentences
from polyseme.files.rows import Place, Row
from polyseme.files.source import Source


def read(source: Source, request: RowRequest) -> Iterator[Row]:
    """The texts of a file. The id of a text is the number of its line, or of its first line; empty lines are texts.

    The id of a sentence names its line and its place in it: `12.2` is the second sentence of line 12. The end of a line
    ends a sentence, and an empty line has none.
    """
    if request.sentences is not None:
        return _sentences(
            requested_lines(source, request),
            source.name,
            request,
            request.sentences,
        )
    if request.split == "line":
        return _lines(requested_lines(source, request), source.name, request)
    lines = requested_lines(source, request, with_ends=True)
    if request.split == "paragraph":
        return _paragraphs(lines, source.name, request)
    return _whole(lines, source.name, request)


def _lines(lines: Iterable[Line], name: str, request: RowRequest) -> Iterator[Row]:
    for line in lines:
        yield Row(line.text, request.numbered(line.number), Place(name, line.number))


def _sentences(lines: Iterable[Line], name: str, request: RowRequest, sentences: Sentences) -> Iterator[Row]:
    for line in lines:
        for number, (start, end) in enumerate(sentences(line.text), start=1):
            id = f"{request.numbered(line.number)}.{number}"
            yield Row(line.text[start:end], id, Place(name, line.number))


def _paragraphs(lines: Iterable[Line], name: str, request: RowRequest) -> Iterator[Row]:
    for block in blocks(lines, name, request.max_text_bytes):
        first = block[0].number
        yield Row(_joined(block), request.numbered(first), Place(name, first))


def _whole(lines: Iterable[Line], name: str, request: RowRequest) -> Iterator[Row]:
    yield Row(_joined(within(lines, name, request.max_text_bytes)), request.file or request.numbered(1), Place(name, 1))


def _joined(lines: Iterable[Line]) -> str:
    """The lines as one text, without the end of the last."""
    text = "".join(line.text for line in lines)
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
