"""Users' files in: paths, folders, patterns, or `-` for standard input, to rows.

The ending of a file says how it is read, unless `format` does. `READERS` is the list; a new format is a file in
`readers/` and a line here. Endings that are not in it are read as plain text, except those of formats with a structure
of their own (`STRUCTURED`): taking their lines for texts would be wrong without anyone noticing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import cast

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.reading_options import Asked, Quotes, Sentences, Split, Words
from polyseme.files.rows import Row
from polyseme.files.source import COMPRESSIONS, STANDARD_INPUT, Reading, Source, open_source, suffixes
from polyseme.files.source_paths import Found, Sources, find_files


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How one format is read."""

    home: str
    """The module of `readers/` and the function in it; loaded when first needed, since Parquet brings Arrow."""
    endings: tuple[str, ...]
    takes: frozenset[str]
    """The options that mean something for this format."""

    def load(self) -> Callable[[Source, Asked], Iterator[Row]]:
        module, _, function = self.home.partition(":")
        loaded = importlib.import_module(f"polyseme.files.readers.{module}")
        return cast("Callable[[Source, Asked], Iterator[Row]]", getattr(loaded, function))


_FIELDS = frozenset({"field", "id_field", "fields"})

READERS: Mapping[str, Reader] = {
    "text": Reader(home="plain:read", endings=(".txt", ".text"), takes=frozenset({"split", "sentences"})),
    "jsonl": Reader(home="jsonl:read", endings=(".jsonl", ".ndjson"), takes=_FIELDS),
    "csv": Reader(home="delimited:read_csv", endings=(".csv",), takes=_FIELDS | {"quotes", "delimiter"}),
    "tsv": Reader(home="delimited:read_tsv", endings=(".tsv", ".tab"), takes=_FIELDS | {"quotes", "delimiter"}),
    "parquet": Reader(home="parquet:read", endings=(".parquet", ".pq"), takes=_FIELDS),
    "conll": Reader(home="conll:read", endings=(".conll", ".bio", ".iob"), takes=frozenset({"field", "fields"})),
    "conllu": Reader(home="conllu:read", endings=(".conllu",), takes=_FIELDS | {"words", "check_text"}),
}
"""From the name of a format to how it is read."""

ENDINGS: Mapping[str, str] = {ending: name for name, reader in READERS.items() for ending in reader.endings}
"""From the ending of a file, in small letters and without that of its compression, to the name of its format."""

STRUCTURED = (".json", ".xml", ".html", ".htm", ".rtf", ".yaml", ".yml", ".conllup")
"""Endings of formats with a structure of their own for which there is no reader."""


def read_rows(
    sources: Sources,
    *,
    field: str | int | None = None,
    id_field: str | None = None,
    fields: str | Sequence[str] = (),
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    sentences: Sentences | None = None,
) -> Reading[Row]:
    """The rows of one file or of many, streamed: texts still to be split into words, or given words.

    What can be seen to be wrong at once is refused here, before the first row. An option that none of the files has a
    use for is refused, too, and so is one that names a field where a file has none.

    Args:
        sources: a path, folder, pattern or `-`, or several of them. A row's id is its number, counted from 1; where
            several files may come together, the name of the file goes before it.
        field: the field, column or key with the text, or with the list of its words. In CoNLL a number from 1 on.
        id_field: the field with the id of a row.
        fields: names of other fields to keep beside the text, or "all".
        format: the name of a format, where the ending does not say it: text, jsonl, csv, tsv, parquet, conll, conllu.
        words: in CoNLL-U, whether words are the syntactic words or the tokens of the surface.
        split: in plain text, whether a text is a line, a sentence, a paragraph between blank lines, or the whole
            document.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        check_text: in CoNLL-U, whether a sentence whose words do not add up to its text is refused.
        sentences: what finds the sentences of a line, where `split` asks for them (`text.sentences`).
    """
    asked = Asked(
        field=None if field is None else str(field),
        id_field=id_field,
        fields=(fields,) if isinstance(fields, str) else tuple(fields),
        words=words,
        split=split,
        sentences=sentences if split == "sentence" else None,
        quotes=quotes,
        delimiter=delimiter,
        check_text=check_text,
    )
    chosen = None if format is None else _named(format)
    found = find_files(sources, endings=ENDINGS if chosen is None else None)
    formats = [chosen or _format_of(name) for name in found.names]
    _refuse_useless(asked, found, formats)
    files = _Files(found, [READERS[name] for name in formats], asked)
    return Reading(files, files.rows())


class _Files:
    """Sources that are read one after another; the first is open from the start."""

    def __init__(self, found: Found, readers: Sequence[Reader], asked: Asked) -> None:
        self.name = found.name
        self.total = found.total
        self._found = found
        self._readers = readers
        self._asked = asked
        self._before = 0
        self._source: Source
        self._first = self._opened(0)

    @property
    def done(self) -> int:
        return self._before + self._source.done

    def rows(self) -> Iterator[Row]:
        for number, size in enumerate(self._found.sizes):
            try:
                yield from self._opened(number) if number else self._first
            finally:
                self._source.close()
            if number + 1 < len(self._found.names):
                self._before += self._source.done if size is None else size

    def close(self) -> None:
        self._source.close()

    def _opened(self, number: int) -> Iterator[Row]:
        name = self._found.names[number]
        asked = replace(self._asked, file=self._found.labels[number])
        read = self._readers[number].load()
        self._source = open_source(name)
        try:
            return read(self._source, asked)
        except BaseException:
            self._source.close()
            raise


def _named(format: str) -> str:
    name = format.lower().removeprefix(".")
    name = ENDINGS.get(f".{name}", name)
    if name not in READERS:
        raise OptionError(f"There is no format {format!r}. {nearest(name, READERS)}")
    return name


def _format_of(name: str) -> str:
    if name == STANDARD_INPUT:
        return "text"
    ending = suffixes(name)[0]
    if ending in STRUCTURED:
        known = ", ".join([*ENDINGS, *COMPRESSIONS])
        raise InputError(
            f"{name}: files ending in {ending} are not read; those ending in {known} are. If the file is one of these "
            "by another name, say so with --format (format=…). If each line of it is to be taken as a text, give it on "
            "standard input (-)."
        )
    return ENDINGS.get(ending, "text")


def _refuse_useless(asked: Asked, found: Found, formats: Sequence[str]) -> None:
    """Options that name a field must mean something for every file, the others for one at least."""
    for option in fields_of(asked):
        if getattr(asked, option.name) == option.default:
            continue
        takers = [name for name, reader in READERS.items() if option.name in reader.takes]
        without = [at for at, name in enumerate(formats) if name not in takers]
        if without and (option.name in _FIELDS or len(without) == len(formats)):
            name, format = found.names[without[0]], formats[without[0]]
            raise OptionError(
                f"The option {option.name!r} is for {', '.join(takers)}, and {name} is read as {format}. Leave the "
                "option out, or leave the file out, or say with --format (format=…) what it is."
            )
