"""SQuAD's JSON as what `predict` reads: a row a question, the passage as its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import OptionError
from polyseme.files.asked import ALL, told
from polyseme.files.found import Found, Sources, find_files, listed
from polyseme.files.records import no_field
from polyseme.files.rows import Place, Row
from polyseme.files.source import Reading, suffixes
from polyseme.tasks.squad import squad_questions

QUESTION = "question"
FIELDS = (QUESTION, "title")
"""What comes beside the passage."""


def is_squad(kind: str, sources: Sources, format: str | None) -> bool:
    """Whether a model for tasks of this kind is given JSON, which is then taken for SQuAD's."""
    if kind != "span":
        return False
    if format is not None:
        return format.lower().removeprefix(".") == "json"
    return any(suffixes(name)[0] == ".json" for name in listed(sources))


def refuse_useless(options: Mapping[str, Any]) -> None:
    """Refuse options that say where something stands: in SQuAD's layout that is known."""
    for name in options:
        raise OptionError(f"The option {name!r} has no use where SQuAD's JSON is read. Leave it out.")


def read_questions(sources: Sources, *, fields: Sequence[str] = (), **reading: Any) -> Reading[Row]:
    """The questions of one file or of several; options are those of `read_rows`."""
    format = reading.pop("format", None)
    refuse_useless(told(**reading))
    found = find_files(sources, endings=None)
    for name in found.names:
        if format is None and suffixes(name)[0] != ".json":
            raise OptionError(f"{name} is not JSON, and other files are. Files of SQuAD's JSON are read by themselves.")
    for name in fields:
        if name not in (*FIELDS, ALL):
            raise no_field(name, FIELDS, found.names[0])
    files = _Questions(found)
    return Reading(files, files.rows(FIELDS if ALL in fields else fields))


class _Questions:
    """Files of questions one after another. Each is held whole, and counts as read by the share of its questions."""

    def __init__(self, found: Found) -> None:
        self.name = found.name
        self.total = found.total
        self.done = 0
        self._files = list(zip(found.names, found.sizes, found.labels, strict=True))

    def rows(self, fields: Sequence[str]) -> Iterator[Row]:
        before = 0
        for name, size, label in self._files:
            items = list(squad_questions(Path(name)))
            for number, item in enumerate(items, start=1):
                self.done = before + (size or 0) * number // len(items)
                beside = {QUESTION: item.second, "title": item.fields.get("title", "")}
                id_ = item.id or (f"{label}:{number}" if label else str(number))
                kept = {each: beside[each] for each in fields}
                yield Row(item.text, id_, Place(name, number, "question"), kept)
            before += size or 0

    def close(self) -> None:
        """Nothing is open between two questions."""
