"""Classify: a text has one label, several labels, or a number (regression)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.rows import Place, Row
from polyseme.heads.head import NO_GOLD
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.whole_text import ClassifyHead
from polyseme.tasks.data_columns import DataOptions, UsualNames, text_of
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, document_of
from polyseme.tasks.items import Item, ReadingLog, TaskData, labels_in
from polyseme.tasks.kind import Kind, mean_probabilities, most_frequent, place_of, predicted, refuse, wrong_margin
from polyseme.tasks.predictions import Judgment, Prediction


class Classify(Kind):
    """Gold: a label; a float in regression; a tuple of labels where several may hold."""

    name = "classify"
    usual_columns: ClassVar[UsualNames] = {"text": ("text", "sentence"), "label": ("label", "labels")}
    has_labels = True
    writable = True
    head = ClassifyHead
    head_options = frozenset({"regression", "multi"})

    # --- users' files -------------------------------------------------------------------------------------------------

    def item(self, row: Row, options: DataOptions, log: ReadingLog) -> Item:
        name = None if options.second is None else str(options.second)
        second = None if name is None else text_of(row.fields[name], name, row.place)
        gold = _labels(row.fields[str(options.label)], options, row.place)
        if isinstance(row.content, str):
            return Item(text=row.content, second=second, gold=gold, id=row.id, place=str(row.place))
        return Item.of_words(row.content, second=second, gold=gold, id=row.id, place=str(row.place))

    def task(
        self, name: str, splits: Mapping[str, Sequence[Item]], options: DataOptions, notes: Sequence[str], *,
        by_line: bool = False,
    ) -> TaskData:  # fmt: skip
        """Labels where some are numbers between whole ones are taken for scores."""
        items = [item for split in splits.values() for item in split]
        multi = any(isinstance(item.gold, tuple) for item in items)
        regression = bool(options.regression)
        if options.regression is None and not multi and look_like_scores(items):
            regression = True
            note = "The labels are numbers, some of them between whole ones: they are taken for scores (regression)."
            notes = [*notes, note]
        if multi:
            splits = {split: [_with_several(item) for item in items] for split, items in splits.items()}
        if regression:
            splits = {split: [_with_score(item) for item in items] for split, items in splits.items()}
        labels = tuple(sorted({each for items in splits.values() for item in items for each in labels_in(item)}))
        metrics = self.metrics(n_labels=len(labels))
        if multi:
            metrics = ("micro_f1", "multi_macro_f1", "accuracy")
        if regression:
            metrics = ("spearman", "pearson")
        return TaskData(
            name=name,
            kind=self.name,
            labels=labels,
            regression=regression,
            multi=multi,
            splits=splits,
            metrics=metrics,
            notes=tuple(notes),
        )

    def metrics(self, *, n_labels: int) -> tuple[str, ...]:
        return ("accuracy", "f1" if n_labels == 2 else "macro_f1")

    def reading_options(self, config: HeadConfig) -> dict[str, Any]:
        return {"regression": config.regression}

    # --- rows, gold and answers ---------------------------------------------------------------------------------------

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        encoded = maker.encode([document_of(item) for item in items])
        return [[TaskRow(number, maker.single(pieces))] for number, pieces in enumerate(encoded)]

    def gold(self, config: HeadConfig, item: Item, row: TaskRow) -> NDArray[Any]:
        if config.regression:
            try:
                return np.array(float(item.gold), dtype=np.float32)
            except (TypeError, ValueError):
                where = place_of(item, row)
                raise InputError(f"{where}: the label must be a number. Got {item.gold!r} instead.") from None
        number = {label: place for place, label in enumerate(config.labels)}
        if config.multi:
            held = np.zeros(len(config.labels), dtype=np.float32)
            held[[number[label] for label in item.gold if label in number]] = 1.0
            return held
        return np.array(number.get(item.gold, NO_GOLD), dtype=np.int64)

    def answers(
        self, config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Any],
        probabilities: Sequence[Any],
    ) -> list[Judgment]:  # fmt: skip
        if config.regression:
            return [Judgment(float(label)) for label in labels]
        names = config.labels
        if config.multi:
            return [
                Judgment(tuple(names[number] for number in label), share.tolist())
                for label, share in zip(labels, probabilities, strict=True)
            ]
        return [
            Judgment(names[label], share.tolist()) for label, share in zip(labels, probabilities, strict=True)
        ]  # fmt: skip

    def joined(self, config: HeadConfig, judgments: Sequence[Judgment]) -> Judgment:
        if config.regression:
            return Judgment(fmean(each.answer for each in judgments))
        shares = mean_probabilities(judgments)
        if config.multi:
            return Judgment(
                tuple(name for name, share in zip(config.labels, shares, strict=True) if share > 0.5), shares
            )
        return Judgment(config.labels[shares.index(max(shares))], shares)

    def baseline(self, data: TaskData, learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
        """The most frequent label, or the mean."""
        if data.regression:
            return [fmean(item.gold for item in learned)] * len(items)
        return [most_frequent(Counter(item.gold for item in learned))] * len(items)

    def baseline_name(self, data: TaskData) -> str:
        if data.regression:
            return "mean"
        return "most frequent set of labels" if data.multi else "majority label"

    # --- what is written ----------------------------------------------------------------------------------------------

    def prediction(self, config: HeadConfig, item: Item, judgment: Judgment) -> Prediction:
        if config.regression:
            return predicted(item, label=judgment.answer)
        by_label = dict(zip(config.labels, map(float, judgment.probabilities), strict=True))
        if config.multi:
            return predicted(item, label=tuple(judgment.answer), probabilities=by_label)
        label = judgment.answer
        return predicted(item, label=label, probability=by_label[label], probabilities=by_label)

    def shown_labels(self, config: HeadConfig) -> tuple[str, ...]:
        return config.labels

    def arrow_label(self, arrow: Any, config: HeadConfig) -> Any:
        if config.regression:
            return arrow.float64()
        return arrow.list_(arrow.string()) if config.multi else arrow.string()

    # --- errors -------------------------------------------------------------------------------------------------------

    def comparable_gold(self, config: HeadConfig, item: Item) -> Any:
        """Of several labels a tuple, of one a label."""
        if config.multi == isinstance(item.gold, tuple):
            return item.gold
        if not config.multi:
            raise refuse(item, f"there are several labels, and the model gives one. Got {item.gold!r}.")
        return (item.gold,)

    def badness(self, item: Item, judgment: Judgment, labels: Sequence[str]) -> float:
        if isinstance(judgment.answer, float):
            return abs(float(item.gold) - judgment.answer)
        if isinstance(item.gold, tuple):
            return float(set(item.gold) != set(judgment.answer))
        if item.gold == judgment.answer:
            return 0.0
        right = labels.index(item.gold) if item.gold in labels else None
        return wrong_margin(judgment.probabilities, right)

    def confidence(self, judgment: Judgment, labels: Sequence[str]) -> float | None:
        if judgment.answer not in labels:
            return None
        return float(judgment.probabilities[labels.index(judgment.answer)])


def _labels(value: Any, options: DataOptions, place: Place) -> Any:
    if isinstance(value, list):
        return tuple(sorted({_label(each, options, place) for each in value}))
    if options.separator is not None and (isinstance(value, str) or value is None):
        parts = (value or "").split(options.separator)
        return tuple(sorted({part.strip() for part in parts if part.strip()}))
    return _label(value, options, place)


def _label(value: Any, options: DataOptions, place: Place) -> str:
    empty = value is None or (isinstance(value, str) and not value.strip())
    if empty or (isinstance(value, float) and math.isnan(value)):
        raise InputError(f"{place}: the label, in {options.label!r}, is empty. Leave such rows out, or give them one.")
    if isinstance(value, Mapping | list):
        raise InputError(
            f"{place}: the label, in {options.label!r}, must be a text or a number. Got {value!r} instead."
        )
    return str(value).strip()


def look_like_scores(items: Sequence[Item]) -> bool:
    """Whether all labels are numbers and some are between whole ones, so that they are a scale and no classes."""
    try:
        numbers = [float(item.gold) for item in items]
    except (TypeError, ValueError):
        return False
    return all(map(math.isfinite, numbers)) and any(number != int(number) for number in numbers)


def _with_several(item: Item) -> Item:
    return item if item.gold is None or isinstance(item.gold, tuple) else replace(item, gold=(item.gold,))


def _with_score(item: Item) -> Item:
    try:
        number = float(item.gold)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise refuse(item, f"the score must be a number, for regression. Got {item.gold!r} instead.")
    return replace(item, gold=number)
