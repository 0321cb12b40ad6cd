"""What a task is made of: items to be judged, with their gold answers, in splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A stretch of a passage that answers its question: where it starts, and its text."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing to be judged."""

    text: str = ""
    """classify, edge: the text; pair: the first text; span: the passage; choose: the question or context."""
    words: tuple[str, ...] = ()
    """The words where they were given (always in tagging; `text` is then the words with spaces between); else empty."""
    second: str | None = None
    """pair: the second text; span: the question."""
    choices: tuple[str, ...] = ()
    marks: tuple[int, ...] = ()
    """One number per word, such as 1 at the predicate whose roles are tagged; empty: none."""
    second_marks: tuple[int, ...] = ()
    """The same of the second text."""
    spans: tuple[tuple[int, int], ...] = ()
    """edge: the two spans, in characters, end excluded; edge-pair: the second is in the second text."""
    gold: Any = None
    """The answer, as the kind of task has it (`tasks.kinds`): a label, a float (regression), a tuple of labels, one tag
    per word, a tuple of `Answer` (empty: the passage has none), the index of the right choice. None: not labeled."""
    id: str = ""
    place: str = ""
    """Where it was read, for messages: `train.tsv, line 3`."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of its row."""

    @classmethod
    def of_words(cls, words: Sequence[str], **others: Any) -> Item:
        """An item over given words."""
        return cls(text=" ".join(words), words=tuple(words), **others)


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task with its splits, as read and checked."""

    name: str
    kind: str
    """The name of its kind, as `tasks.kinds.KINDS` has it."""
    labels: tuple[str, ...] = ()
    """The labels (tags, in tagging), in a fixed order; empty for regression, spans and choices."""
    regression: bool = False
    multi: bool = False
    """Whether several labels may hold of one item."""
    splits: Mapping[str, Sequence[Item]]
    """"train", "dev", "test", as far as they are there; MNLI has "dev_mismatched" too."""
    sampled: tuple[str, ...] = ()
    """The splits that are samples of the published ones: a figure on or from them is not comparable."""
    metrics: tuple[str, ...]
    """Their names; the first is what dev chooses by."""
    grouped_by: str = ""
    """The field of items by whose values the first metric is given, too: the gender of pronouns; empty: none."""
    scheme: str | None = None
    """How tags mark spans ("IOB1", "BIO", "BIOES"); None where a tag is a word's own, as in parts of speech."""
    notes: tuple[str, ...] = ()
    """What was repaired, skipped or made while reading: to be reported once."""


@dataclass
class ReadingLog:
    """What was left out, repaired or chosen while reading: how often, and where first. Reported once."""

    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, note: str, place: object) -> None:
        self.places.setdefault(note, []).append(str(place))

    def notes(self) -> tuple[str, ...]:
        return tuple(f"{len(places):,} × {note} (first: {places[0]})." for note, places in self.places.items())


def labels_in(item: Item) -> tuple[Any, ...]:
    """The different labels of an item: one, several, or its tags; none where it is a number, a choice or answers."""
    if isinstance(item.gold, str):
        return (item.gold,)
    if isinstance(item.gold, tuple) and all(isinstance(each, str) for each in item.gold):
        return tuple(dict.fromkeys(item.gold))
    return ()
