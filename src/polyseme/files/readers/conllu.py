"""CoNLL-U: sentences with their own words, as treebanks have them.

- A row's words are the syntactic words (*do* *n't*); with `words="surface"` they are the tokens as written (*don't*).
- The id is the sentence's `sent_id`, where it has one and no other `id_field` is named.
- Offsets point into the sentence's `# text`, or where it has none into its tokens with the blanks that `SpaceAfter`
  leaves; words of a token that they do not spell (au: à, le) have all of it. Where another column than the form has the
  words, or the tokens do not add up to the text, offsets point into the words with a blank between them.
- Fields are the columns by their names in small letters (one value per word), the comments by theirs (`upos`,
  `newdoc id`), and what the words alone cannot say: `ranges`, the tokens that stand for several words, and
  `empty_nodes`.
- Comments that stand by themselves belong to the next sentence.
- The tokens and their `SpaceAfter=No` must add up to `# text`, if there is one; a sentence where they do not is
  refused, unless `check_text` is off. How many blanks stand between two tokens does not matter.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from polyseme.errors import Advice, InputError, OptionError, nearest
from polyseme.files.lines import Line, requested_lines, sentences
from polyseme.files.reading_options import RowRequest
from polyseme.files.rows import Place, Row, excerpt, no_field
from polyseme.files.source import Source

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

_ID = re.compile(r"([0-9]{1,9})(?:([-.])([0-9]{1,9}))?")
_SHOWN = 30
"""How many characters of a text and of the words are shown where they part."""


class _Token(NamedTuple):
    """A line with columns: a word, a range of words or an empty node."""

    columns: Sequence[str]
    line: int
    first: int
    """The number of the word, or of the first in a range."""
    last: int

    @property
    def form(self) -> str:
        return self.columns[1]

    @property
    def space_after(self) -> bool:
        return "SpaceAfter=No" not in self.columns[9].split("|")


@dataclass
class _Sentence:
    comments: dict[str, str] = field(default_factory=dict)
    words: list[_Token] = field(default_factory=list)
    ranges: list[_Token] = field(default_factory=list)
    empty: list[_Token] = field(default_factory=list)

    def surface(self) -> list[_Token]:
        """The tokens as written: the ranges, and the words that are in none."""
        inside = {number for token in self.ranges for number in range(token.first, token.last + 1)}
        words = (token for token in self.words if token.first not in inside)
        return sorted([*self.ranges, *words], key=lambda token: token.first)


def read(source: Source, request: RowRequest) -> Iterator[Row]:
    """One row per sentence, with its own words."""
    return _rows(
        requested_lines(source, request),
        _column(request.field),
        source.name,
        request,
    )


def _column(name: str | None) -> int:
    """The column the words are in, by its name or, from 1 on, its number."""
    if name is None:
        return COLUMNS.index("form")
    if name.isdecimal() and 1 <= int(name) <= len(COLUMNS):
        return int(name) - 1
    if name.lower() in COLUMNS:
        return COLUMNS.index(name.lower())
    raise OptionError(f"CoNLL-U has no column {name!r}. {nearest(name.lower(), COLUMNS)}")


def _rows(lines: Iterable[Line], column: int, name: str, request: RowRequest) -> Iterator[Row]:
    number = 0
    above: dict[str, str] = {}
    for block in sentences(lines, name, request.max_text_bytes):
        sentence = request.attempt(partial(_parsed, block, name))
        if sentence is None:
            number += 1
            continue
        sentence.comments = {**above, **sentence.comments}
        above = {} if sentence.words else sentence.comments
        if sentence.words:
            number += 1
            row = request.attempt(partial(_row, sentence, column, number, name, request))
            if row is not None:
                yield row
    if not number:
        raise InputError(f"{name} has no words in it: there is nothing to read.")


def _row(sentence: _Sentence, column: int, number: int, name: str, request: RowRequest) -> Row:
    if request.check_text and "text" in sentence.comments:
        _check_text(sentence, name)
    tokens = sentence.words if request.words == "syntactic" else sentence.surface()
    place = Place(name, tokens[0].line)
    text = _text_of(sentence) if COLUMNS[column] == "form" else None
    return Row(
        content=[_word(token, column, name) for token in tokens],
        id=_id(sentence, number, place, request),
        place=place,
        fields=_beside(sentence, tokens, column, place, request, first=number == 1),
        text=None if text is None else text.text,
        spans=None if text is None else [text.span(token) for token in tokens],
    )


def _word(token: _Token, column: int, name: str) -> str:
    word = token.columns[column]
    if not word.strip() or (word == "_" and token.form != "_"):
        problem = "empty" if not word.strip() else "not given (_)"
        raise InputError(f"{Place(name, token.line)}: the word, in column {column + 1}, is {problem}.")
    return word


# --- fields ----------------------------------------------------------------------------------------------------------


def _id(sentence: _Sentence, number: int, place: Place, request: RowRequest) -> str:
    if request.id_field is None:
        return sentence.comments.get("sent_id") or request.numbered(number)
    if request.id_field not in sentence.comments:
        raise no_field(request.id_field, sentence.comments, place)
    return sentence.comments[request.id_field]


def _beside(
    sentence: _Sentence, tokens: Sequence[_Token], column: int, place: Place, request: RowRequest, *, first: bool
) -> dict[str, Any]:
    if not request.fields:
        return {}
    ranges = [
        {"first": token.first, "last": token.last, "form": token.form, "misc": token.columns[9]}
        for token in sentence.ranges
    ]
    empty_nodes = [dict(zip(COLUMNS, token.columns, strict=True)) for token in sentence.empty]
    columns = {name: [token.columns[at] for token in tokens] for at, name in enumerate(COLUMNS)}
    comments = {name: value for name, value in sentence.comments.items() if name != "text"}
    there: dict[str, Any] = {**comments, **columns, "ranges": ranges, "empty_nodes": empty_nodes}
    if request.keeps_all:
        del there[COLUMNS[column]]
        return there
    missing = next((name for name in request.fields if name not in there), None)
    if missing is not None and first:
        raise no_field(missing, there, place)
    return {name: there.get(name) for name in request.fields}  # not every sentence has every comment


# --- lines to sentences ----------------------------------------------------------------------------------------------


def _parsed(block: list[Line], name: str) -> _Sentence:
    sentence = _Sentence()
    for line in block:
        place = Place(name, line.number)
        if line.text.startswith("#"):
            key, equals, value = line.text[1:].partition("=")
            sentence.comments.setdefault(key.strip(), value.strip() if equals else "")
        else:
            _add(sentence, _columns(line.text, place), place)
    if sentence.empty and not sentence.words:
        raise InputError(f"{Place(name, sentence.empty[0].line)}: the sentence has an empty node in it and no word.")
    if sentence.ranges and sentence.ranges[-1].last > len(sentence.words):
        token = sentence.ranges[-1]
        raise InputError(
            f"{Place(name, token.line)}: the range {token.columns[0]} ends past the last word of its sentence, "
            f"{len(sentence.words)}."
        )
    return sentence


def _columns(text: str, place: Place) -> list[str]:
    columns = text.split("\t")
    if len(columns) != len(COLUMNS):
        raise InputError(
            f"{place}: CoNLL-U has {len(COLUMNS)} columns, separated by tabs, and this line {len(columns)}."
        )
    return columns


def _add(sentence: _Sentence, columns: list[str], place: Place) -> None:
    """Put a line into its sentence, if its id is the one that can come next."""
    match = _ID.fullmatch(columns[0])
    if match is None:
        raise InputError(
            f"{place}: {excerpt(columns[0])!r} is no id of a word (3), of a range (3-4) or of an empty node (3.1)."
        )
    first, mark, last = int(match[1]), match[2], int(match[3] or match[1])
    token = _Token(columns, place.line, first, last)
    done = len(sentence.words)
    if mark == ".":
        fits = first == done
        sentence.empty.append(token)
    elif mark == "-":
        fits = first == done + 1 and last > first and not (sentence.ranges and sentence.ranges[-1].last >= first)
        sentence.ranges.append(token)
    else:
        fits = first == done + 1
        sentence.words.append(token)
    if not fits:
        raise InputError(
            f"{place}: the id {columns[0]} cannot follow here, after {done} word{'' if done == 1 else 's'} of the "
            "sentence. Words are counted from 1, a range comes before its first word and in no other range, an empty "
            "node after the word it is counted from. A blank line ends a sentence."
        )


# --- the text --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """A sentence's text, and where each of its words is in it, by the number of the word."""

    text: str
    spans: Mapping[int, tuple[int, int]]

    def span(self, token: _Token) -> tuple[int, int]:
        """Where a word, or a range of words, starts and ends."""
        return self.spans[token.first][0], self.spans[token.last][1]


def _text_of(sentence: _Sentence) -> _Text | None:
    """The `# text` of a sentence, or else its tokens with the blanks that they have; None: they do not add up to it.

    Words of a token that they spell share it out (do, n't); of one that they do not (au: à, le), each has all of it.
    """
    tokens = sentence.surface()
    spelled = "".join(token.form + " " * token.space_after for token in tokens).rstrip()
    text = sentence.comments.get("text") or spelled
    spans: dict[int, tuple[int, int]] = {}
    start = 0
    for token in tokens:
        start = _after_blanks(text, start)
        end = _end_of(token.form, text, start)
        if end is None:
            return None
        inside = sentence.words[token.first - 1 : token.last]
        shares = "".join(word.form for word in inside) == text[start:end]
        for word in inside:
            stop = start + len(word.form) if shares else end
            spans[word.first] = start, stop
            start = stop if shares else start
        start = end
    return _Text(text, spans)


def _after_blanks(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _end_of(form: str, text: str, start: int) -> int | None:
    """Where a form ends that begins in a text; blanks within it are as many as there are."""
    if text.startswith(form, start):
        return start + len(form)
    for number, part in enumerate(form.split()):
        start = _after_blanks(text, start) if number else start
        if not text.startswith(part, start):
            return None
        start += len(part)
    return start


def _check_text(sentence: _Sentence, name: str) -> None:
    """Refuse a sentence whose tokens are not its text, and say where they part."""
    text = " ".join(sentence.comments["text"].split())
    tokens = sentence.surface()
    spelled = [" ".join(token.form.split()) + " " * token.space_after for token in tokens]
    built = "".join(spelled).rstrip()
    if built == text:
        return
    differing = (at for at, (ours, theirs) in enumerate(zip(built, text, strict=False)) if ours != theirs)
    at = next(differing, min(len(built), len(text)))
    ends = list(itertools.accumulate(map(len, spelled)))
    token = tokens[min(bisect.bisect_right(ends, at), len(tokens) - 1)]
    raise InputError(
        f"{Place(name, token.line)}: the words of the sentence do not add up to its text: at {excerpt(token.form)!r} "
        f"the words continue with {built[at : at + _SHOWN]!r}, the text with {text[at : at + _SHOWN]!r}. Mend one or "
        "the other (SpaceAfter=No says that no blank follows), or take out the line '# text', and the words are read "
        "as they are.",
        Advice("check_text", "Or leave the text unread with --no-check-text (check_text=False)."),
    )
