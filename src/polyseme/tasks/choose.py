"""Choose: one of several texts answers a question, or continues a context."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.rows import Row, excerpt
from polyseme.heads.head import NO_GOLD
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.whole_text import ChooseHead
from polyseme.tasks.data_columns import DataOptions, UsualNames, text_of
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, document_of, item_document
from polyseme.tasks.items import Item, ReadingLog, TaskData
from polyseme.tasks.kind import Kind, mean_probabilities, most_frequent, predicted, refuse, wrong_margin
from polyseme.tasks.predictions import Judgment, Prediction
from polyseme.types import Document


class Choose(Kind):
    """Gold: the index of the right choice, counted from 0. Each choice is a row, and those of an item compete."""

    name = "choose"
    hub_task = "multiple-choice"
    usual_columns: ClassVar[UsualNames] = {
        "text": ("question", "context", "text"),
        "choices": ("choices",),
        "label": ("answer", "answerKey", "label"),
    }
    has_choices = True
    head = ChooseHead
    head_options = frozenset({"separate_rows"})
    frozen_head = "mlp"

    def item(self, row: Row, options: DataOptions, log: ReadingLog) -> Item:
        names = [str(name) for name in options.choice_columns()]
        values = [row.fields[name] for name in names]
        listed = values[0] if len(names) == 1 and isinstance(values[0], list) else values
        choices = tuple(text_of(each, f"choice {number}", row.place) for number, each in enumerate(listed, start=1))
        if len(choices) < 2:
            raise InputError(f"{row.place}: there must be two choices or more. Got {len(choices)}.")
        key = row.fields[str(options.label)]
        if key in (None, ""):
            raise InputError(f"{row.place}: the answer, in {options.label!r}, is empty.")
        return Item(
            text=text_of(row.content, str(options.text), row.place),
            choices=choices,
            gold=answer_index(key, choices, row.place, first=options.first),
            id=row.id,
            place=str(row.place),
        )

    def metrics(self, *, n_labels: int) -> tuple[str, ...]:
        return ("accuracy",)

    def check_item(self, data: TaskData, item: Item) -> None:
        if len(item.choices) < 2:
            raise refuse(item, f"there must be two choices or more. Got {len(item.choices)}.")
        if not isinstance(item.gold, int) or not 0 <= item.gold < len(item.choices):
            raise refuse(item, f"the answer is {item.gold!r}, and there are {len(item.choices)} choices.")

    def seconds(self, item: Item) -> list[Document | None]:
        return [item_document(choice, item) for choice in item.choices]

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        contexts = maker.encode([document_of(item) for item in items])
        choices = iter(maker.encode([item_document(choice, item) for item in items for choice in item.choices]))
        return [
            [
                TaskRow(number, *maker.two(context, next(choices)), choice=choice)
                for choice in range(len(items[number].choices))
            ]
            for number, context in enumerate(contexts)
        ]

    def units(self, rows: Sequence[TaskRow]) -> list[tuple[TaskRow, ...]]:
        """All choices of an item together."""
        return [tuple(rows)] if rows else []

    def gold(self, config: HeadConfig, item: Item, row: TaskRow) -> NDArray[Any]:
        return np.array(NO_GOLD if item.gold is None else item.gold, dtype=np.int64)

    def answers(
        self, config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Any],
        probabilities: Sequence[Any],
    ) -> list[Judgment]:  # fmt: skip
        numbers = dict.fromkeys(row.item for row in rows)
        return [
            Judgment(int(label), [float(each) for each in share[: len(items[number].choices)]])
            for number, label, share in zip(numbers, labels, probabilities, strict=True)
        ]

    def joined(self, config: HeadConfig, judgments: Sequence[Judgment]) -> Judgment:
        shares = mean_probabilities(judgments)
        return Judgment(shares.index(max(shares)), shares)

    def baseline(self, data: TaskData, learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
        """The place at which the right choice most often stands."""
        return [most_frequent(Counter(item.gold for item in learned))] * len(items)

    def baseline_name(self, data: TaskData) -> str:
        return "most frequent position"

    def prediction(self, config: HeadConfig, item: Item, judgment: Judgment) -> Prediction:
        return predicted(
            item,
            label=judgment.answer,
            probability=judgment.probabilities[judgment.answer],
            probabilities={str(number): float(share) for number, share in enumerate(judgment.probabilities)},
        )

    def arrow_label(self, arrow: Any, config: HeadConfig) -> Any:
        return arrow.int64()

    def badness(self, item: Item, judgment: Judgment, labels: Sequence[str]) -> float:
        return 0.0 if item.gold == judgment.answer else wrong_margin(judgment.probabilities, item.gold)

    def confidence(self, judgment: Judgment, labels: Sequence[str]) -> float | None:
        return float(judgment.probabilities[judgment.answer])


def answer_index(key: Any, choices: Sequence[str], place: object, *, names: Sequence[str] = (), first: int = 0) -> int:
    """Which choice an answer names: by what the choices are called, a letter, a number from `first` on, or its text.

    >>> answer_index("B", ["red", "blue"], "here"), answer_index(0, ["red", "blue"], "here")
    (1, 0)
    """
    spelled = str(key).strip()
    if names:
        if spelled in names:
            return list(names).index(spelled)
        raise InputError(f"{place}: the answer {excerpt(spelled)!r} is none of its choices: {', '.join(names)}.")
    if isinstance(key, int) or spelled.isdecimal():
        index = int(spelled) - first
    elif spelled in string.ascii_uppercase and len(spelled) == 1:
        index = string.ascii_uppercase.index(spelled)
    elif list(choices).count(spelled) == 1:
        index = list(choices).index(spelled)
    else:
        raise InputError(
            f"{place}: the answer {excerpt(spelled)!r} is neither a letter, nor a number from {first} on, nor the text "
            "of one of the choices."
        )
    if not 0 <= index < len(choices):
        raise InputError(f"{place}: the answer is {excerpt(spelled)!r}, and there are {len(choices)} choices.")
    return index
