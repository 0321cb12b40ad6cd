"""What was taken for what, and what one gets by always saying the commonest thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from polyseme.metrics.task_metrics import measure
from polyseme.tasks.items import Item, TaskData


@dataclass(frozen=True)
class Confusion:
    """How often each label was given for each."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """A row a gold label, a column a predicted one."""

    def worst(self, n: int = 10) -> list[tuple[str, str, int]]:
        """The commonest confusions: gold, predicted, how often."""
        found = [
            (gold, predicted, count)
            for gold, row in zip(self.labels, self.counts, strict=True)
            for predicted, count in zip(self.labels, row, strict=True)
            if gold != predicted and count
        ]
        return sorted(found, key=lambda each: (-each[2], each[0], each[1]))[:n]


def confusion(gold: Sequence[Any], predicted: Sequence[Any], labels: Sequence[str] = ()) -> Confusion:
    """Confusion counts of labels, or of tags word by word. Labels that occur and are not listed come last.

    >>> confusion(["a", "a", "b"], ["a", "b", "b"]).counts
    ((1, 1), (0, 1))
    """
    pairs = Counter(_pairs(gold, predicted))
    others = sorted({label for pair in pairs for label in pair} - set(labels))
    names = (*labels, *others)
    return Confusion(names, tuple(tuple(pairs[one, other] for other in names) for one in names))


def _pairs(gold: Sequence[Any], predicted: Sequence[Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one, other in zip(gold, predicted, strict=True):
        if isinstance(one, list | tuple):
            found += zip(one, other, strict=True)
        else:
            found.append((one, other))
    return found


def majority(data: TaskData, split: str = "dev") -> dict[str, float]:
    """The figures of the simplest guess there is, on a split: a result must beat them to mean anything.

    Labels: the commonest in train (in the split itself, if there is no train). Tags: each word's commonest tag, and the
    commonest of all for words that train lacks. Numbers: the mean. Choices: the commonest place. Spans: no answer.
    """
    items = [item for item in data.splits[split] if item.gold is not None]
    learned = [item for item in data.splits.get("train", ()) if item.gold is not None] or items
    guessed = _GUESSES["number" if data.regression else "several" if data.multi else data.kind](learned, items)
    return measure(data.metrics, [item.gold for item in items], guessed, labels=data.labels)


def _commonest(learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
    return [_most(Counter(item.gold for item in learned))] * len(items)


def _most(counts: Counter[Any]) -> Any:
    """The commonest; of several, the first in order."""
    return min(counts, key=lambda label: (-counts[label], label))


def _commonest_tags(learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
    by_word: dict[str, Counter[str]] = {}
    every: Counter[str] = Counter()
    for item in learned:
        for word, tag in zip(item.words, item.gold, strict=True):
            by_word.setdefault(word, Counter())[tag] += 1
            every[tag] += 1
    best = {word: _most(counts) for word, counts in by_word.items()}
    other = _most(every)
    return [tuple(best.get(word, other) for word in item.words) for item in items]


_GUESSES: Mapping[str, Callable[[Sequence[Item], Sequence[Item]], list[Any]]] = {
    "classify": _commonest,
    "pair": _commonest,
    "choose": _commonest,
    "tag": _commonest_tags,
    "span": lambda learned, items: [""] * len(items),
    "several": _commonest,
    "number": lambda learned, items: [fmean(item.gold for item in learned)] * len(items),
}
