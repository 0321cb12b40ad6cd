r"""CSV and TSV, as RFC 4180 has them: a header, then one record per line, with the same number of fields.

- A field that begins with a double quote ends with one, and may have delimiters, line ends and quotes (doubled) in
  it. A quote further on in a field is a quote. With `quotes="none"` all quotes are: many a TSV is written so.
- Line ends are `\n` and `\r\n`; inside of quotes they are text, as they stand. A lone `\r` is text.
- A record with more or fewer fields than the header is refused. Blank lines hold no record.

Python's own `csv` is not used: its bound on the length of a field is one for the whole process, and it cannot say in
which line a quote was opened.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from polyseme.errors import Advice, InputError, PolysemeWarning
from polyseme.files.bad_rows import LostInputError
from polyseme.files.lines import Line, requested_lines
from polyseme.files.reading_options import RowRequest
from polyseme.files.rows import Place, Record, Row, no_field, only_field, rows_of
from polyseme.files.source import Source

_Fields = tuple[list[str], Place]
"""The fields of a record, and the line in which it begins."""

_NO_QUOTES = Advice("quotes", "Where quotes are characters like any other, say so with {}.", "none")
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_NUMBER = re.compile(r"\s*[-+]?[0-9]+([.,][0-9]+)?\s*")
_LOOKED_AT = 100
"""How many rows are looked at to tell a column of numbers."""


def _read(source: Source, request: RowRequest, *, format: str) -> Iterator[Row]:
    delimiter = request.delimiter or _DELIMITERS[format]
    lines = requested_lines(source, request, with_ends=True)
    records = _split(lines, source.name, delimiter, request)
    header, place = next(each for each in records if each is not None)
    request = _chosen(header, place, request, delimiter)
    return _warn_of_numbers(rows_of(_records(records, header, source.name, request), request), request, source.name)


read_csv: Callable[[Source, RowRequest], Iterator[Row]] = partial(_read, format="csv")
read_tsv: Callable[[Source, RowRequest], Iterator[Row]] = partial(_read, format="tsv")


# --- the header ------------------------------------------------------------------------------------------------------


def _chosen(header: list[str], place: Place, request: RowRequest, delimiter: str) -> RowRequest:
    """The request with the field of the text, after a check that the header has all fields."""
    if any("\r" in name for name in header):
        raise InputError(
            f"{place}: there is a carriage return in the header; only \\n and \\r\\n end a line. If each ends one, "
            "convert the file: tr '\\r' '\\n'"
        )
    named = [name for name in header if name and name != request.id_field]
    if not named:
        raise InputError(f"{place}: no column has a name. The first line must be a header that names the columns.")
    field = only_field(named, header, place) if request.field is None else request.field
    beside = [name for name in header if name] if request.keeps_all else request.fields
    for name in (field, *([] if request.id_field is None else [request.id_field]), *beside):
        if name not in header:
            raise InputError(no_field(name, header, place), *_other_delimiter(header, delimiter))
        if header.count(name) > 1:
            raise InputError(f"{place}: {header.count(name)} columns have the name {name!r}. Give each its own.")
    return replace(request, field=field)


def _other_delimiter(header: list[str], delimiter: str) -> list[Advice]:
    """A word on what seems to separate the fields, if it is not what should."""
    for other, name in ((",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "bar")):
        if len(header) == 1 and other != delimiter and other in header[0]:
            return [Advice("delimiter", f"If the {name} separates the fields, say so with {{}}.")]
    return []


def _records(
    records: Iterable[_Fields | None], header: list[str], name: str, request: RowRequest
) -> Iterator[Record | None]:
    any_rows = False
    for each in records:
        any_rows = True
        yield None if each is None else request.attempt(partial(_record, each, header))
    if not any_rows:
        raise InputError(f"{name} has a header and no rows: there is nothing to read.")


def _record(fields: _Fields, header: list[str]) -> Record:
    values, place = fields
    if len(values) != len(header):
        raise InputError(
            f"{place}: {_counted(len(values))}, and the header has {len(header)}. A text that has the delimiter in "
            f"it must be in double quotes.",
            _NO_QUOTES,
        )
    return Record(dict(zip(header, values, strict=True)), place)


def _counted(count: int) -> str:
    return "there is 1 field" if count == 1 else f"there are {count} fields"


def _warn_of_numbers(rows: Iterable[Row], request: RowRequest, name: str) -> Iterator[Row]:
    """The same rows, with a warning if all texts of the first are numbers."""
    numbers: int | None = 0
    for row in rows:
        if numbers is not None:
            numbers = numbers + 1 if _NUMBER.fullmatch(str(row.content)) else None
        if numbers == _LOOKED_AT:
            _say_numbers(request, name, f"the first {_LOOKED_AT} rows")
            numbers = None
        yield row
    if numbers:
        _say_numbers(request, name, "all rows")


def _say_numbers(request: RowRequest, name: str, where: str) -> None:
    warnings.warn(
        f"{name}: the field {request.field!r} is a number in {where}, and is read as text. Is it the one you meant?",
        PolysemeWarning,
        stacklevel=5,
    )


# --- lines to fields -------------------------------------------------------------------------------------------------


def _split(lines: Iterator[Line], name: str, delimiter: str, request: RowRequest) -> Iterator[_Fields | None]:
    """The fields of each record, and the line in which it begins; None where bad records are skipped."""
    quoted = request.quotes == "double"
    for line in lines:
        text = _without_end(line.text)
        if not text:
            continue
        place = Place(name, line.number)
        if quoted and '"' in text:
            fields = request.attempt(partial(_with_quotes, line, lines, delimiter, name, request.max_text_bytes))
            yield None if fields is None else (fields, place)
        else:
            yield text.split(delimiter), place


def _with_quotes(line: Line, lines: Iterator[Line], delimiter: str, name: str, longest: int) -> list[str]:
    """The fields of a record that has quotes in it; it goes on in the next lines while one is open."""
    fields: list[str] = []
    at = 0
    while True:
        if line.text.startswith('"', at):
            field, line, at = _quoted_field(line, at + 1, lines, delimiter, Place(name, line.number), longest)
        else:
            end = line.text.find(delimiter, at)
            end = end if end >= 0 else len(_without_end(line.text))
            field, at = line.text[at:end], end
        fields.append(field)
        if not line.text.startswith(delimiter, at):
            return fields
        at += 1


def _quoted_field(
    line: Line, at: int, lines: Iterator[Line], delimiter: str, opened: Place, longest: int
) -> tuple[str, Line, int]:
    """A field from after its first quote on; the line it ends in, and what comes after its last quote there."""
    parts: list[str] = []
    length = 0
    while True:
        quote = line.text.find('"', at)
        if quote < 0:
            parts.append(line.text[at:])
            length += len(parts[-1])
            line, at = _next_line(lines, opened, length, longest), 0
        elif line.text.startswith('"', quote + 1):
            parts.append(line.text[at : quote + 1])
            at = quote + 2
        else:
            parts.append(line.text[at:quote])
            at = quote + 1
            if not line.text.startswith(delimiter, at) and at < len(_without_end(line.text)):
                where = f" in line {line.number}" if line.number != opened.line else ""
                raise InputError(
                    f"{opened}: the double quote that opens a field is closed{where} by one with {line.text[at]!r} "
                    "behind it. A quote inside of quotes must be doubled.",
                    _NO_QUOTES,
                )
            return "".join(parts), line, at


def _next_line(lines: Iterator[Line], opened: Place, length: int, longest: int) -> Line:
    """The line in which a field goes on that has had so many characters; after many, a quote was left open."""
    line = next(lines, None)
    if line is None or length > longest:
        how_far = "to the end of the file" if line is None else f"for {length:,} characters"
        raise LostInputError(
            f"{opened}: a double quote opens a field and is not closed {how_far}. A quote inside of quotes must be "
            "doubled.",
            _NO_QUOTES,
            *([] if line is None else [Advice("max_text_bytes", "If the field is so long, allow it with {}.")]),
        )
    return line


def _without_end(text: str) -> str:
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
