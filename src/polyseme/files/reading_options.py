"""The reading options: which field holds the texts, what goes beside them, where a text ends and the next begins.

Not every format takes every option; `readers.READERS` lists which do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

from polyseme.errors import OptionError
from polyseme.files.readers import READERS
from polyseme.files.source import LONGEST
from polyseme.options import Options, check_choice, doc, option

if TYPE_CHECKING:
    from polyseme.files.bad_rows import BadRows, NullTexts
    from polyseme.files.source_paths import Sources

Words = Literal["syntactic", "surface"]
Split = Literal["line", "sentence", "paragraph", "document"]
Quotes = Literal["double", "none"]
OnError = Literal["stop", "skip"]
FieldName = str
"""The name of a column; a number is converted to a string."""

Value = TypeVar("Value")

Sentences = Callable[[str], Sequence[tuple[int, int]]]
"""A text → where its sentences start and end. Readers have none; a caller that splits into sentences passes it."""

ALL = "all"
"""As `fields`: everything that is neither the text nor its id."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """How tables are read."""

    section: ClassVar[str] = "Reading the input"

    format: str | None = option(
        None, f"Format of the input: {', '.join(READERS)}.", "FORMAT", default="by the file suffix"
    )
    quotes: Quotes = option(
        "double",
        "Quoting in CSV and TSV: double (fields may be in double quotes), or none (a quote is an ordinary character).",
        "QUOTES",
    )
    delimiter: str | None = option(
        None, "Field separator of CSV and TSV: one character.", "CHARACTER", default="a comma for CSV, a tab for TSV"
    )

    max_text_bytes: int = option(
        LONGEST,
        "Maximum size in bytes of a line, or of a text of several lines; a longer one is refused before it is loaded "
        "into memory.",
        "BYTES",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_text_bytes < 1:
            raise OptionError(f"max_text_bytes must be at least 1. Got {self.max_text_bytes} instead.")
        check_choice("quotes", self.quotes, get_args(Quotes))
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise OptionError(
                "The delimiter must be one character, and neither a quote nor the end of a line. "
                f"Got {self.delimiter!r} instead."
            )


@dataclass(frozen=True, kw_only=True)
class TextOptions(TableOptions):
    """How texts are read."""

    section: ClassVar[str] = "Reading the input"

    field: FieldName | None = option(
        None,
        "Input field (column, key) with the text, or with the list of its words.",
        "NAME",
        default="the only one",
    )
    id_field: str | None = option(None, "Input field with the ID of each text.", "NAME", default="its number")
    words: Words = option(
        "syntactic", "Words of CoNLL-U files: syntactic words (do n't), or surface tokens as written (don't).", "WORDS"
    )
    split: Split = option(
        "line",
        "Unit of text in plain-text files: line, sentence (lines are split into sentences), paragraph, or document "
        "(the whole file).",
        "UNIT",
    )
    check_text: bool = option(
        True,
        "Refuse CoNLL-U sentences whose words do not match their text (the default).",
        flags="--check-text/--no-check-text",
    )
    on_error: OnError = option(
        "stop",
        "What to do with a row that cannot be read: stop (with an error), or skip (leave it out, and report its line).",
        "ACTION",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "field", None if self.field is None else str(self.field))
        check_choice("on_error", self.on_error, get_args(OnError))
        check_choice("words", self.words, get_args(Words))
        check_choice("split", self.split, get_args(Split))


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(TextOptions):
    """How texts are read, and which fields are carried over to the output."""

    section: ClassVar[str] = "Reading the input"

    fields: str | Sequence[str] = option(
        (), "Additional input fields to copy to the output, separated by commas, or all.", "NAMES", parse="names"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fields", (self.fields,) if isinstance(self.fields, str) else tuple(self.fields))


def requested_fields(fields: Mapping[str, Any], reading: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that options of reading name; more may have been read for the work itself, as lemmas are."""
    names = tuple(reading.get("fields", ()))
    return dict(fields) if names == (ALL,) else {name: fields.get(name) for name in names}


@dataclass(frozen=True, kw_only=True)
class RowRequest(ReadingOptions):
    """What `read_rows` takes, and the readers of the formats go by."""

    sources: Sources = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "A path, folder, pattern or `-`, or several of them; or texts, a frame or a dataset. A row's id is its "
            "number, counted from 1; of a text in plain text, the number of its (first) line, and of a sentence also "
            "its place there (12.2). Where "
            "several files are read, the name of the file goes before it."
        ),
    )
    sentences: Sentences | None = option(None, "What finds the sentences of a line, where they are texts.")
    file: str = option("", "Name that goes before the number of a row; set for each of several files.")
    bad_rows: BadRows | None = option(None, "Where rows that are skipped are reported; set where they are.")
    null_is_empty: bool = option(False, "Read a null in the place of a text as an empty text, and report how many.")
    null_texts: NullTexts | None = option(None, "Where such nulls are counted; set where they are.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split != "sentence":
            object.__setattr__(self, "sentences", None)
        elif self.sentences is None:
            raise OptionError("Nothing is split into sentences here. Have a line, a paragraph or a document as a text.")

    @property
    def keeps_all(self) -> bool:
        return self.fields == (ALL,)

    def attempt(self, make: Callable[[], Value]) -> Value | None:
        """What is made of a row; None where it cannot be made, and such rows are skipped."""
        return make() if self.bad_rows is None else self.bad_rows.attempt(make)

    def numbered(self, number: int) -> str:
        """The id of the row with this number, where it has no other."""
        return f"{self.file}:{number}" if self.file else str(number)
