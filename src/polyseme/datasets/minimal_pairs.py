"""Minimal pairs: a sentence and one or more that differ from it in one thing, of which a model should prefer the first.

One's own pairs are a table (CSV, TSV, JSONL, Parquet) with the columns `good` and `bad`, and, if they are of several
kinds, `group`. BLiMP (Warstadt et al. 2020) has 67 paradigms of 1,000 pairs each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError
from polyseme.files.rows import Row, read_rows

Text = str | tuple[str, ...]
"""A text, or its words."""
FILES = ("*.jsonl",)
"""Of BLiMP: one file of all, or the official ones, one per paradigm."""
NEEDS = ("sentence_bad", "UID", "field")


@dataclass(frozen=True)
class MinimalPair:
    """What should be likelier, and what less likely, with the groups that it is counted in."""

    good: Text
    bad: tuple[Text, ...]
    """One or more; the good one must be likelier than each."""
    groups: tuple[str, ...]
    """From the widest to the narrowest, as the levels of `PairSet` are named."""
    focus: int | None = None
    """The number of the word, counted from 0, that alone is compared; None: the whole text."""
    last_words: int | None = None
    """How many last words alone are compared, given those before them; None: the whole text."""
    place: str = ""
    """Where it stands, for messages."""


@dataclass(frozen=True)
class PairSet:
    """Pairs that are counted together."""

    name: str
    levels: tuple[str, ...]
    """What the groups of its pairs are, from the widest to the narrowest."""
    pairs: Sequence[MinimalPair]
    notes: tuple[str, ...] = ()


def limit_pairs(sets: Sequence[PairSet], most: int) -> list[PairSet]:
    """At most so many pairs of each narrowest group, evenly spaced, with a note on how many those are."""
    if most < 1:
        raise OptionError(f"At least 1 pair of each group must be scored. Got {most} instead.")
    return [_thin_out(each, most) for each in sets]


def _thin_out(pairs: PairSet, most: int) -> PairSet:
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, pair in enumerate(pairs.pairs):
        groups.setdefault(pair.groups, []).append(number)
    chosen = sorted(
        numbers[place * len(numbers) // min(most, len(numbers))]
        for numbers in groups.values()
        for place in range(min(most, len(numbers)))
    )
    if len(chosen) == len(pairs.pairs):
        return pairs
    note = (
        f"A sample: {len(chosen):,} of the {len(pairs.pairs):,} pairs of {pairs.name}, at most {most:,} of each group."
    )
    return replace(pairs, pairs=[pairs.pairs[number] for number in chosen], notes=(*pairs.notes, note))


def read_pairs(files: Sequence[Path]) -> list[PairSet]:
    """A user's own pairs."""
    rows = [row for file in files for row in table_rows(file, "good", noun="minimal pairs")]
    grouped = any(row.fields.get("group") is not None for row in rows)
    pairs = [
        MinimalPair(
            good=checked(row, row.content, "good"),
            bad=(checked(row, row.fields.get("bad"), "bad"),),
            groups=(_group(row),) if grouped else (),
            place=str(row.place),
        )
        for row in rows
    ]
    name = files[0].name if len(files) == 1 else f"{len(files)} files"
    return [PairSet(name, ("group",) if grouped else (), pairs)]


def table_rows(file: Path, field: str, *, noun: str, needs: Sequence[str] = ("bad",), **reading: Any) -> Iterator[Row]:
    """The rows of a table with all their fields; one that is of another layout is refused."""
    with read_rows(file, field=field, fields="all", **reading) as rows:
        for number, row in enumerate(rows):
            missing = [name for name in needs if name not in row.fields]
            if number == 0 and missing:
                there = ", ".join([field, *row.fields])
                raise InputError(
                    f"{file} is no file of {noun}: it has no column {' and no '.join(map(repr, missing))}. "
                    f"There are: {there}."
                )
            yield row


def checked(row: Row, text: Any, name: str) -> Text:
    """One side of a pair, which must be there."""
    if isinstance(text, list) and text and all(isinstance(word, str) and word.strip() for word in text):
        return tuple(text)
    if isinstance(text, str) and text.strip():
        return text
    if not text or isinstance(text, str):
        raise InputError(f"{row.place}: {name!r} is missing or empty. A pair needs both of its sides.")
    raise InputError(f"{row.place}: {name!r} must be a text or a list of words. Got {text!r} instead.")


def _group(row: Row) -> str:
    group = row.fields.get("group")
    return str(group) if group not in (None, "") else "(no group)"


def number_of(row: Row, name: str, fields: Mapping[str, Any] | None = None) -> int:
    """A column that holds a whole number."""
    value = (row.fields if fields is None else fields).get(name)
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{row.place}: {name!r} must be a whole number. Got {value!r} instead.") from None


def read_blimp(files: Sequence[Path]) -> list[PairSet]:
    """The pairs, each in its field and its paradigm. One paradigm spells its field otherwise than the rest."""
    pairs = [
        MinimalPair(
            good=checked(row, row.content, "sentence_good"),
            bad=(checked(row, row.fields["sentence_bad"], "sentence_bad"),),
            groups=(str(row.fields["field"]).replace("syntax/semantics", "syntax_semantics"), str(row.fields["UID"])),
            place=str(row.place),
        )
        for file in files
        for row in table_rows(file, "sentence_good", noun="BLiMP", needs=NEEDS)
    ]
    return [PairSet("blimp", ("field", "paradigm"), pairs)]
