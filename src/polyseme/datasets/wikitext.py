"""WikiText (Merity et al. 2017): Wikipedia's good articles as one stream of words, rare ones written `<unk>`.

Every line that is not blank ends with a marker, which is predicted too. The published figures also count the ends of
blank lines, which are easy to predict; here blank lines are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyseme.files.lines import read_lines
from polyseme.types import Document, Word

FILES = ("wiki.test.tokens", "wikitext-2/wiki.test.tokens", "tasks/wikitext-2/wiki.test.tokens")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class WordStream:
    """The lines of a file, in their order, each of words with blanks between them."""

    name: str
    lines: list[str]

    @property
    def documents(self) -> list[Document]:
        """The lines with their words."""
        words = ([Word(each[0], *each.span()) for each in _WORD.finditer(line)] for line in self.lines)
        return [Document(text=line, words=own) for line, own in zip(self.lines, words, strict=True)]

    @property
    def n_words(self) -> int:
        """With one marker per line."""
        return sum(len(line.split()) + 1 for line in self.lines)


def read_wikitext(files: Sequence[Path]) -> list[WordStream]:
    """The streams of some files."""
    streams = []
    for file in files:
        with read_lines(file) as lines:
            stream = WordStream(file.name, [line.text.strip() for line in lines if line.text.strip()])
        streams.append(stream)
    return streams
