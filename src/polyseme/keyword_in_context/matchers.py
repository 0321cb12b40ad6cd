"""What a concordance looks for: a word or a run of words, a lemma, or a pattern."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from polyseme.embedding.row_documents import document_of
from polyseme.errors import InputError, OptionError
from polyseme.files.rows import Row
from polyseme.keyword_in_context.limited_pattern import LimitedPattern, Spans
from polyseme.text.word_forms import form, same_case_form
from polyseme.text.words import split_words
from polyseme.types import Document
from polyseme.verb_options.word_options import MatchKind

BATCH_CHARACTERS = 200_000
"""Characters of the texts that are matched at once."""
LEMMA = "lemma"
"""The field with one lemma per word."""


class MatchedText(NamedTuple):
    """A text, as it was before its words were taken from it, with matches: offsets in it, in order."""

    row: Row
    document: Document
    spans: Spans


class Matcher(ABC):
    """Finds texts with matches among rows."""

    @abstractmethod
    def search(self, rows: Iterable[Row]) -> Iterator[MatchedText]:
        """The rows with matches, in order."""


class WordMatcher(Matcher):
    """Words by their form, in any case unless case counts; several words are matched one after another."""

    def __init__(self, query: str, *, match_case: bool = False) -> None:
        self._form = same_case_form if match_case else form
        self._forms = [self._form(word) for word in split_words(query)]
        if not self._forms:
            raise OptionError(f"The word to look for is {'blank' if query else 'empty'}. Give a word.")

    def search(self, rows: Iterable[Row]) -> Iterator[MatchedText]:
        for row in rows:
            if not self._may_match(row):
                continue
            document = _document(row)
            forms = [self._form(word) for word in document.words]
            if spans := _runs(document, forms, self._forms):
                yield MatchedText(row, document, spans)

    def _may_match(self, row: Row) -> bool:
        """Whether a text has the letters of the words, which is faster than splitting it into words."""
        text = row.content if isinstance(row.content, str) else " ".join(row.content)
        folded = self._form(text)
        return all(each in folded or each in text for each in self._forms)  # the latter: of invisible characters alone


class LemmaMatcher(Matcher):
    """Words by their lemma, which rows have in a field."""

    def __init__(self, query: str, *, match_case: bool = False) -> None:
        self._form = same_case_form if match_case else form
        self._lemmas = [self._form(lemma) for lemma in query.split()]
        if not self._lemmas:
            raise OptionError(f"The lemma to look for is {'blank' if query else 'empty'}. Give a lemma.")

    def search(self, rows: Iterable[Row]) -> Iterator[MatchedText]:
        for row in rows:
            lemmas = row.fields.get(LEMMA)
            document = _document(row)
            if not isinstance(lemmas, list) or len(lemmas) != len(document.words):
                raise InputError(
                    f"{row.place}: a lemma is looked for in the field {LEMMA!r}, which must be a list with one lemma "
                    "per word, as CoNLL-U has it. Look for a word or a pattern here."
                )
            if spans := _runs(document, [self._form(str(lemma)) for lemma in lemmas], self._lemmas):
                yield MatchedText(row, document, spans)


class PatternMatcher(Matcher):
    """Parts of texts that a regular expression matches, with a limit of time."""

    def __init__(self, pattern: LimitedPattern) -> None:
        self._pattern = pattern

    def search(self, rows: Iterable[Row]) -> Iterator[MatchedText]:
        for batch in _batches(rows):
            every = self._pattern.matches([text for _, text in batch], [row.place for row, _ in batch])
            for (row, _), spans in zip(batch, every, strict=True):
                if spans:
                    yield MatchedText(row, _document(row), spans)


def _document(row: Row) -> Document:
    return document_of(row).in_original()


def _runs(document: Document, forms: Sequence[str], sought: Sequence[str]) -> Spans:
    """Where the words of a document have the forms that are sought, one after another."""
    n_words = len(sought)
    return [
        (document.words[at].start, document.words[at + n_words - 1].end)
        for at, each in enumerate(forms)
        if each == sought[0] and list(forms[at : at + n_words]) == list(sought)
    ]


def _batches(rows: Iterable[Row]) -> Iterator[list[tuple[Row, str]]]:
    """Rows with their texts, as many as make a batch. A text is split into words only if it has a match."""
    batch: list[tuple[Row, str]] = []
    size = 0
    for row in rows:
        text = row.content if isinstance(row.content, str) else _document(row).text
        batch.append((row, text))
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def matcher_of(match: MatchKind, query: str, *, match_case: bool = False) -> Iterator[Matcher]:
    """The matcher for a query; a pattern has a process that ends with it."""
    if match == "word":
        yield WordMatcher(query, match_case=match_case)
    elif match == "lemma":
        yield LemmaMatcher(query, match_case=match_case)
    else:
        with LimitedPattern(query, match_case=match_case) as pattern:
            yield PatternMatcher(pattern)
