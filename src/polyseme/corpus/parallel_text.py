"""Texts in pairs: line n of one side belongs to line n of the other, as a translation belongs to what it translates.

Sides are files of plain text, packed or not, a text a line. Pairs are documents of two sides (`shards`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from polyseme.corpus.document_reader import STRETCH, Stretched, Tally, plain_lines
from polyseme.corpus.shards import SIDES
from polyseme.errors import InputError, OptionError
from polyseme.files.row_reader import ENDINGS
from polyseme.files.source import STANDARD_INPUT, suffixes
from polyseme.files.source_paths import Found, Sources, find_files

ALL = 2.0
"""A share that no document's chance comes up to: all are held out."""


@dataclass
class PairSource:
    """Files of two sides that belong together; read as `documents.TextSource` is."""

    name: str
    files: Mapping[str, Found]
    """By side."""
    held_out: float | None = None
    """The share that is kept for evaluation; None: what is asked for."""
    weight: float = 1.0
    tally: Tally = dataclasses.field(default_factory=Tally)

    @property
    def sides(self) -> Sequence[str]:
        return tuple(self.files)

    @property
    def found(self) -> Found:
        """The files of all sides."""
        return Found(*(list(chain(*columns)) for columns in zip(*self.files.values(), strict=True)))

    @property
    def total(self) -> int:
        """Bytes of the files, as they lie on the disk."""
        return self.found.total or 0

    def stretches(self) -> Iterator[Stretched]:
        """The pairs, source and target in turn; those that are empty on both sides left out."""
        self.tally = Tally()
        texts: list[bytes] = []
        size = done = 0
        for pair, done in self._pairs():
            texts += pair
            size += sum(map(len, pair))
            if size >= STRETCH:
                yield Stretched(texts, done)
                texts, size = [], 0
        if texts:
            yield Stretched(texts, done)

    def _pairs(self) -> Iterator[tuple[tuple[bytes, bytes], int]]:
        before = 0
        one, other = (self.files[side] for side in self.files)
        for names, sizes in zip(
            zip(one.names, other.names, strict=True), zip(one.sizes, other.sizes, strict=True), strict=True
        ):
            sides = [plain_lines(name) for name in names]
            number = 0
            while True:
                number += 1
                found = [next(side, None) for side in sides]
                if found[0] is None and found[1] is None:
                    break
                if found[0] is None or found[1] is None:
                    short, long = names if found[0] is None else names[::-1]
                    raise InputError(
                        f"{short} has {number - 1:,} lines, and {long} goes on with line {number:,}. The sides of "
                        "pairs must have equally many lines: line n of one belongs to line n of the other."
                    )
                pair = (found[0][0], found[1][0])
                empty = [not text.strip() for text in pair]
                if all(empty):
                    self.tally.empty += 1
                elif any(empty):
                    blank, full = names if empty[0] else names[::-1]
                    raise InputError(
                        f"{blank}, line {number:,}: it is empty, and line {number:,} of {full} is not. A source needs "
                        "its target: write what is missing, or take the line out of both files."
                    )
                else:
                    yield pair, before + found[0][1] + found[1][1]
            before += sum(size or 0 for size in sizes)


def pair_sources(
    source: Sources | None, target: Sources | None, held_source: Sources | None, held_target: Sources | None
) -> list[PairSource]:
    """What the user names, checked as far as it can be before anything is read."""
    given = {"source": source, "target": target}
    held = {"held_source": held_source, "held_target": held_target}
    _refuse_one_side(given)
    if held_source is not None or held_target is not None:
        _refuse_one_side(held)
        kept = PairSource("held", _files(dict(zip(SIDES, held.values(), strict=True))), held_out=ALL)
        return [PairSource("text", _files(given), held_out=0.0), kept]
    return [PairSource("text", _files(given))]


def _refuse_one_side(given: Mapping[str, Sources | None]) -> None:
    missing = [name for name, its in given.items() if its is None]
    if missing:
        there = next(name for name in given if name not in missing)
        raise OptionError(
            f"Pairs have two sides: {there!r} was given without {missing[0]!r}. Name the files of both "
            f"(--{there.replace('_', '-')} … --{missing[0].replace('_', '-')} …)."
        )


def _files(given: Mapping[str, Sources | None]) -> dict[str, Found]:
    found = {side: find_files(its or (), endings=None) for side, its in given.items()}
    for its in found.values():
        for name in its.names:
            kind = ENDINGS.get(suffixes(name)[0], "text")
            if name == STANDARD_INPUT or kind != "text":
                what = "standard input" if name == STANDARD_INPUT else f"{name} ({kind})"
                raise InputError(f"The sides of pairs are files of plain text, a text a line. Got {what} instead.")
    counts = [len(its.names) for its in found.values()]
    if counts[0] != counts[1]:
        raise InputError(
            f"The sides of pairs must have equally many files. Got {counts[0]} of the one and {counts[1]} of the other."
        )
    return found
