"""How often the right word of a cloze item is among the first, in all and by group: accuracy at 1, 5, 10, and MRR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyseme.metrics.evaluation_report import Figures, Line
from polyseme.metrics.sampling_error import wilson_interval

if TYPE_CHECKING:
    from polyseme.datasets.cloze import ClozeItem

COLUMNS: Mapping[str, str] = {
    "accuracy": "share of items whose likeliest word is right",
    "low": "Wilson's interval of 95%, its lower end",
    "high": "its upper end",
    "accuracy_at_5": "share of items with a right word among the first 5",
    "accuracy_at_10": "share of items with a right word among the first 10",
    "mrr": "mean reciprocal rank of the first right word; 0 where it is not listed",
    "macro_accuracy": "mean of the groups' accuracies",
}


def cloze_figures(items: Sequence[ClozeItem], answers: Sequence[Any]) -> Figures:
    """The metric of cloze sets, from the rank of each item's right answer (`rank`, 0: not listed) and `words`."""
    ranks = np.array([answer.rank for answer in answers])
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        if item.group is not None:
            groups.setdefault(item.group, []).append(number)
    lines = [Line("group", name, len(numbers), _figures(ranks[numbers]), depth=1) for name, numbers in groups.items()]
    shares = [line.figures["accuracy"] for line in lines]
    macro = float(np.mean([share for share in shares if share is not None])) if shares else None
    every = Line("all", "all", len(ranks), {**_figures(ranks), "macro_accuracy": macro})
    records = [
        {
            "id": item.id,
            "place": item.place,
            "group": item.group,
            "answers": list(item.answers),
            "rank": answer.rank or None,
            "words": list(answer.words),
        }
        for item, answer in zip(items, answers, strict=True)
    ]
    return Figures(columns=COLUMNS, lines=[every, *lines], items=records)


def _figures(ranks: Any) -> dict[str, float | None]:
    listed = ranks > 0
    low, high = wilson_interval(int((ranks == 1).sum()), len(ranks))
    return {
        "accuracy": float((ranks == 1).mean()),
        "low": low,
        "high": high,
        "accuracy_at_5": float((listed & (ranks <= 5)).mean()),
        "accuracy_at_10": float((listed & (ranks <= 10)).mean()),
        "mrr": float(np.where(listed, 1 / np.maximum(ranks, 1), 0.0).mean()),
        "macro_accuracy": None,
    }
