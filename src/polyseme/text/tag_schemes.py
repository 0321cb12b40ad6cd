"""How tags mark spans of words: IOB1, BIO, BIOES, BILOU; which sequences are valid, and what spans they mean.

| scheme | first word | inside | last word | alone | note |
|---|---|---|---|---|---|
| IOB1 | I, or B right after a span of the same type | I | I | I | the CoNLL files of 2000 to 2003 |
| BIO | B | I | I | B | also called IOB2 |
| BIOES | B | I | E | S | |
| BILOU | B | I | L | U | BIOES by other letters |

Spans are read as `conlleval` reads them, whatever the sequence: one ends where its type changes or where a tag says so,
and one begins with any tag that does not continue a span before it. On valid sequences of all four schemes that is
the meaning of the scheme; an invalid sequence has a meaning, too, and can be rewritten as a valid one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from polyseme.errors import InputError, OptionError, nearest

OUTSIDE = "O"
SCHEMES = ("IOB1", "BIO", "BIOES", "BILOU")
_ALIASES = {"IOB2": "BIO", "IOB": "IOB1", "IOBES": "BIOES"}
_LAST = {"E", "L"}
_ALONE = {"S", "U"}
_PREFIXES = {"IOB1": "BI", "BIO": "BI", "BIOES": "BIES", "BILOU": "BILU"}


class Span(NamedTuple):
    """Words that belong together: the first, the one after the last, counted from 0, and what they are."""

    start: int
    end: int
    type: str


class Fault(NamedTuple):
    """A tag that the scheme does not allow at its position."""

    word: int
    """Its number, counted from 0."""
    problem: str


def named_scheme(name: str) -> str:
    """The name of a scheme as this module has it.

    >>> named_scheme("iob2")
    'BIO'
    """
    upper = name.upper()
    upper = _ALIASES.get(upper, upper)
    if upper not in SCHEMES:
        raise OptionError(f"There is no tagging scheme {name!r}. {nearest(upper, SCHEMES)}")
    return upper


@lru_cache(maxsize=1 << 14)
def parts_of(tag: str) -> tuple[str, str]:
    """The letter of a tag and its type, which may have hyphens in it, or be missing.

    >>> parts_of("B-creative-work"), parts_of("O"), parts_of("I")
    (('B', 'creative-work'), ('O', ''), ('I', ''))
    """
    letter, _, type_ = tag.partition("-")
    return letter, type_


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans that a sequence of tags means, as `conlleval` reads it.

    >>> spans_of(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Span(start=0, end=2, type='PER'), Span(start=3, end=4, type='LOC'), Span(start=4, end=5, type='LOC')]
    """
    spans: list[Span] = []
    start: int | None = None
    before, type_before = OUTSIDE, ""
    for number, tag in enumerate([*tags, OUTSIDE]):
        letter, type_ = parts_of(tag)
        goes_on = _continues(before, type_before, letter, type_)
        if start is not None and not goes_on:
            spans.append(Span(start, number, type_before))
            start = None
        if start is None and letter != OUTSIDE:
            start = number
        before, type_before = letter, type_
    return spans


@lru_cache(maxsize=1 << 16)
def _continues(before: str, type_before: str, letter: str, type_: str) -> bool:
    """Whether a tag continues the span of the tag before it."""
    return (
        OUTSIDE not in (before, letter)
        and type_ == type_before
        and letter not in {"B", *_ALONE}
        and before not in _LAST | _ALONE
    )


def tags_of(spans: Iterable[Span], n_words: int, scheme: str = "BIO") -> tuple[str, ...]:
    """The tags that mark these spans, which must not overlap.

    >>> tags_of([Span(0, 2, "PER"), Span(3, 4, "LOC")], 5, "BIOES")
    ('B-PER', 'E-PER', 'O', 'S-LOC', 'O')
    """
    tags = [OUTSIDE] * n_words
    before = Span(-1, -1, "")
    for span in sorted(spans):
        if span.start < before.end:
            raise InputError(f"The spans {tuple(before)} and {tuple(span)} overlap: no word can have two tags.")
        for number in range(span.start, span.end):
            letter = _letter(scheme, number == span.start, number == span.end - 1)
            if scheme == "IOB1" and letter == "B" and (before.end, before.type) != (span.start, span.type):
                letter = "I"
            tags[number] = _tag(letter, span.type)
        before = span
    return tuple(tags)


def _tag(letter: str, type_: str) -> str:
    return f"{letter}-{type_}" if type_ else letter


def _letter(scheme: str, first: bool, last: bool) -> str:
    if scheme in ("BIOES", "BILOU") and last:
        alone, end = ("S", "E") if scheme == "BIOES" else ("U", "L")
        return alone if first else end
    return "B" if first else "I"


def converted(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The same spans in another scheme; with the scheme that the tags have, an invalid sequence made valid.

    >>> converted(["I-PER", "I-PER", "B-PER"], "BIO")
    ('B-PER', 'I-PER', 'B-PER')
    """
    return tags_of(spans_of(tags), len(tags), scheme)


# --- what may stand where --------------------------------------------------------------------------------------------


def may_start(tag: str, scheme: str) -> bool:
    """Whether a sequence may begin with this tag."""
    return may_follow(OUTSIDE, tag, scheme)


def may_end(tag: str, scheme: str) -> bool:
    """Whether a sequence may end with this tag."""
    return may_follow(tag, OUTSIDE, scheme)


@lru_cache(maxsize=1 << 16)
def may_follow(before: str, tag: str, scheme: str) -> bool:
    """Whether `tag` may stand right after `before` in a valid sequence of the scheme; for CRFs and for checks.

    >>> may_follow("O", "I-PER", "BIO"), may_follow("O", "I-PER", "IOB1")
    (False, True)
    """
    first, type_before = parts_of(before)
    then, type_ = parts_of(tag)
    same = type_ == type_before and OUTSIDE not in (first, then)
    if scheme == "IOB1":
        return then != "B" or same
    if scheme == "BIO":
        return then != "I" or same
    is_open = first in ("B", "I")
    goes_on = then not in (OUTSIDE, "B", *_ALONE)
    return (same and goes_on) if is_open else not goes_on


def fault_in(tags: Sequence[str], scheme: str) -> Fault | None:
    """The first tag of a sequence that the scheme does not allow where it stands; None if all is well."""
    before = OUTSIDE
    letters = {OUTSIDE, *_PREFIXES[scheme]}
    for number, tag in enumerate(tags):
        if parts_of(tag)[0] not in letters:
            return Fault(number, f"{tag!r} is no tag of {scheme}")
        if not may_follow(before, tag, scheme):
            after = f"after {before!r}" if number else "at the beginning of a sentence"
            return Fault(number, f"{tag!r} may not stand {after} in {scheme}")
        before = tag
    if not may_end(before, scheme):
        return Fault(len(tags) - 1, f"{before!r} may not end a sentence in {scheme}")
    return None


# --- which scheme it is ----------------------------------------------------------------------------------------------


def detect_scheme(sequences: Iterable[Sequence[str]]) -> str | None:
    """The scheme of these tags, or None where tags are words' own, as parts of speech are.

    Letters beside B and I decide at once. Between IOB1 and BIO the one with fewer sequences that break it is taken,
    and BIO where both fit.
    """
    distinct = [tuple(tags) for tags in sequences]
    tags = {tag for each in distinct for tag in each}
    letters = {parts_of(tag)[0] for tag in tags if tag != OUTSIDE}
    marked = all(tag == OUTSIDE or (tag[:1] in set("BIESLU") and tag[1:2] in ("-", "")) for tag in tags)
    typed = any("-" in tag for tag in tags)
    if not letters or not marked or not (typed or {"B", OUTSIDE} <= tags <= {"B", "I", OUTSIDE}):
        return None
    if letters & {"L", "U"} and not letters & {"E", "S"}:
        return "BILOU"
    if letters - {"B", "I"}:
        return "BIOES"
    broken = {name: sum(fault_in(each, name) is not None for each in distinct) for name in ("BIO", "IOB1")}
    return min(broken, key=lambda name: broken[name])


def sorted_tags(tags: Iterable[str], scheme: str | None) -> tuple[str, ...]:
    """Tags in a fixed order: `O` first, then by type, each with its letters in the order in which they come."""
    if scheme is None:
        return tuple(sorted(set(tags)))
    order = _PREFIXES[scheme]

    def key(tag: str) -> tuple[bool, str, int]:
        letter, type_ = parts_of(tag)
        return tag != OUTSIDE, type_, order.find(letter)

    return tuple(sorted(set(tags), key=key))


def whole_tags(tags: Iterable[str], scheme: str) -> tuple[str, ...]:
    """All tags that a scheme has for the types in `tags`, `O` among them: what a tagger may want to say.

    >>> whole_tags(["B-PER", "O"], "BIO")
    ('O', 'B-PER', 'I-PER')
    """
    types = {parts_of(tag)[1] for tag in tags if tag != OUTSIDE}
    return sorted_tags([OUTSIDE, *(_tag(letter, type_) for type_ in types for letter in _PREFIXES[scheme])], scheme)
