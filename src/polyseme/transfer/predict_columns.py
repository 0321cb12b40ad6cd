"""Which fields of what `predict` reads hold the parts of an item: as they are named, or as they were in training.

SQuAD's JSON, which has no columns, is read as one row per question, with the passage as its text.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError
from polyseme.files.in_memory import InMemory, Inputs, inputs_of, names_of
from polyseme.files.readers import ENDINGS
from polyseme.files.reading_options import ALL, ReadingOptions
from polyseme.files.rows import Place, Row, no_field
from polyseme.files.source import Reading, suffixes
from polyseme.files.source_paths import InputFiles, Sources, find_files
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.data_columns import column_in, header_of, marks_of, text_of
from polyseme.tasks.edge import SPANS, Edge
from polyseme.tasks.items import Item
from polyseme.tasks.kind import Kind
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.span import squad_questions
from polyseme.tasks.tag import SENTENCES, conllu_name
from polyseme.verb_options.evaluation_options import PredictOptions, PredictTextsOptions

QUESTION = "question"
SQUAD_FIELDS = (QUESTION, "title")
"""What comes beside the passage in SQuAD's JSON."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of fields."""

    field: str | None = None
    """That of the text; None: the only one that it can be."""
    second: str | None = None
    choices: tuple[str, ...] = ()
    marks: str | None = None
    first_span: str | None = None
    second_span: str | None = None
    missing: Mapping[str, str] = dataclass_field(default_factory=dict)
    """Those of training that the input lacks, by what they held."""

    @classmethod
    def named(cls, options: PredictOptions | PredictTextsOptions) -> Columns:
        """As a user names them."""
        choices = options.choices
        one_each = {name: getattr(options, name) for name in ("field", "second", "marks", *SPANS)}
        return cls(choices=(choices,) if isinstance(choices, str) else tuple(choices), **one_each)

    def fields(self, kept_fields: Sequence[str]) -> tuple[str, ...]:
        """The fields besides the text that must be read."""
        if tuple(kept_fields) == ("all",):
            return ("all",)
        needed = (self.second, *self.choices, self.marks, self.first_span, self.second_span)
        return tuple(dict.fromkeys([*kept_fields, *(name for name in needed if name is not None)]))

    def check(self, head: HeadConfig) -> None:
        """Refuse columns that a head has no use for, and a lack of those that it needs."""
        kind = KINDS[head.kind]
        if kind.second is not None and self.second is None:
            raise self._lacks(f"A model for task {kind.name!r} needs the field with the {kind.second}.", "second")
        if kind.has_choices and not self.choices:
            raise self._lacks("A model that chooses needs the fields with the choices.", "choices")
        if not kind.has_two_texts and (self.second is not None or self.choices):
            raise OptionError(f"A model for task {kind.name!r} reads one text: leave out 'second' and 'choices'.")
        if head.n_marks and self.marks is None:
            raise self._lacks("The model needs the field with the marks of the words (1 at the predicate).", "marks")
        if self.marks is not None and not head.n_marks:
            raise OptionError("The model was trained without marks, and has no use for marks: leave them out.")

        for role in SPANS:
            if kind.has_spans and getattr(self, role) is None:
                raise self._lacks(f"A model for task {kind.name!r} needs the field with the {role}.", role)
            if getattr(self, role) is not None and not kind.has_spans:
                raise OptionError(f"A model for task {kind.name!r} has no use for a {role}: leave it out.")

    def _lacks(self, message: str, role: str) -> OptionError:
        several = role == "choices"
        before = self.missing.get(role)
        if before is not None and several:
            message += f" In training they were {before}, of which the input lacks some."
        elif before is not None:
            message += f" In training it was {before}, which the input lacks."
        return OptionError(f"{message} Name {'them' if several else 'it'} ({role}=…, --{role.replace('_', '-')}).")

    def item(self, row: Row, kept_fields: Sequence[str], kind: Kind) -> Item:
        """A row as an item of this kind."""
        place = str(row.place)
        is_text = isinstance(row.content, str)
        choices: list[str] = []
        for name in self.choices:
            value = _value(row.fields, name)
            several = value if len(self.choices) == 1 and isinstance(value, list) else [value]
            choices += [text_of(each, name, row.place) for each in several]
        if self.choices and len(choices) < 2:
            raise InputError(f"{place}: there must be two choices or more. Got {len(choices)}.")
        fields = dict(row.fields)
        if tuple(kept_fields) != ("all",):
            fields = {name: value for name, value in fields.items() if name in kept_fields}
        item = Item(
            text=str(row.content) if is_text else " ".join(row.content),
            words=() if is_text else tuple(row.content),
            second=None if self.second is None else text_of(_value(row.fields, self.second), self.second, row.place),
            choices=tuple(choices),
            marks=() if self.marks is None else marks_of(row, _value(row.fields, self.marks)),
            id=row.id,
            place=place,
            fields=fields,
        )
        if not isinstance(kind, Edge):
            return item
        spans = [(name, _value(row.fields, str(getattr(self, name)))) for name in SPANS]
        return kind.with_spans(item, spans, row.place)


def _value(fields: Any, name: str) -> Any:
    """A field of a row, also of one that has all of its own; None where it lacks it. A point goes down into objects."""
    if not isinstance(fields, Mapping):
        return None
    outer, point, inner = name.partition(".")
    return _value(fields.get(outer), inner) if point and name not in fields else fields.get(name)


def as_trained(
    columns: Columns,
    head: HeadConfig,
    card: Mapping[str, Any],
    sources: Sources,
    *,
    format: str | None = None,
    delimiter: str | None = None,
) -> Columns:
    """The columns; those that were not named are as in training, where the input has them.

    `card` is what the model keeps of its columns. Standard input is not read beforehand; of several files the first is.
    """
    if is_squad(head.kind, sources, format):
        refuse_useless({name: each for name in ("field", "second") if (each := getattr(columns, name)) is not None})
        return replace(columns, second=QUESTION)
    look = _column_finder(head.kind, sources, format, delimiter)
    if look is None:
        return columns
    filled: dict[str, Any] = {"field": look("text", card.get("text"))} if columns.field is None else {}
    taken = columns.field or filled.get("field")
    kind = KINDS[head.kind]
    roles = {"second": kind.second is not None, "marks": bool(head.n_marks), **dict.fromkeys(SPANS, kind.has_spans)}
    for role, is_needed in roles.items():
        if is_needed and getattr(columns, role) is None:
            name = look(role, card.get(role))
            filled[role] = name if name != taken else None
    if columns.marks is not None:
        filled["marks"] = look("marks", columns.marks) or columns.marks
    if KINDS[head.kind].has_choices and not columns.choices:
        names = [look("choices", each) for each in _as_list(card.get("choices"))]
        filled["choices"] = tuple(name for name in names if name is not None) if None not in names else ()
    missing = {role: card[role] for role, name in filled.items() if not name and card.get(role) is not None}
    spelled = {role: ", ".join(map(repr, _as_list(names))) for role, names in missing.items()}
    return replace(columns, **filled, missing=spelled)


def by_role(inputs: Inputs, head: HeadConfig) -> Inputs:
    """Inputs; where a list in memory has a pair for each item (two texts, a text and its choices), as a table.

    Where a task has one text, such a list is one of words.
    """
    kind = KINDS[head.kind]
    several = kind.has_two_texts or kind.has_spans or head.n_marks
    if not isinstance(inputs, InMemory) or inputs.columns is not None or not several:
        return inputs
    names: tuple[str, ...] = ("text", "marks" if head.n_marks else "choices" if kind.has_choices else "second")
    if kind.has_spans:
        names = ("text", *(("second",) if kind.second else ()), *SPANS)

    def records() -> Iterator[dict[str, Any]]:
        for number, item in enumerate(inputs.rows(), start=1):
            if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != len(names):
                of_what = {
                    "marks": "pairs of words and their marks",
                    "choices": "pairs of a question and a list of choices",
                    "second": f"pairs of a text and the {kind.second}",
                }
                raise InputError(
                    f"{inputs.name}, {inputs.unit} {number}: a model for task {kind.name!r} reads "
                    f"{of_what[names[1]] if len(names) == 2 else ', '.join(names)}. Got {item!r:.80} instead."
                )
            yield dict(zip(names, item, strict=True))

    return InMemory("the list of pairs", names, inputs.n_rows, records)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _column_finder(
    kind: str, sources: Sources, format: str | None, delimiter: str | None
) -> Callable[[str, Any], str | None] | None:
    """What finds the column of a role in the input; None where columns have no names or numbers to go by."""
    if isinstance(sources, InMemory):
        there = sources.columns
        return None if there is None else lambda role, column: _column_in_memory(there, role, column, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reported where the files are read
        files = find_files(sources, endings=None if format else ENDINGS)
    names = files.names
    formats = {_format_of(name, format) for name in names}
    if files.total is None or len(formats) != 1:
        return None
    [read_as] = formats
    if read_as not in KINDS[kind].formats:
        return None
    if read_as in SENTENCES:
        return lambda role, column: _of_sentences(read_as, column)
    try:
        header = header_of(names[0], read_as, delimiter)
    except InputError:  # the reader will say what is wrong
        return None
    return lambda role, column: column_in(header, column, KINDS[kind].usual_columns.get(role, ()))


def _column_in_memory(names: Sequence[str], role: str, column: Any, kind: str) -> str | None:
    """As in training, or as it is usual; where that is not there, a column that is called as its role is."""
    usual = KINDS[kind].usual_columns.get(role, ())
    as_before = None if column is None else column_in(names, column, ())
    return as_before or column_in(names, None, (*usual, role))


def _format_of(name: str, format: str | None) -> str:
    spelled = (format or "").lower().removeprefix(".")
    return ENDINGS.get(f".{spelled}", spelled) if format else ENDINGS.get(suffixes(name)[0], "text")


def _of_sentences(format: str, column: str | int | None) -> str | None:
    """CoNLL has numbers for its columns, CoNLL-U names."""
    if column is None or (format == "conll" and not str(column).isdecimal()):
        return None
    return conllu_name(column) if format == "conllu" else str(column)


# --- SQuAD's JSON -----------------------------------------------------------------------------------------------------


def is_squad(kind: str, sources: Sources, format: str | None) -> bool:
    """Whether a model for tasks of this kind is given JSON, which is then taken for SQuAD's."""
    if "json" not in KINDS[kind].formats:
        return False
    if format is not None:
        return format.lower().removeprefix(".") == "json"
    return any(suffixes(name)[0] == ".json" for name in names_of(inputs_of(sources)))


def refuse_useless(options: Mapping[str, Any]) -> None:
    """Refuse options that say where something stands: in SQuAD's layout that is known."""
    for name in options:
        raise OptionError(f"The option {name!r} has no use where SQuAD's JSON is read. Leave it out.")


def read_questions(sources: Sources, *, fields: Sequence[str] = (), **reading: Any) -> Reading[Row]:
    """The questions of one file or of several; options are those of `read_rows`."""
    format = reading.pop("format", None)
    refuse_useless(ReadingOptions(**reading).changed())
    inputs = find_files(sources, endings=None)
    for name in inputs.names:
        if format is None and suffixes(name)[0] != ".json":
            raise OptionError(f"{name} is not JSON, and other files are. Files of SQuAD's JSON are read by themselves.")
    for name in fields:
        if name not in (*SQUAD_FIELDS, ALL):
            raise no_field(name, SQUAD_FIELDS, inputs.names[0])
    files = _Questions(inputs)
    return Reading(files, files.rows(SQUAD_FIELDS if ALL in fields else fields))


class _Questions:
    """Files of questions one after another. Each is held whole, and counts as read by the share of its questions."""

    def __init__(self, inputs: InputFiles) -> None:
        self.name = inputs.name
        self.total = inputs.total
        self.done = 0
        self._files = list(zip(inputs.names, inputs.sizes, inputs.labels, strict=True))

    def rows(self, fields: Sequence[str]) -> Iterator[Row]:
        before = 0
        for name, size, label in self._files:
            items = list(squad_questions(Path(name)))
            for number, item in enumerate(items, start=1):
                self.done = before + (size or 0) * number // len(items)
                beside = {QUESTION: item.second, "title": item.fields.get("title", "")}
                id_ = item.id or (f"{label}:{number}" if label else str(number))
                shown = {each: beside[each] for each in fields}
                yield Row(item.text, id_, Place(name, number, "question"), shown)
            before += size or 0

    def close(self) -> None:
        """Nothing is open between two questions."""
