"""Lines in blocks with blank lines between them: paragraphs, and the sentences of CoNLL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyseme.files.lines import Line


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
