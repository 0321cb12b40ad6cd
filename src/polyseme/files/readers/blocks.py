"""Lines in blocks with blank lines between them: paragraphs, and the sentences of CoNLL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyseme.errors import InputError
from polyseme.files.lines import Line
from polyseme.files.rows import Place


def blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each block. A line is blank that has nothing in it but ASCII blanks, tabs and its end."""
    block: list[Line] = []
    for line in lines:
        if line.text.strip(" \t\r\n"):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def sentences(lines: Iterable[Line], name: str) -> Iterator[list[Line]]:
    """The blocks of a file in which a carriage return within a line can only be a mistake."""
    return blocks(_without_returns(lines, name))


def _without_returns(lines: Iterable[Line], name: str) -> Iterator[Line]:
    for line in lines:
        if "\r" in line.text:
            raise InputError(
                f"{Place(name, line.number)}: there is a carriage return within the line; only \\n and \\r\\n end a "
                "line. If each ends one, convert the file: tr '\\r' '\\n'"
            )
        yield line
