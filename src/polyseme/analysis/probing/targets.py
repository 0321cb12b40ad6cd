"""What is probed: labeled words, spans, or pairs of spans of texts, all as rows of one table.

| unit | spans | label |
|---|---|---|
| words | the word | its tag |
| spans | the span that BIO tags mark; with marks (SRL), the marked word and the span | the span's type |
| arcs | a word and its head | its relation |
| items of two spans (GAP, WiC) or of one (a word in context) | these | the item's |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError, OptionError
from polyseme.files.rows import excerpt
from polyseme.tasks.edge import marks_in
from polyseme.tasks.encoder_rows import document_of, second_of
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.own_data import check_there
from polyseme.tasks.splits import evenly_spaced
from polyseme.tasks.tag import NOT_GIVEN
from polyseme.text.tag_schemes import spans_of
from polyseme.transfer.frozen_features import Key, key_of
from polyseme.types import Document
from polyseme.verb_options.probe_options import Unit

UNSEEN = -1
"""The number of a label that no training example has."""
_NAMED = 5


class Span(NamedTuple):
    """Words of one of an item's texts, end excluded."""

    text: int
    """0: the first text; 1: the second."""
    start: int
    end: int


class Example(NamedTuple):
    """A labeled span, or a labeled pair."""

    first: Span
    second: Span | None
    label: str


@dataclass(frozen=True)
class Targets:
    """Everything that is probed, in one table: S spans of the documents, N examples."""

    name: str
    unit: str
    documents: Sequence[Document]
    spans: NDArray[np.int64]
    """[S, 3]: the number of the document, the first word, and the end."""
    first: NDArray[np.int64]
    """[N]: which span an example is, or is the first of."""
    second: NDArray[np.int64] | None
    """[N]: the second span of pairs."""
    labels: NDArray[np.int64]
    """[N]: numbers of labels, or `UNSEEN`."""
    label_names: tuple[str, ...]
    splits: Mapping[str, NDArray[np.int64]]
    """The numbers of the examples of each split."""
    types: Sequence[tuple[str, ...]]
    """[N]: the words of the spans, as they are written."""
    notes: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What is labeled, in words."""
        return self.unit if self.second is None or self.unit == "arcs" else "pairs of spans"

    @property
    def texts(self) -> NDArray[np.int64]:
        """[N]: the number of each example's (first) document."""
        numbers: NDArray[np.int64] = self.spans[self.first, 0]
        return numbers


def targets_of(data: TaskData, *, unit: Unit | None, splits: Sequence[str], max_items: int | None = None) -> Targets:
    """The examples of these splits, of at most so many items of each, evenly spaced.

    Labels are those of train; a value that is not given (`_`) is left out.
    """
    unit = unit or _usual_unit(data)
    if unit == "spans" and KINDS[data.kind].labels_words and data.scheme is None:
        raise OptionError(f"The tags of {data.name} mark no spans, as B-PER and I-PER do. Use --unit words.")
    for split in splits:
        check_there(data, split)
    table, notes = _Table(), list(data.notes)
    numbers: dict[str, NDArray[np.int64]] = {}
    for split in splits:
        items = evenly_spaced(data.splits[split], max_items)
        if len(items) < len(data.splits[split]):
            notes.append(f"{len(items):,} of {len(data.splits[split]):,} items of {split}, evenly spaced.")
        before = len(table.labels)
        for item in items:
            table.add(item, _examples(data, item, unit), split)
        numbers[split] = np.arange(before, len(table.labels))
        if not len(numbers[split]):
            raise InputError(f"The {split} split of {data.name} has no labeled {unit}.")
    if table.not_given:
        notes.append(f"{table.not_given:,} {unit} without a value ({NOT_GIVEN}) were left out.")
    return table.targets(data, unit, numbers, notes)


def _usual_unit(data: TaskData) -> Unit:
    if not KINDS[data.kind].labels_words:
        return "spans"
    return "words" if data.scheme is None else "spans"


# --- examples of an item ----------------------------------------------------------------------------------------------


def _examples(data: TaskData, item: Item, unit: Unit) -> Iterable[Example]:
    if item.spans:
        if unit != "spans":
            raise OptionError(f"{data.name} has labels of spans. The unit {unit!r} is for words with tags.")
        return [_of_spans(item)]
    return {"words": _words, "spans": _tagged_spans, "arcs": _arcs}[unit](item)


def _words(item: Item) -> Iterator[Example]:
    marked = _marked(item)
    for number, tag in enumerate(item.gold):
        word = Span(0, number, number + 1)
        yield Example(word, None, tag) if marked is None else Example(marked, word, tag)


def _tagged_spans(item: Item) -> Iterator[Example]:
    marked = _marked(item)
    for start, end, label in spans_of(item.gold):
        span = Span(0, start, end)
        yield Example(span, None, label) if marked is None else Example(marked, span, label)


def _marked(item: Item) -> Span | None:
    """The marked words, of which the roles are."""
    places = [number for number, mark in enumerate(item.marks) if mark]
    return Span(0, places[0], places[-1] + 1) if places else None


def _arcs(item: Item) -> Iterator[Example]:
    """`marks` are the numbers of the heads, from 1; 0 is a root, which has none."""
    for number, (head, tag) in enumerate(zip(item.marks, item.gold, strict=True)):
        if not 0 <= head <= len(item.words):
            raise InputError(
                f"{item.place}: the head of word {number + 1}, {excerpt(item.words[number])!r}, is word {head}, and "
                f"the sentence has {len(item.words)} words."
            )
        if head:
            yield Example(Span(0, number, number + 1), Span(0, head - 1, head), tag)


def _of_spans(item: Item) -> Example:
    """Of characters, the words that they touch."""
    two_texts = item.second is not None
    spans = []
    for number, span in enumerate(item.spans):
        text = number if two_texts else 0
        document = second_of(item) if text else document_of(item)
        words = [place for place, mark in enumerate(marks_in(document, span, 1, item)) if mark]
        spans.append(Span(text, words[0], words[-1] + 1))
    return Example(spans[0], spans[1] if len(spans) > 1 else None, str(item.gold))


# --- the table --------------------------------------------------------------------------------------------------------


class _Table:
    """Examples as they come in."""

    def __init__(self) -> None:
        self.documents: dict[Key, Document] = {}
        self.places: dict[Key, int] = {}
        self.spans: list[tuple[int, int, int]] = []
        self.rows: dict[tuple[int, int, int], int] = {}
        self.first: list[int] = []
        self.second: list[int] = []
        self.labels: list[str] = []
        self.of_train: Counter[str] = Counter()
        self.types: list[tuple[str, ...]] = []
        self.not_given = 0

    def add(self, item: Item, examples: Iterable[Example], split: str) -> None:
        documents = [document_of(item)] if item.second is None else [document_of(item), second_of(item)]
        places = [self._place(document) for document in documents]
        for example in examples:
            if example.label == NOT_GIVEN:
                self.not_given += 1
                continue
            spans = [span for span in (example.first, example.second) if span is not None]
            rows = [self._row((places[text], start, end), single=len(spans) == 1) for text, start, end in spans]
            self.first.append(rows[0])
            self.second += rows[1:]
            self.labels.append(example.label)
            self.types.append(tuple(" ".join(map(str, documents[text].words[start:end])) for text, start, end in spans))
            if split == "train":
                self.of_train[example.label] += 1

    def _row(self, span: tuple[int, int, int], *, single: bool) -> int:
        """The row of a span: of pairs, which share theirs, each has one; single spans are in the examples' order."""
        row = len(self.spans) if single else self.rows.setdefault(span, len(self.spans))
        if row == len(self.spans):
            self.spans.append(span)
        return row

    def _place(self, document: Document) -> int:
        key = key_of(document)
        if key not in self.documents:
            self.documents[key] = document
            self.places[key] = len(self.places)
        return self.places[key]

    def targets(self, data: TaskData, unit: str, splits: Mapping[str, NDArray[np.int64]], notes: list[str]) -> Targets:
        if len(self.of_train) < 2:
            [label] = self.of_train
            raise InputError(
                f"All {self.of_train.total():,} training {unit} of {data.name} have the same label, "
                f"{excerpt(label)!r}, so that there is nothing to learn. Is it the right column (--label)?"
            )
        if self.second and len(self.second) != len(self.first):
            raise InputError(
                f"{data.name} has single spans and pairs of spans. Write them to two files, and probe each."
            )
        names = tuple(sorted(self.of_train))
        number = {name: place for place, name in enumerate(names)}
        unseen = Counter(label for label in self.labels if label not in number)
        if unseen:
            listed = ", ".join(repr(excerpt(label)) for label, _ in unseen.most_common(_NAMED))
            notes.append(f"Labels that are not in train count as wrong ({listed}): {unseen.total():,} in all.")
        order = np.array(self.spans, np.int64).reshape(-1, 3)
        return Targets(
            name=data.name,
            unit=unit,
            documents=list(self.documents.values()),
            spans=order,
            first=np.array(self.first, np.int64),
            second=np.array(self.second, np.int64) if self.second else None,
            labels=np.array([number.get(label, UNSEEN) for label in self.labels], np.int64),
            label_names=names,
            splits=splits,
            types=self.types,
            notes=tuple(notes),
        )
