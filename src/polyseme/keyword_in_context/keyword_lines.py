"""The matches of a query in texts, as lines: in the order of the texts, or sorted by the words on one side.

Nothing here needs a model; sorting by similarity or by sense is in `lines_by_vector`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyseme.cost import Cost
from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, OptionError
from polyseme.files.field_names import fields_of_words
from polyseme.files.reading_options import ALL, ReadingOptions, requested_fields
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import Reading, source_name
from polyseme.files.source_paths import Sources
from polyseme.keyword_in_context.matchers import LEMMA, MatchedText, matcher_of
from polyseme.plots.word_uses import Keyword, Use
from polyseme.result_tables import ShownAsTable, Table
from polyseme.text.sentences import split_sentences
from polyseme.text.word_forms import close_forms, form
from polyseme.types import Progress
from polyseme.verb_options.word_options import ConcordanceOptions, MatchKind

CONTEXT = 1000
"""Characters on each side of a match that are kept of its text, or more where lines are wider."""
_SORTED_WORDS = 10
"""Words on one side by which lines are sorted."""
_EVERY = 1000
"""Rows between two calls that report progress."""


@dataclass(frozen=True, kw_only=True)
class KeywordLine(Use):
    """A match in its context: `text[start:end]`."""

    text: str
    start: int
    end: int
    id: str
    """Of the text: as in the file it came from."""
    offset: int
    """Where `text`, which may be a part of a longer one, begins in it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the input that were requested."""
    cosine: float | None = None
    """Similarity to the marked use, if lines are sorted by it."""
    sense: int | None = None
    """Counted from 1, if lines are sorted by it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Concordance(ShownAsTable):
    """The matches of a query, each in its context."""

    query: str
    match: str
    source: str
    sort: str
    width: int
    """Characters on each side of a match that are shown."""
    lines: list[KeywordLine]
    n_matches: int
    """Matches in all, of which `lines` may be a sample."""
    n_texts: int
    """Texts with matches."""
    explanation: str = ""
    """The evidence for the number of senses, if lines are sorted by them."""
    cost: Cost | None = None
    """Of the vectors, if lines are sorted by them."""

    def table(self) -> Table:
        """The first and the last lines."""

        def row(line: KeywordLine) -> tuple[str, str, str, str]:
            before, match, after = line.keyword(min(self.width, 40))
            return line.id, before, match, after

        return Table.of(self.headline, ("id", "left", "match", "right"), self.lines, row)

    @property
    def headline(self) -> str:
        """How many matches there are."""
        matches = f"{self.n_matches:,} match{'' if self.n_matches == 1 else 'es'}"
        texts = f"{self.n_texts:,} text{'' if self.n_texts == 1 else 's'}"
        shown = "" if len(self.lines) == self.n_matches else f", of which {len(self.lines):,} are shown"
        return f"{matches} in {texts} of {self.source}{shown}"

    def keywords(self) -> list[Keyword]:
        """Each line as the text before, the match, and the text after, at most `width` characters on each side."""
        return [line.keyword(self.width) for line in self.lines]


class Sample:
    """At most so many of the items that are added, each with the same probability; all of them without a number."""

    def __init__(self, size: int | None, seed: int) -> None:
        self._size = size
        self._rng = np.random.default_rng(seed)
        self._items: list[tuple[int, Any]] = []
        self.n_seen = 0

    def add(self, item: Callable[[], Any]) -> None:
        """Count an item, and create it if it is drawn."""
        if self._size is None or len(self._items) < self._size:
            self._items.append((self.n_seen, item()))
        elif (place := int(self._rng.integers(0, self.n_seen + 1))) < self._size:
            self._items[place] = (self.n_seen, item())
        self.n_seen += 1

    def items(self) -> list[Any]:
        """The items drawn, in their order."""
        return [item for _, item in sorted(self._items, key=lambda numbered: numbered[0])]


def opened_rows(source: Sources, reading: Mapping[str, Any], match: MatchKind) -> Reading[Row]:
    """The rows to look in; with their lemmas where a lemma is looked for."""
    reading = dict(reading)
    if match != "lemma":
        return read_rows(source, **reading, sentences=split_sentences)
    fields = tuple(reading.get("fields", ()))
    reading["fields"] = fields if fields == (ALL,) else tuple(dict.fromkeys((*fields, LEMMA)))
    try:
        return read_rows(source, **reading, sentences=split_sentences)
    except OptionError as error:
        raise InputError(f"A lemma is looked for in the column {LEMMA!r} of a treebank (CoNLL-U). {error}") from None


def find_lines(source: Sources, options: ConcordanceOptions, sort: str) -> Concordance:
    """The matches of a query, in the order of the texts, or sorted by the words on their left or right."""
    query, match, width, reading = options.query, options.match, options.width, options.changed(ReadingOptions)
    drawn = Sample(options.sample, options.seed)
    n_texts = 0
    with (
        matcher_of(match, query, match_case=options.match_case) as matcher,
        opened_rows(source, reading, match) as rows,
    ):
        name = source_name(rows)
        for matched in matcher.search(reported(rows, options.progress)):
            n_texts += 1
            for start, end in matched.spans:
                drawn.add(lambda: line_of(matched, start, end, width, reading))  # noqa: B023 (called at once)
    if not drawn.n_seen:
        refuse_no_match(query, source, name, match, reading)
    lines: list[KeywordLine] = drawn.items()
    if sort in SIDES:
        lines.sort(key=SIDES[sort])
    return Concordance(
        query=query, match=match, source=name, sort=sort, width=width, lines=lines, n_matches=drawn.n_seen,
        n_texts=n_texts,
    )  # fmt: skip


def line_of(matched: MatchedText, start: int, end: int, width: int, reading: Mapping[str, Any]) -> KeywordLine:
    """A match as a line, with the text around it and the fields that were requested."""
    context = max(CONTEXT, width)
    if fields := requested_fields(matched.row.fields, reading):
        words = matched.document.words
        places = [at for at, word in enumerate(words) if word.start < end and start < word.end]
        fields = fields_of_words(fields, places, len(words))
    cut = max(start - context, 0)
    return KeywordLine(
        text=matched.document.text[cut : end + context],
        start=start - cut,
        end=end - cut,
        id=matched.row.id,
        offset=cut,
        fields=fields,
    )


def reported(rows: Reading[Row], progress: Progress | None) -> Iterator[Row]:
    """The rows; progress is called now and then with their position."""
    for number, row in enumerate(rows):
        if progress is not None and number % _EVERY == 0:
            progress(rows.done, rows.total)
        yield row


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _left_context(line: KeywordLine) -> list[str]:
    """The words before the match, the nearest first."""
    return _words(line.text[: line.start])[::-1][:_SORTED_WORDS]


def _right_context(line: KeywordLine) -> list[str]:
    return _words(line.text[line.end :])[:_SORTED_WORDS]


SIDES: Mapping[str, Callable[[KeywordLine], list[str]]] = {"left": _left_context, "right": _right_context}
"""By the name of an order: the words that lines are sorted by."""


def refuse_no_match(query: str, source: Sources, name: str, match: MatchKind, reading: Mapping[str, Any]) -> None:
    """Refuse a query without a match; of a word, the nearest ones that occur are named."""
    advice = {
        "word": "Words are found by their form, whatever their case: name the form that the text has, or look for a "
        "pattern (--match pattern).",
        "lemma": "Lemmas are compared as the treebank has them.",
        "pattern": "A pattern is a regular expression, matched anywhere in a text.",
    }[match]
    raise InputError(
        f"There is no match of the {match} {query!r} in {name}.{_nearest(query, source, match, reading)} {advice}"
    )


def _nearest(query: str, source: Sources, match: MatchKind, reading: Mapping[str, Any]) -> str:
    if match == "pattern":
        return ""
    counts: Counter[str] = Counter()
    with opened_rows(source, reading, match) as rows:
        if rows.total is None:
            return ""
        for row in rows:
            counts.update(row.fields[LEMMA] if match == "lemma" else document_of(row).words)
    known: dict[str, int] = {}
    for word, count in counts.items():
        known[form(word)] = known.get(form(word), 0) + count
    return close_forms(query, known)
