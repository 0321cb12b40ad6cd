"""Coreference: GAP (Webster et al. 2018), Winograd's schemas and those of Rahman and Ng (2012).

As tasks they are edges between a mention and a pronoun, of which each row has two. As evaluations of a language model
they are pairs of readings: the pronoun replaced by the one mention, and by the other (Trinh and Le 2018), scored whole
(full) or only behind the mention (partial). WNLI's hypotheses are such readings already, each behind its premise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.datasets.benchmark import Benchmark, Columns, file_reader, read_table
from polyseme.datasets.minimal_pairs import MinimalPair, PairSet
from polyseme.errors import InputError
from polyseme.files.rows import Place, Row, excerpt, read_rows
from polyseme.tasks.items import Item, ReadingLog
from polyseme.text.words import split_words

LABELS = ("false", "true")
"""Whether the pronoun stands for the mention."""
GENDERS = {
    **dict.fromkeys(("she", "her", "hers"), "feminine"),
    **dict.fromkeys(("he", "his", "him"), "masculine"),
}
WSC_FILES = ("wsc273.jsonl", "wsc2*.jsonl")
GAP_FILES = ("gap-test.tsv",)
WNLI_FILES = ("train.tsv", "dev.tsv")
PARTIAL, FULL = "partial", "full"
_GAP = Columns(text=("Text",), label=("A-coref",), id=("ID",))
_WNLI = Columns(text=("sentence1",), second=("sentence2",))
_POSSESSIVES = ("his", "her", "its", "their")
_ARTICLES = ("the", "a", "an", "my", "this", "that", "some")
_CLOSES = re.compile(r"[,.;:!?)'’]")

Span = tuple[int, int]


class Schema(NamedTuple):
    """A text with a pronoun, and the two mentions that it may stand for."""

    text: str
    pronoun: Span
    mentions: tuple[str, str]
    spans: tuple[Span | None, Span | None]
    """Where the mentions are; None: the text does not have one."""
    right: tuple[bool, bool] | None
    """Which of them the pronoun stands for; in GAP it may be neither. None: not labeled."""
    id: str
    place: Place


# --- GAP --------------------------------------------------------------------------------------------------------------


def gap_rows(file: Path) -> Iterator[Schema]:
    """The rows of a file of GAP; a span that is not where it should be is refused."""
    for row, place in read_table(file, _GAP):
        for name in ("ID", "Pronoun", "Pronoun-offset", "A", "A-offset", "B", "B-offset"):
            if row.get(name) is None:
                raise InputError(f"{place}: there is no column {name!r}, which GAP's files have.")
        text = str(row["Text"])
        pronoun, first, other = (_gap_span(row, name, text, place) for name in ("Pronoun", "A", "B"))
        labels = [row.get("A-coref"), row.get("B-coref")]
        right = None if None in labels else tuple(_gap_label(label, place) for label in labels)
        if str(row["Pronoun"]).lower() not in GENDERS:
            raise InputError(f"{place}: {row['Pronoun']!r} is no pronoun of GAP. There are: {', '.join(GENDERS)}.")
        yield Schema(
            text,
            pronoun,
            (str(row["A"]), str(row["B"])),
            (first, other),
            right,  # type: ignore[arg-type]
            str(row["ID"]),
            place,
        )


def _gap_span(row: Any, name: str, text: str, place: Place) -> Span:
    mention, offset = str(row[name]), str(row[f"{name}-offset"])
    if not offset.isdecimal():
        raise InputError(f"{place}: {name}-offset must be a whole number. Got {excerpt(offset)!r} instead.")
    start = int(offset)
    if not mention or not text.startswith(mention, start):
        raise InputError(
            f"{place}: {name} should be {excerpt(mention)!r} at character {start} of its text, and there is "
            f"{text[start : start + max(len(mention), 1)]!r}."
        )
    return start, start + len(mention)


def _gap_label(label: str | None, place: Place) -> bool:
    spelled = str(label).strip().lower()
    if spelled not in LABELS:
        raise InputError(f"{place}: a mention corefers or not: TRUE or FALSE. Got {excerpt(str(label))!r} instead.")
    return spelled == LABELS[1]


def gap_items(file: Path, log: ReadingLog) -> list[Item]:
    """Two edges per row, from each name to the pronoun."""
    return [item for schema in gap_rows(file) for item in _edges(schema, log)]


def read_gap(files: Sequence[Path]) -> list[PairSet]:
    """The readings of rows of which one name is right, by the gender of the pronoun."""
    schemas = [schema for file in files for schema in gap_rows(file)]
    one = [schema for schema in schemas if schema.right is not None and sum(schema.right) == 1]
    n_others = len(schemas) - len(one)
    note = f"{n_others:,} rows left out in which the pronoun stands for neither name: a reading must be right."
    return _readings(one, ("gender",), (note,) if n_others else ())


# --- Winograd's schemas -----------------------------------------------------------------------------------------------


def wsc_rows(file: Path, log: ReadingLog | None = None) -> Iterator[Schema]:
    """The rows of a file: `before`, `pronoun` and `after`, or a `text` in which the pronoun is looked for."""
    log = log or ReadingLog()
    with read_rows(file, field="pronoun", fields="all") as rows:
        for row in rows:
            if row.fields.get("wsc273") is False:
                log.add("a schema left out that is not among the 273", row.place)
                continue
            yield _wsc_row(row, log)


def _wsc_row(row: Row, log: ReadingLog) -> Schema:
    pronoun, fields, place = str(row.content), row.fields, row.place
    mentions, label = fields.get("candidates"), fields.get("label")
    if not isinstance(mentions, list) or len(mentions) != 2 or not all(isinstance(each, str) for each in mentions):
        raise InputError(f"{place}: 'candidates' must be a list of two texts. Got {mentions!r} instead.")
    if label not in (0, 1, None) or isinstance(label, bool):
        raise InputError(f"{place}: 'label' must be 0 or 1, the number of the right candidate. Got {label!r} instead.")
    if isinstance(fields.get("text"), str):
        text = fields["text"]
        spans = tuple(find_mention(text, mention) for mention in mentions)
        at = _find_pronoun(text, pronoun, spans, place, log)
    elif isinstance(fields.get("before"), str) and isinstance(fields.get("after"), str):
        before, after = fields["before"].strip(), fields["after"].strip()
        text = _join_parts(before, pronoun, after)
        start = len(before) + (1 if before else 0)
        at = (start, start + len(pronoun))
        spans = tuple(find_mention(text, mention) for mention in mentions)
    else:
        raise InputError(f"{place}: a schema has 'text', or 'before' and 'after'. There are: {', '.join(fields)}.")
    right = None if label is None else (label == 0, label == 1)
    return Schema(text, at, (mentions[0], mentions[1]), spans, right, str(fields.get("idx", row.id)), place)  # type: ignore[arg-type]


def find_mention(text: str, mention: str) -> Span | None:
    """Where a mention is: whole, or its last words; None: nowhere.

    >>> find_mention("It fits into the brown suitcase.", "The suitcase")
    (23, 31)
    """
    words = mention.split()
    for first in range(len(words)):
        if " ".join(words[first:]).lower() in _ARTICLES:
            break
        match = re.search(rf"(?<!\w){re.escape(' '.join(words[first:]))}(?!\w)", text, re.IGNORECASE)
        if match is not None:
            return match.span()
    return None


def _find_pronoun(text: str, pronoun: str, spans: Sequence[Span | None], place: Place, log: ReadingLog) -> Span:
    """The pronoun: of several, the first behind both mentions."""
    matches = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", text)]
    if not matches:
        raise InputError(f"{place}: the pronoun {excerpt(pronoun)!r} does not occur in its text, {excerpt(text)!r}.")
    if len(matches) > 1:
        log.add("a pronoun that occurs more than once, of which the first behind both mentions was taken", place)
    behind = max((span[1] for span in spans if span is not None), default=0)
    return next((span for span in matches if span[0] >= behind), matches[-1])


def wsc_items(file: Path, log: ReadingLog) -> list[Item]:
    """Two edges per schema, from each mention to the pronoun; one that the text does not name is left out."""
    return [item for schema in wsc_rows(file, log) for item in _edges(schema, log)]


def read_wsc(files: Sequence[Path]) -> list[PairSet]:
    """The two readings of each schema."""
    log = ReadingLog()
    schemas = [schema for file in files for schema in wsc_rows(file, log) if schema.right is not None]
    return _readings(schemas, (), log.notes())


# --- WNLI -------------------------------------------------------------------------------------------------------------


def read_wnli(files: Sequence[Path]) -> list[PairSet]:
    """Each hypothesis that holds, beside the one of its premise that does not and shares the most words with it."""
    of_premises: dict[str, tuple[dict[str, Place], dict[str, Place]]] = {}
    for file in files:
        for row, place in read_table(file, _WNLI):
            label, premise, hypothesis = row.get("label"), str(row["sentence1"]), str(row["sentence2"])
            if label not in ("0", "1"):
                raise InputError(f"{place}: a hypothesis of WNLI has the label 0 or 1. Got {label!r} instead.")
            of_premises.setdefault(premise, ({}, {}))[int(label)].setdefault(hypothesis, place)
    pairs: dict[str, list[MinimalPair]] = {PARTIAL: [], FULL: []}
    n_alone = 0
    for premise, (wrong, right) in of_premises.items():
        n_alone += 0 if wrong else len(right)
        for hypothesis, place in right.items() if wrong else ():
            other = max(wrong, key=lambda each: sum(_shared_words(hypothesis, each)))
            behind = _shared_words(hypothesis, other)[1]
            good, bad = f"{premise} {hypothesis}", f"{premise} {other}"
            pairs[FULL].append(MinimalPair(good, (bad,), (), place=str(place)))
            if behind:
                pairs[PARTIAL].append(MinimalPair(good, (bad,), (), last_words=behind, place=str(place)))
    notes = (f"{n_alone:,} hypotheses left out whose premise has no other that does not hold.",) if n_alone else ()
    return [PairSet(name, (), each, notes) for name, each in pairs.items()]


def _shared_words(one: str, other: str) -> tuple[int, int]:
    """How many words two texts share at their beginnings, and at their ends."""
    first, second = ([text[word.start : word.end] for word in split_words(text)] for text in (one, other))
    least = min(len(first), len(second))
    begins = next((n for n in range(least) if first[n] != second[n]), least)
    ends = next((n for n in range(least - begins) if first[-1 - n] != second[-1 - n]), least - begins)
    return begins, ends


# --- both -------------------------------------------------------------------------------------------------------------


def _edges(schema: Schema, log: ReadingLog) -> Iterator[Item]:
    pronoun = schema.text[slice(*schema.pronoun)].lower()
    for number, (mention, span) in enumerate(zip(schema.mentions, schema.spans, strict=True)):
        if span is None:
            log.add("an edge left out whose mention is not in the text", schema.place)
            continue
        if schema.text[slice(*span)].lower() != mention.lower():
            log.add("a mention of which only the last words are in the text", schema.place)
        yield Item(
            text=schema.text,
            spans=(span, schema.pronoun),
            gold=None if schema.right is None else LABELS[schema.right[number]],
            id=f"{schema.id}-{'AB'[number]}",
            place=str(schema.place),
            fields={"gender": GENDERS[pronoun]} if pronoun in GENDERS else {},
        )


def _readings(schemas: Sequence[Schema], levels: tuple[str, ...], notes: tuple[str, ...]) -> list[PairSet]:
    pairs: dict[str, list[MinimalPair]] = {PARTIAL: [], FULL: []}
    for schema in schemas:
        assert schema.right is not None
        texts = [reading(schema, mention) for mention in schema.mentions]
        right = schema.right.index(True)
        groups = (GENDERS[schema.text[slice(*schema.pronoun)].lower()],) if levels else ()
        behind = len(split_words(texts[0][0][texts[0][1] :]))
        for name, last_words in ((PARTIAL, behind), (FULL, None)):
            if last_words == 0:
                continue
            good, bad = texts[right][0], texts[1 - right][0]
            pairs[name].append(MinimalPair(good, (bad,), groups, last_words=last_words, place=str(schema.place)))
    return [PairSet(name, levels, each, notes) for name, each in pairs.items()]


def reading(schema: Schema, mention: str) -> tuple[str, int]:
    """The text with a mention in the place of the pronoun, and where that ends.

    An article is written as its place demands, and a possessive pronoun gives a possessive.
    """
    start, end = schema.pronoun
    before, pronoun, after = schema.text[:start], schema.text[start:end], schema.text[end:]
    first, _, rest = mention.partition(" ")
    if first.lower() in _ARTICLES:
        mention = f"{first.lower()} {rest}"
    if pronoun[:1].isupper():
        mention = mention[:1].upper() + mention[1:]
    owns = pronoun.lower() in _POSSESSIVES and after[:1] == " " and after[1:2].isalpha()
    if owns and not mention.endswith("'s"):
        mention += "'" if mention.endswith("s") else "'s"
    return before + mention + after, len(before) + len(mention)


def _join_parts(before: str, pronoun: str, after: str) -> str:
    closing = "" if not after or _CLOSES.match(after) else " "
    return f"{before}{' ' if before else ''}{pronoun}{closing}{after}"


COREFERENCE: tuple[Benchmark, ...] = (
    Benchmark(
        name="gap",
        kind="edge",
        description="does the pronoun stand for this name? (Wikipedia; as many women as men)",
        metrics=("f1", "accuracy"),
        folders=("gap", "GAP", "gap-coreference"),
        files={"train": ("gap-development.tsv",), "dev": ("gap-validation.tsv",), "test": ("gap-test.tsv",)},
        labels=LABELS,
        reader=file_reader(gap_items),
        grouped_by="gender",
    ),
    Benchmark(
        name="wsc",
        kind="edge",
        description="does the pronoun stand for this? (Winograd's 273 schemas; trained on those of Rahman and Ng)",
        metrics=("accuracy", "f1"),
        folders=("wsc", "WSC", "winograd"),
        files={"train": ("dpr_train.jsonl",), "dev": ("dpr_test.jsonl",), "test": WSC_FILES},
        labels=LABELS,
        reader=file_reader(wsc_items),
    ),
)
