"""Precision, recall and F1 of spans, counted as `conlleval` does: right is what has the right ends and type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyseme.errors import InputError
from polyseme.text.tag_schemes import spans_of


@dataclass(frozen=True)
class Counted:
    """How many spans there are, how many were predicted, and how many of these are right."""

    gold: int
    predicted: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True)
class SpanCounts:
    """The counts of all spans, and those of each type."""

    all: Counted
    types: Mapping[str, Counted]


def count_spans(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanCounts:
    """Count spans over sentences.

    Args:
        gold: the tags of each sentence, in any of the schemes.
        predicted: likewise; they may be in another scheme, and need not be valid.
    """
    n_gold: Counter[str] = Counter()
    n_predicted: Counter[str] = Counter()
    n_right: Counter[str] = Counter()
    for number, (ours, theirs) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(ours) != len(theirs):
            raise InputError(f"Sentence {number} has {len(ours)} gold tags and {len(theirs)} predicted ones.")
        gold_spans, predicted_spans = set(spans_of(ours)), set(spans_of(theirs))
        n_gold.update(span.type for span in gold_spans)
        n_predicted.update(span.type for span in predicted_spans)
        n_right.update(span.type for span in gold_spans & predicted_spans)
    every = Counted(n_gold.total(), n_predicted.total(), n_right.total())
    types = sorted({*n_gold, *n_predicted})
    return SpanCounts(every, {type_: Counted(n_gold[type_], n_predicted[type_], n_right[type_]) for type_ in types})
