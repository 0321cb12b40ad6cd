"""What the user asks of a reader: which field holds the texts, what goes beside them, how a text is told from the next.

The names are those of `read_rows` and of the command line. Not every format takes every option; `read.READERS` says
which do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from polyseme.errors import OptionError, nearest

Words = Literal["syntactic", "surface"]
Split = Literal["line", "sentence", "paragraph", "document"]
Quotes = Literal["double", "none"]

Sentences = Callable[[str], Sequence[tuple[int, int]]]
"""A text → where its sentences start and end. Files know of none; who asks for sentences brings it."""

ALL = "all"
"""As `fields`: everything that is neither the text nor its id."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of a reader, and what its rows are numbered after."""

    field: str | None = None
    """The field that holds the text, or its words; None where there is only one it can be."""
    id_field: str | None = None
    """The field that holds the id of a row; None: its number, or what the format knows as one."""
    fields: tuple[str, ...] = ()
    """Other fields to keep beside the text; `("all",)` for every one there is."""
    words: Words = "syntactic"
    """What is a word in CoNLL-U: the syntactic words (*do* *n't*) or the tokens as written (*don't*)."""
    split: Split = "line"
    """What is a text in plain text."""
    sentences: Sentences | None = None
    """What splits a line of plain text into sentences."""
    quotes: Quotes = "double"
    """Whether double quotes enclose fields of CSV and TSV or are characters like any other."""
    delimiter: str | None = None
    """What separates the fields of CSV and TSV, where that is not the comma or the tab."""
    check_text: bool = True
    """Whether a CoNLL-U sentence whose words do not add up to its `# text` is refused."""
    file: str = ""
    """Where several files are read: the name of this one, which goes before the number of a row."""

    def __post_init__(self) -> None:
        for name, values in (("words", Words), ("split", Split), ("quotes", Quotes)):
            given = getattr(self, name)
            if given not in get_args(values):
                raise OptionError(f"There is no {name} {given!r}. {nearest(str(given), get_args(values))}")
        if self.split == "sentence" and self.sentences is None:
            raise OptionError("Nothing is split into sentences here. Have a line, a paragraph or a document as a text.")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise OptionError(
                "The delimiter must be one character, and neither a quote nor the end of a line. "
                f"Got {self.delimiter!r} instead."
            )

    @property
    def keeps_all(self) -> bool:
        return self.fields == (ALL,)

    def numbered(self, number: int) -> str:
        """The id of the row with this number, where it has no other."""
        return f"{self.file}:{number}" if self.file else str(number)


def told(**options: Any) -> dict[str, Any]:
    """Those options of `read_rows` that say something: the others are as if they had not been given.

    >>> told(field="review", split="line", format=None)
    {'field': 'review'}
    """
    usual = {"format": None} | {each.name: each.default for each in fields(Asked)}
    return {name: value for name, value in options.items() if value != usual[name]}
