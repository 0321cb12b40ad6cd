"""The metrics of tasks, by name. All are fractions: what prints them multiplies by 100.

They are few and short, so they are here rather than in a package that every user would have to install; tests hold
them against scikit-learn, scipy, `conlleval` and SQuAD's scripts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError, OptionError, nearest
from polyseme.metrics.answer_match import answer_scores
from polyseme.text.tag_schemes import Span, spans_of
from polyseme.types import Confusion

Labels = Sequence[Any]
CORRELATIONS = frozenset({"pearson", "spearman", "matthews"})
"""Metrics that are not defined where one side is constant."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A figure of how near predictions come to the gold."""

    name: str
    description: str
    compute: Callable[[Labels, Labels, Sequence[Any]], float]
    """From gold, predictions, and the label set in its order (it may be empty), to the figure."""


def measure(names: Sequence[str], gold: Labels, predicted: Labels, *, labels: Sequence[Any] = ()) -> dict[str, float]:
    """The figures of predictions, by name.

    Args:
        names: of metrics, as `METRICS` has them.
        gold: one answer per item, as `Item.gold` has it: a label, a float, labels, tags, answers or a choice.
        predicted: likewise; of spans, the text of the answer, empty for none.
        labels: the label set in its order; the last of two is the one whose F1 is meant. Without it, of the labels
            that occur, the greater one is ("1", "pos", "yes", True).
    """
    if len(gold) != len(predicted):
        raise InputError(f"There are {len(gold)} gold answers and {len(predicted)} predictions.")
    if not gold:
        raise InputError("There is nothing to measure: no item has a gold answer.")
    figures: dict[str, float] = {}
    for name in names:
        if name not in METRICS:
            raise OptionError(f"There is no metric {name!r}. {nearest(name, METRICS)}")
        figures[name] = METRICS[name].compute(gold, predicted, labels)
    return figures


def measure_groups(
    name: str, gold: Labels, predicted: Labels, groups: Sequence[str], *, labels: Sequence[Any] = ()
) -> dict[str, float]:
    """A metric within each group; where the groups are genders, also GAP's bias, the feminine figure by the masculine.

    >>> measure_groups("accuracy", [1, 0], [1, 1], ["masculine", "feminine"])
    {'accuracy (feminine)': 0.0, 'accuracy (masculine)': 1.0, 'bias': 0.0}
    """
    names = sorted(set(groups))
    figures: dict[str, float] = {}
    for group in names:
        places = [place for place, each in enumerate(groups) if each == group]
        ours, theirs = [gold[place] for place in places], [predicted[place] for place in places]
        figures[f"{name} ({group})"] = METRICS[name].compute(ours, theirs, labels)
    if names == ["feminine", "masculine"]:
        feminine, masculine = figures.values()
        figures["bias"] = feminine / masculine if masculine else 0.0
    return figures


def undefined(names: Sequence[str], gold: Labels, predicted: Labels) -> tuple[str, ...]:
    """Notes on figures that are not defined for these predictions, and therefore given as 0."""
    return tuple(
        f"All {side} are the same, so that {name} is not defined and is given as 0."
        for side, values in (("gold answers", gold), ("predictions", predicted))
        for name in names
        if name in CORRELATIONS and len(set(values)) == 1
    )


# --- labels ----------------------------------------------------------------------------------------------------------


def accuracy(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """The share of items that are right; of several labels, all must be."""
    right = sum(bool(_comparable(one) == _comparable(other)) for one, other in zip(gold, predicted, strict=True))
    return right / len(gold)


def f1(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """F1 of the positive one of two labels."""
    there = list(labels) or sorted({*gold, *predicted})
    if len(there) > 2:
        raise OptionError(f"F1 is of two labels, of which one is positive, and there are {len(there)}. Take macro_f1.")
    return _f1_of(gold, predicted, there[-1])


def macro_f1(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """The mean of the F1 of each label that occurs, in the gold or in the predictions."""
    there = sorted({*gold, *predicted})
    return sum(_f1_of(gold, predicted, label) for label in there) / len(there)


def _f1_of(gold: Labels, predicted: Labels, label: Any) -> float:
    right = sum(one == other == label for one, other in zip(gold, predicted, strict=True))
    total = sum(one == label for one in gold) + sum(one == label for one in predicted)
    return 2 * right / total if total else 0.0


def matthews(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """Matthews' correlation of labels, two or more (Gorodkin 2004); 0 where one side has one label only."""
    n, right = len(gold), sum(one == other for one, other in zip(gold, predicted, strict=True))
    golds, predictions = Counter(gold), Counter(predicted)
    both = sum(golds[label] * predictions[label] for label in golds)
    spread = (n * n - sum(v * v for v in golds.values())) * (n * n - sum(v * v for v in predictions.values()))
    return (right * n - both) / math.sqrt(spread) if spread else 0.0


# --- several labels --------------------------------------------------------------------------------------------------


def multi_micro_f1(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """F1 over all labels of all items counted together, where an item may have several."""
    golds, predictions = ([_label_set(each) for each in side] for side in (gold, predicted))
    right = sum(len(one & other) for one, other in zip(golds, predictions, strict=True))
    total = sum(map(len, golds)) + sum(map(len, predictions))
    return 2 * right / total if total else 0.0


def multi_macro_f1(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """The mean over labels of F1, where an item may have several: those that are named, and others that occur."""
    golds, predictions = ([_label_set(each) for each in side] for side in (gold, predicted))
    there = list(dict.fromkeys([*labels, *sorted(set().union(*golds, *predictions))]))
    if not there:
        return 0.0
    return sum(
        _f1_of([label in each for each in golds], [label in each for each in predictions], True) for label in there
    ) / len(there)


def _label_set(value: Any) -> set[Any]:
    """The labels of an item; one that stands alone is a set of one."""
    return {value} if isinstance(value, str) else set(value)


# --- numbers ---------------------------------------------------------------------------------------------------------


def pearson(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """Pearson's correlation of numbers; 0 where one side is constant."""
    return _correlation(_numbers(gold), _numbers(predicted))


def spearman(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """Spearman's correlation: Pearson's of the ranks, those that are equal sharing theirs; 0 where one is constant."""
    return _correlation(_ranks(_numbers(gold)), _ranks(_numbers(predicted)))


def _numbers(values: Labels) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        place = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise InputError(f"Item {place + 1} of those measured is {numbers[place]}, which is no number to correlate.")
    return numbers


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    if len(one) < 2 or (one == one[0]).all() or (other == other[0]).all():
        return 0.0
    one, other = _direction(one), _direction(other)
    return float(np.clip(one @ other, -1.0, 1.0))


def _direction(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What values differ from their mean by, at length 1; values of any size, whose squares may not be numbers."""
    values = values / np.abs(values).max()
    values = values - values.mean()
    values = values / np.abs(values).max()
    result: NDArray[np.float64] = values / np.linalg.norm(values)
    return result


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: NDArray[np.float64] = last - (counts - 1) / 2
    return mean[which]


# --- tags and spans --------------------------------------------------------------------------------------


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
        gold_spans, predicted_spans = _spans(tuple(ours)), _spans(tuple(theirs))
        n_gold.update(span.type for span in gold_spans)
        n_predicted.update(span.type for span in predicted_spans)
        n_right.update(span.type for span in gold_spans & predicted_spans)
    every = Counted(n_gold.total(), n_predicted.total(), n_right.total())
    types = sorted({*n_gold, *n_predicted})
    return SpanCounts(every, {type_: Counted(n_gold[type_], n_predicted[type_], n_right[type_]) for type_ in types})


@lru_cache(maxsize=1 << 14)
def _spans(tags: tuple[str, ...]) -> frozenset[Span]:
    """Those of a sentence: several metrics count them, the gold ones after every evaluation."""
    return frozenset(spans_of(tags))


def word_accuracy(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
    """The share of words whose tag is right."""
    right = sum(
        one == other for ours, theirs in zip(gold, predicted, strict=True) for one, other in _pair_up(ours, theirs)
    )
    n = sum(len(each) for each in gold)
    return right / n if n else 0.0


def _pair_up(ours: Sequence[str], theirs: Sequence[str]) -> zip[tuple[str, str]]:
    if len(ours) != len(theirs):
        raise InputError(f"A sentence has {len(ours)} gold tags and {len(theirs)} predicted ones.")
    return zip(ours, theirs, strict=True)


def _mean_of(place: int) -> Callable[[Labels, Labels, Sequence[Any]], float]:
    def compute(gold: Labels, predicted: Labels, labels: Sequence[Any] = ()) -> float:
        return sum(score[place] for score in answer_scores(gold, predicted)) / len(gold)

    return compute


def _comparable(value: Any) -> Any:
    """Several labels are compared whatever their order."""
    return frozenset(value) if isinstance(value, list | tuple | set) else value


_TABLE: Sequence[tuple[str, str, Callable[[Labels, Labels, Sequence[Any]], float]]] = (
    ("accuracy", "share of items that are right", accuracy),
    ("f1", "F1 of the positive label", f1),
    ("macro_f1", "mean of the F1 of each label", macro_f1),
    ("micro_f1", "F1 over the labels of all items, where one may have several", multi_micro_f1),
    ("multi_macro_f1", "mean over labels of F1, where an item may have several", multi_macro_f1),
    ("matthews", "Matthews' correlation", matthews),
    ("pearson", "Pearson's correlation", pearson),
    ("spearman", "Spearman's rank correlation", spearman),
    ("word_accuracy", "share of words whose tag is right", word_accuracy),
    ("span_f1", "F1 of spans, as conlleval", lambda g, p, _: count_spans(g, p).all.f1),
    ("span_precision", "share of predicted spans that are right", lambda g, p, _: count_spans(g, p).all.precision),
    ("span_recall", "share of gold spans that are predicted", lambda g, p, _: count_spans(g, p).all.recall),
    ("exact_match", "share of answers that are a gold one, normalized, as SQuAD's script", _mean_of(0)),
    ("answer_f1", "mean overlap in words with the nearest gold answer, as SQuAD's script", _mean_of(1)),
)
METRICS: Mapping[str, Metric] = {
    name: Metric(name=name, description=description, compute=compute) for name, description, compute in _TABLE
}
"""From the name of a metric to what it is."""


# --- confusions ------------------------------------------------------------------------------------------------------


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
    pairs: list[tuple[str, str]] = []
    for one, other in zip(gold, predicted, strict=True):
        if isinstance(one, list | tuple):
            pairs += zip(one, other, strict=True)
        else:
            pairs.append((one, other))
    return pairs
