"""Users' files in: paths, folders, patterns, or `-` for standard input, to rows.

The ending of a file says how it is read, unless `format` does; `readers.READERS` is the list of formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.readers import ENDINGS, FIELDS, READERS, STRUCTURED, Reader
from polyseme.files.reading_options import ReadingOptions, RowRequest
from polyseme.files.rows import Row
from polyseme.files.source import COMPRESSIONS, STANDARD_INPUT, Reading, Source, open_source, suffixes
from polyseme.files.source_paths import InputFiles, find_files
from polyseme.options import flat

_TAKEN = ("field", "id_field", "fields", "words", "split", "quotes", "delimiter", "check_text")
"""Options that only some formats take."""


@flat(RowRequest)
def read_rows(request: RowRequest) -> Reading[Row]:
    """The rows of one file or of many, streamed: texts still to be split into words, or given words.

    What can be seen to be wrong at once is refused here, before the first row. An option that none of the files has a
    use for is refused, too, and so is one that names a field where a file has none.
    """
    chosen = None if request.format is None else _named(request.format)
    inputs = find_files(request.sources, endings=ENDINGS if chosen is None else None)
    formats = [chosen or _format_of(name) for name in inputs.names]
    _refuse_useless(request, inputs, formats)
    files = _Files(inputs, [READERS[name] for name in formats], request)
    return Reading(files, files.rows())


class _Files:
    """Sources that are read one after another; the first is open from the start."""

    def __init__(self, inputs: InputFiles, readers: Sequence[Reader], request: RowRequest) -> None:
        self.name = inputs.name
        self.total = inputs.total
        self._inputs = inputs
        self._readers = readers
        self._request = request
        self._before = 0
        self._source: Source
        self._first = self._opened(0)

    @property
    def done(self) -> int:
        return self._before + self._source.done

    def rows(self) -> Iterator[Row]:
        for number, size in enumerate(self._inputs.sizes):
            try:
                yield from self._opened(number) if number else self._first
            finally:
                self._source.close()
            if number + 1 < len(self._inputs.names):
                self._before += self._source.done if size is None else size

    def close(self) -> None:
        self._source.close()

    def _opened(self, number: int) -> Iterator[Row]:
        name = self._inputs.names[number]
        request = replace(self._request, file=self._inputs.labels[number])
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


def _refuse_useless(request: RowRequest, inputs: InputFiles, formats: Sequence[str]) -> None:
    """Options that name a field must mean something for every file, the others for one at least."""
    options = request.changed(ReadingOptions)
    for option in (each for each in _TAKEN if each in options):
        takers = [name for name, reader in READERS.items() if option in reader.takes]
        without = [at for at, name in enumerate(formats) if name not in takers]
        if without and (option in FIELDS or len(without) == len(formats)):
            name, format = inputs.names[without[0]], formats[without[0]]
            raise OptionError(
                f"The option {option!r} is for {', '.join(takers)}, and {name} is read as {format}. Leave the "
                "option out, or leave the file out, or say with --format (format=…) what it is."
            )
