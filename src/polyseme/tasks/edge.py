"""Edge: two spans have one label together, in one text (coreference) or in two (a word in two sentences).

A span is a stretch of characters, end excluded. In users' files it is [start, end], `start:end`, or the span itself
where it occurs once; where the text is a list of words, [start, end] count words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from polyseme.errors import InputError
from polyseme.files.rows import Place, Row, excerpt
from polyseme.heads.edge_head import FIRST, SECOND, EdgeHead
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.classify import Classify
from polyseme.tasks.data_columns import DataOptions, UsualNames
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, document_of, second_of, shares
from polyseme.tasks.items import Item, ReadingLog, TaskData
from polyseme.tasks.kind import refuse
from polyseme.tasks.predictions import Judgment, Prediction
from polyseme.types import Document, Pieces

SPANS = ("first_span", "second_span")
"""The roles of the columns with the spans."""
_PLACES = re.compile(r"\s*(\d+)\s*:\s*(\d+)\s*")
_LABEL: UsualNames = {
    "first_span": ("first_span", "span1", "span_a"),
    "second_span": ("second_span", "span2", "span_b"),
    "label": ("label", "score"),
}


class Edge(Classify):
    """As `Classify`, of two spans of one text: `Item.spans`. Of a long text, a window around them is read."""

    name = "edge"
    usual_columns: ClassVar[UsualNames] = {"text": ("text", "sentence"), **_LABEL}
    has_spans = True
    writable = False
    judges_rows = False
    head = EdgeHead
    frozen_head = "mlp"

    def item(self, row: Row, options: DataOptions, log: ReadingLog) -> Item:
        item = super().item(row, options, log)
        values = [(name, row.fields[str(getattr(options, name))]) for name in SPANS]
        return self.with_spans(item, values, row.place)

    def with_spans(self, item: Item, values: Sequence[tuple[str, Any]], place: Place | str) -> Item:
        """An item with its spans, as a file has them: the first column's, and the second's."""
        return replace(item, spans=tuple(span_of(item, name, value, place) for name, value in values))

    def check_item(self, data: TaskData, item: Item) -> None:
        super().check_item(data, item)
        if len(item.spans) != 2:
            raise refuse(item, f"an edge is between two spans. Got {len(item.spans)}.")
        for name, text, (start, end) in zip(SPANS, self.span_texts(item), item.spans, strict=True):
            check_span(text, start, end, name, item.place)

    def span_texts(self, item: Item) -> tuple[str, str]:
        """The texts that the two spans are in."""
        return item.text, item.text

    def span_strings(self, item: Item) -> tuple[str, ...]:
        texts = zip(self.span_texts(item), item.spans, strict=True)
        return tuple(text[start:end] for text, (start, end) in texts)

    def marked(self, item: Item) -> Item:
        first, other = item.spans
        document = document_of(item)
        of_first = marks_in(document, first, FIRST, item)
        of_second = marks_in(document, other, SECOND, item)
        return replace(item, marks=tuple(one | two for one, two in zip(of_first, of_second, strict=True)))

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        rows = []
        for number, (item, pieces) in enumerate(
            zip(items, maker.encode([document_of(item) for item in items]), strict=True)
        ):
            pieces, start = around_marks(maker, pieces, item.marks, maker.room_of_one(), item)
            rows.append([TaskRow(number, maker.single(pieces), first_word=start)])
        return rows

    def prediction(self, config: HeadConfig, item: Item, judgment: Judgment) -> Prediction:
        return replace(super().prediction(config, item, judgment), spans=self.span_strings(item))

    def table_header(self, config: HeadConfig) -> list[str]:
        header = super().table_header(config)
        at = header.index("label")
        return [*header[:at], *SPANS, *header[at:]]

    def table_rows(
        self, config: HeadConfig, prediction: Prediction, fields: Sequence[Any]
    ) -> list[tuple[list[str], Sequence[Any]]]:
        [(cells, beside)] = super().table_rows(config, prediction, fields)
        at = super().table_header(config).index("label")
        return [([*cells[:at], *(prediction.spans or ("", "")), *cells[at:]], beside)]

    def arrow_columns(self, arrow: Any, config: HeadConfig) -> dict[str, Any]:
        return {**super().arrow_columns(arrow, config), "spans": arrow.list_(arrow.string())}


class EdgePair(Edge):
    """As `Edge`, of a span of each of two texts: in one row where the encoder frames pairs, otherwise in a row each."""

    name = "edge-pair"
    usual_columns: ClassVar[UsualNames] = {
        "text": ("sentence1", "text1", "text_a"),
        "second": ("sentence2", "text2", "text_b"),
        **_LABEL,
    }
    second = "second text"
    head_options = Edge.head_options | {"separate_rows"}

    def span_texts(self, item: Item) -> tuple[str, str]:
        return item.text, item.second or ""

    def with_spans(self, item: Item, values: Sequence[tuple[str, Any]], place: Place | str) -> Item:
        (first, one), (other, two) = values
        second = Item(text=item.second or "")
        return replace(item, spans=(span_of(item, first, one, place), span_of(second, other, two, place)))

    def marked(self, item: Item) -> Item:
        first, other = item.spans
        return replace(
            item,
            marks=marks_in(document_of(item), first, FIRST, item),
            second_marks=marks_in(second_of(item), other, SECOND, item),
        )

    def seconds(self, item: Item) -> list[Document | None]:
        return [second_of(item)]

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        firsts = maker.encode([document_of(item) for item in items])
        seconds = maker.encode([second_of(item) for item in items])
        return [
            [self._row(maker, number, item, first, second)]
            for number, (item, first, second) in enumerate(zip(items, firsts, seconds, strict=True))
        ]

    def _row(self, maker: RowMaker, number: int, item: Item, first: Pieces, second: Pieces) -> TaskRow:
        rooms = (maker.room_of_one(),) * 2
        if maker.frames_pairs:
            rooms = shares(len(first), len(second), maker.room_of_pair())
        first, start = around_marks(maker, first, item.marks, rooms[0], item)
        second, other = around_marks(maker, second, item.second_marks, rooms[1], item)
        marks = item.marks[start : start + len(first.words)]
        second_marks = item.second_marks[other : other + len(second.words)]
        if maker.frames_pairs:
            return TaskRow(number, *maker.two(first, second), marks=marks + second_marks)
        texts = maker.single(first), maker.single(second)
        return TaskRow(number, *texts, first_word=start, marks=marks, second_marks=second_marks)


# --- spans ------------------------------------------------------------------------------------------------------------


def span_of(item: Item, name: str, value: Any, place: Place | str) -> tuple[int, int]:
    """A span of an item's text, as a file has it, in characters."""
    places = _PLACES.fullmatch(value) if isinstance(value, str) else None
    ends = [int(each) for each in places.groups()] if places is not None else value
    if isinstance(ends, list | tuple) and len(ends) == 2 and all(type(each) is int for each in ends):
        return _of_places(item, name, ends[0], ends[1], place)
    if not isinstance(value, str) or not value:
        raise InputError(
            f"{place}: {name!r} must be [start, end], start:end, or the span itself. Got {value!r} instead."
        )
    starts = [match.start() for match in re.finditer(f"(?={re.escape(value)})", item.text)]
    if len(starts) != 1:
        times = f"{len(starts)} times" if starts else "nowhere"
        raise InputError(
            f"{place}: the span {excerpt(value)!r}, in {name!r}, occurs {times} in its text. Say where it is, as "
            "start:end in characters."
        )
    return starts[0], starts[0] + len(value)


def _of_places(item: Item, name: str, start: int, end: int, place: Place | str) -> tuple[int, int]:
    if not item.words:
        check_span(item.text, start, end, name, place)
        return start, end
    if not 0 <= start < end <= len(item.words):
        raise InputError(f"{place}: {name!r} is from word {start} to {end}, and there are {len(item.words)} words.")
    words = document_of(item).words
    return words[start].start, words[end - 1].end


def check_span(text: str, start: int, end: int, name: str, place: Place | str) -> None:
    """Refuse a span that is not in its text."""
    if not 0 <= start < end <= len(text):
        raise InputError(f"{place}: {name!r} is from {start} to {end}, and its text has {len(text)} characters.")


def marks_in(document: Document, span: tuple[int, int], mark: int, item: Item) -> tuple[int, ...]:
    """One number per word: `mark` for those that the span touches."""
    start, end = span
    marks = tuple(mark if word.start < end and word.end > start else 0 for word in document.words)
    if not any(marks):
        raise refuse(item, f"the span from {start} to {end}, {document.text[start:end]!r}, has no word in it.")
    return marks


def around_marks(
    maker: RowMaker, pieces: Pieces, marks: Sequence[int], room: int, item: Item
) -> tuple[Pieces, int]:  # fmt: skip
    """The pieces that fit a row, around the marked words, and the number of the first word that is whole."""
    if len(pieces) <= room:
        return pieces, 0
    inside = pieces.words[np.flatnonzero(np.array(marks))]
    first, last = int(inside[:, 0].min()), int(inside[:, 1].max()) + 1
    if last - first > room:
        raise refuse(
            item, f"the spans are {last - first} pieces apart, and a row has room for {room}. Set max_pieces higher."
        )
    maker.tally.texts += 1
    start = min(max((first + last - room) // 2, 0), len(pieces) - room)
    words = np.flatnonzero((pieces.words[:, 0] >= start) & (pieces.words[:, 1] < start + room))
    cut = slice(start, start + room)
    return Pieces(pieces.ids[cut], pieces.spans[cut], pieces.words[words] - start), int(words[0])
