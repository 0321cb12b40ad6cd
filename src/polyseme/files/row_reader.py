"""Users' files in: paths, folders, patterns, or `-` for standard input, to rows.

The ending of a file says how it is read, unless `format` does. `READERS` is the list; a new format is a file in
`readers/` and a line here. Endings that are not in it are read as plain text, except those of formats with a structure
of their own (`STRUCTURED`): taking their lines for texts would be wrong without anyone noticing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.reading_options import ReadingOptions, RowRequest
from polyseme.files.rows import Row
from polyseme.files.source import COMPRESSIONS, STANDARD_INPUT, Reading, Source, open_source, suffixes
from polyseme.files.source_paths import Found, find_files
from polyseme.options import flat


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How one format is read."""

    home: str
    """The module of `readers/` and the function in it; loaded when first needed, since Parquet brings Arrow."""
    endings: tuple[str, ...]
    takes: frozenset[str]
    """The options that mean something for this format."""

    def load(self) -> Callable[[Source, RowRequest], Iterator[Row]]:
        module, _, function = self.home.partition(":")
        loaded = importlib.import_module(f"polyseme.files.readers.{module}")
        return cast("Callable[[Source, RowRequest], Iterator[Row]]", getattr(loaded, function))


_FIELDS = frozenset({"field", "id_field", "fields"})
_TAKEN = ("field", "id_field", "fields", "words", "split", "quotes", "delimiter", "check_text")
"""Options that only some formats take."""

READERS: Mapping[str, Reader] = {
    "text": Reader(home="plain:read", endings=(".txt", ".text"), takes=frozenset({"split"})),
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


@flat(RowRequest)
def read_rows(request: RowRequest) -> Reading[Row]:
    """The rows of one file or of many, streamed: texts still to be split into words, or given words.

    What can be seen to be wrong at once is refused here, before the first row. An option that none of the files has a
    use for is refused, too, and so is one that names a field where a file has none.
    """
    chosen = None if request.format is None else _named(request.format)
    found = find_files(request.sources, endings=ENDINGS if chosen is None else None)
    formats = [chosen or _format_of(name) for name in found.names]
    _refuse_useless(request, found, formats)
    files = _Files(found, [READERS[name] for name in formats], request)
    return Reading(files, files.rows())


class _Files:
    """Sources that are read one after another; the first is open from the start."""

    def __init__(self, found: Found, readers: Sequence[Reader], request: RowRequest) -> None:
        self.name = found.name
        self.total = found.total
        self._found = found
        self._readers = readers
        self._request = request
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
        request = replace(self._request, file=self._found.labels[number])
        read = self._readers[number].load()
        self._source = open_source(name)
        try:
            return read(self._source, request)
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


def _refuse_useless(request: RowRequest, found: Found, formats: Sequence[str]) -> None:
    """Options that name a field must mean something for every file, the others for one at least."""
    options = request.changed(ReadingOptions)
    for option in (each for each in _TAKEN if each in options):
        takers = [name for name, reader in READERS.items() if option in reader.takes]
        without = [at for at, name in enumerate(formats) if name not in takers]
        if without and (option in _FIELDS or len(without) == len(formats)):
            name, format = found.names[without[0]], formats[without[0]]
            raise OptionError(
                f"The option {option!r} is for {', '.join(takers)}, and {name} is read as {format}. Leave the "
                "option out, or leave the file out, or say with --format (format=…) what it is."
            )
