"""The figures of a split: judgments compared with the gold of its items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyseme.metrics.task_metrics import confusion, measure, measure_groups
from polyseme.tasks.items import TaskData
from polyseme.tasks.predictions import Judgment


def gold_and_answers(data: TaskData, split: str, judgments: Sequence[Judgment]) -> tuple[list[Any], list[Any]]:
    """The gold answers of a split, and those of judgments of all its items."""
    pairs = zip(data.splits[split], judgments, strict=True)
    labeled = [(item.gold, each.answer) for item, each in pairs if item.gold is not None]
    return [gold for gold, _ in labeled], [answer for _, answer in labeled]


def split_figures(data: TaskData, split: str, judgments: Sequence[Judgment]) -> dict[str, float]:
    """The task's metrics on a split; where it groups items, the first of them within each group as well."""
    gold, answers = gold_and_answers(data, split, judgments)
    figures = measure(data.metrics, gold, answers, labels=data.labels)
    if data.grouped_by:
        groups = [item.fields[data.grouped_by] for item in data.splits[split] if item.gold is not None]
        figures |= measure_groups(data.metrics[0], gold, answers, groups, labels=data.labels)
    return figures


def confusion_of(data: TaskData, judgments: Sequence[Judgment], labels: Sequence[str]) -> dict[str, Any] | None:
    """How often each label of dev was taken for which, as JSON; None where an answer is not one of the labels."""
    if not labels or data.multi:
        return None
    counted = confusion([item.gold for item in data.splits["dev"]], [each.answer for each in judgments], labels)
    return {"labels": list(counted.labels), "counts": [list(row) for row in counted.counts]}
