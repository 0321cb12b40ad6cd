"""What users have, in: files, folders, patterns, `-` for standard input, or texts and tables in memory, to rows.

Each row has its place for messages. The ending of a file says how it is read, unless `format` does; `readers.READERS`
is the list of formats, `in_memory` says what else is taken.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from polyseme.errors import Advice, InputError, OptionError, nearest
from polyseme.files.bad_rows import BadRows, NullTexts
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.readers import ENDINGS, FIELDS, READERS, STRUCTURED, Reader
from polyseme.files.reading_options import ReadingOptions, RowRequest
from polyseme.files.source import COMPRESSIONS, STANDARD_INPUT, Reading, Source, open_source, suffixes
from polyseme.files.source_paths import InputFiles, find_files
from polyseme.options import flat
from polyseme.types import Document

_FORMAT_OPTIONS = sorted(frozenset().union(*(each.takes for each in READERS.values())))
"""Options that only some formats take."""
_SHOWN = 60
"""Characters of a file that a message shows."""
_NAMED = 30
"""Fields that a message lists."""
_MISSING = object()


def excerpt(text: str) -> str:
    r"""Text of a file as messages show it: on one line, and shortened.

    >>> excerpt("two\nlines")
    'two lines'
    """
    text = " ".join(text[: _SHOWN + 1].split())
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


class Place(NamedTuple):
    """Where a row is, as messages say it: `reviews.txt, line 3`."""

    name: str
    line: int
    """Counted from 1; of a row that takes several lines, the first."""
    unit: str = "line"
    """What is counted: lines, or rows where a file has no lines."""

    def __str__(self) -> str:
        return f"{self.name}, {self.unit} {self.line}"


@dataclass(frozen=True, slots=True)
class Row:
    """One text of a user, or the words of one, with an id and what came beside it."""

    content: str | Sequence[str]
    """A text still to be split into words, or the words themselves."""
    id: str
    place: Place
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    """The text that given words come from; None: the words with a blank between them."""
    spans: Sequence[tuple[int, int]] | None = None
    """Where each word starts and ends, in that text or in a content that is a text."""


# --- reading ----------------------------------------------------------------------------------------------------------


@flat(RowRequest)
def read_rows(request: RowRequest) -> Reading[Row]:
    """The rows of one file or of many, or of what is in memory, streamed: texts to be split into words, or words.

    What can be seen to be wrong at once is refused here, before the first row. An option that none of the files has a
    use for is refused, too, and so is one that names a field where a file has none.
    """
    bad_rows = BadRows() if request.on_error == "skip" else None
    null_texts = NullTexts() if request.null_is_empty else None
    request = replace(request, bad_rows=bad_rows, null_texts=null_texts)
    sources = inputs_of(request.sources)
    if isinstance(sources, InMemory):
        memory = _Memory(sources, request)
        return Reading(memory, memory.rows(), bad_rows, null_texts)
    chosen = None if request.format is None else _named(request.format)
    inputs = find_files(sources, endings=ENDINGS if chosen is None else None)
    formats = [chosen or _format_of(name) for name in inputs.names]
    _refuse_useless(request, inputs, formats)
    files = _Files(inputs, [READERS[name] for name in formats], request)
    return Reading(files, files.rows(), bad_rows, null_texts)


class _Memory:
    """What is in memory, row by row; it counts rows, where files count bytes."""

    def __init__(self, data: InMemory, request: RowRequest) -> None:
        self.name = data.name
        self.total = data.n_rows
        self.done = 0
        self._data = data
        self._request = request
        self._check()

    def rows(self) -> Iterator[Row]:
        data, request = self._data, self._request
        if data.columns is not None:
            records = (Record(values, place) for values, place in self._placed())
            yield from rows_of(records, request)
            return
        for text, place in self._placed():
            row = request.attempt(partial(_row_of, text, place, request))
            if row is None:
                continue
            if request.sentences is None or not isinstance(row.content, str):
                yield row
                continue
            for number, (start, end) in enumerate(request.sentences(row.content), start=1):
                yield replace(row, content=row.content[start:end], id=f"{row.id}.{number}", spans=None)

    def close(self) -> None:
        """Nothing is open."""

    def _placed(self) -> Iterator[tuple[Any, Place]]:
        for number, item in enumerate(self._data.rows(), start=1):
            self.done = number
            yield item, Place(self.name, number, self._data.unit)

    def _check(self) -> None:
        """Refuse columns that are not there, and options that have no use for what is in memory."""
        columns, request = self._data.columns, self._request
        useful = {"split", "on_error"} | (FIELDS if columns is not None else set())
        for option in request.changed(ReadingOptions):
            if option not in useful or (option == "split" and request.sentences is None):
                raise OptionError(
                    f"The option {option!r} is about files, and has no use for {self.name}. Leave it out."
                )
        if columns is None:
            return
        beside = () if request.keeps_all else request.fields
        for name in (request.field, request.id_field, *beside):
            if name is not None and name not in columns and name.partition(".")[0] not in columns:
                raise no_field(name, columns, self.name)


def _row_of(text: Any, place: Place, request: RowRequest) -> Row:
    """A text by itself, or a list of words; a document has both."""
    if isinstance(text, Document):
        spans = [(word.start, word.end) for word in text.words]
        content = list(map(str, text.words)) if text.pretokenized else text.text
        id = text.id or str(place.line)
        return Row(content, id, place, text.fields, text.text if text.pretokenized else None, spans)
    if text is None:
        text = _null_text(request)
    if not is_text(text):
        raise InputError(f"{place}: this is {_kind(text)}. A text must be a string, or a list of words.")
    _refuse_blank(text, place, request)
    return Row(text, str(place.line), place)


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
            f"{name}: files ending in {ending} are not read; those ending in {known} are. If each line of it is to be "
            "taken as a text, give it on standard input (-).",
            Advice("format", "If the file is one of these by another name, say so with {}."),
        )
    return ENDINGS.get(ending, "text")


def _refuse_useless(request: RowRequest, inputs: InputFiles, formats: Sequence[str]) -> None:
    """Options that name a field must mean something for every file, the others for one at least."""
    options = request.changed(ReadingOptions)
    for option in (each for each in _FORMAT_OPTIONS if each in options):
        takers = [name for name, reader in READERS.items() if option in reader.takes]
        without = [at for at, name in enumerate(formats) if name not in takers]
        if without and (option in FIELDS or len(without) == len(formats)):
            name, format = inputs.names[without[0]], formats[without[0]]
            raise OptionError(
                f"The option {option!r} is for {', '.join(takers)}, and {name} is read as {format}. Leave the "
                "option out, or leave the file out.",
                Advice("format", "Or say with {} what it is."),
            )


# --- records, which have fields by name -------------------------------------------------------------------------------


class Record(NamedTuple):
    """Values by the names of their fields."""

    values: Mapping[str, Any]
    place: Place


def rows_of(records: Iterable[Record | None], request: RowRequest) -> Iterator[Row]:
    """One row per record. Where no field was named, the first record must have exactly one it can be.

    A record that is None was skipped.
    """
    field = request.field
    first = True
    for number, record in enumerate(records, start=1):
        if record is None:
            continue
        if field is None:
            field = only_field(_text_names(record.values, request), record.values, record.place)
        row = request.attempt(partial(_row, record, field, number, request, first=first))
        if row is not None:
            yield row
            first = False


def _row(record: Record, field: str, number: int, request: RowRequest, *, first: bool) -> Row:
    value = _value(record, field)
    content = _content(_null_text(request) if value is None else value, field, record.place)
    _refuse_blank(content, record.place, request)
    by_number = request.id_field is None
    return Row(
        content=content,
        id=request.numbered(number) if by_number else _id(_value(record, str(request.id_field)), record, request),
        place=record.place,
        fields=_beside(record, field, request, first=first) if request.fields else {},
    )


def _null_text(request: RowRequest) -> str | None:
    """What a null is read as: an empty text, which is counted; None: it is refused."""
    if request.null_texts is None:
        return None
    request.null_texts.count += 1
    return ""


def _refuse_blank(content: str | Sequence[str], place: Place, request: RowRequest) -> None:
    """Where bad rows are skipped, a list with an empty word in it is one; elsewhere whoever needs words refuses it."""
    if request.bad_rows is None or isinstance(content, str):
        return
    for position, word in enumerate(content):
        if not word.strip():
            raise InputError(f"{place}: word {position} of the list (counted from 0) is empty.")


def only_field(candidates: Sequence[str], names: Iterable[str], place: Place | str) -> str:
    """The one field that can hold the texts, `id` aside; or a refusal that lists what there is."""
    candidates = [name for name in candidates if name.lower() != "id"] or candidates
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        problem = f"{len(candidates)} fields can be the text: {_list(candidates)}."
    else:
        problem = f"no field holds a text or a list of words. There are: {_list(names)}."
    raise InputError(f"{place}: {problem}", name_field("Name one with {}."))


def name_field(sentence: str) -> Advice:
    """Advice to name the field of the text, which verbs over tasks call another option."""
    return Advice("field", sentence, otherwise=Advice("text", sentence))


def no_field(name: str, names: Iterable[str], place: Place | str) -> InputError:
    """What to say of a field that is not there."""
    there = [excerpt(one) for one in names if one]
    close = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    few = list(dict.fromkeys([*there[:_NAMED], *close]))
    more = f" And {len(there) - len(few)} more." if len(there) > len(few) else ""
    return InputError(f"{place}: there is no field {name!r}. {nearest(name, few) if few else 'There are none.'}{more}")


def _text_names(values: Mapping[str, Any], request: RowRequest) -> list[str]:
    """The fields that may hold texts, as far as one record can tell: nulls may, too."""
    return [name for name, value in values.items() if name != request.id_field and (value is None or is_text(value))]


def is_text(value: Any) -> bool:
    """Whether a value is a text or a list of words."""
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(word, str) for word in value))


def _value(record: Record, name: str) -> Any:
    value = _looked_up(record.values, name)
    if value is _MISSING:
        raise no_field(name, record.values, record.place)
    return value


def _looked_up(values: Any, name: str) -> Any:
    if not isinstance(values, Mapping):
        return _MISSING
    if name in values:
        return values[name]
    outer, point, inner = name.partition(".")
    return _looked_up(values.get(outer), inner) if point else _MISSING


def _content(value: Any, field: str, place: Place) -> str | list[str]:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        for position, word in enumerate(value, start=1):
            if not isinstance(word, str):
                raise InputError(
                    f"{place}: the field {field!r} is a list, and item {position} of it is {_kind(word)}. A list of "
                    "words has strings in it and nothing else."
                )
        return value
    advice = "The text of a row must be a string, or a list of words."
    if isinstance(value, Mapping) and value:
        advice = f"Name what is in it with a point, for instance {field}.{excerpt(next(iter(value)))}."
    raise InputError(f"{place}: the field {field!r} is {_kind(value)}. {advice}")


def _id(value: Any, record: Record, request: RowRequest) -> str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise InputError(
        f"{record.place}: the field {request.id_field!r} is {_kind(value)}. An id must be a string or a whole number."
    )


def _beside(record: Record, field: str, request: RowRequest, *, first: bool) -> dict[str, Any]:
    """The other fields, by the options. The first record must have them; where a later one has not, it is None."""
    if request.keeps_all:
        return {name: value for name, value in record.values.items() if name not in (field, request.id_field)}
    values = {name: _looked_up(record.values, name) for name in request.fields}
    for name, value in values.items():
        if value is _MISSING and first:
            raise no_field(name, record.values, record.place)
    return {name: None if value is _MISSING else value for name, value in values.items()}


def _kind(value: Any) -> str:
    """What a value is, in a reader's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"a truth value ({str(value).lower()})"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return f"an object with the fields {_list(value)}" if value else "an empty object"
    return f"a {type(value).__name__}"


def _list(names: Iterable[str]) -> str:
    there = [excerpt(name) or "(one without a name)" for name in names]
    more = [f"and {len(there) - _NAMED} more"] if len(there) > _NAMED else []
    return ", ".join([*there[:_NAMED], *more]) or "none"
