"""Pair: two texts have one label, several labels, or a number together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyseme.tasks.classify import Classify
from polyseme.tasks.data_columns import UsualNames
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, document_of, second_of
from polyseme.tasks.items import Item
from polyseme.types import Document


class Pair(Classify):
    """As `Classify`, over two texts: in one row where the encoder frames pairs, otherwise in a row each."""

    name = "pair"
    usual_columns: ClassVar[UsualNames] = {
        "text": ("sentence1", "premise", "text1", "text_a"),
        "second": ("sentence2", "hypothesis", "text2", "text_b"),
        "label": ("label", "score"),
    }
    second = "second text"
    head_options = Classify.head_options | {"separate_rows"}
    frozen_head = "mlp"

    def seconds(self, item: Item) -> list[Document | None]:
        return [second_of(item)]

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        firsts = maker.encode([document_of(item) for item in items])
        seconds = maker.encode([second_of(item) for item in items])
        pairs = zip(firsts, seconds, strict=True)
        return [[TaskRow(number, *maker.two(*both))] for number, both in enumerate(pairs)]

    def prompt(self, task: str) -> tuple[str, ...]:
        return f"{task.partition('.')[0] or self.name} sentence1: ", "sentence2: "
