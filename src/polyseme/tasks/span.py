"""Span: a question on a passage is answered by a stretch of it, or has no answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import Advice, InputError, ModelError
from polyseme.files.in_memory import InMemory
from polyseme.files.rows import Place, Row, excerpt
from polyseme.files.source import READ_ERRORS, open_source
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.span_head import SpanHead, Spans, join_windows
from polyseme.json_reading import parse_json
from polyseme.metrics.answer_match import answer_scores, best_threshold
from polyseme.tasks.data_columns import DataOptions, UsualNames, text_of
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, overlapping_windows, second_of
from polyseme.tasks.items import Answer, Item, ReadingLog, TaskData
from polyseme.tasks.kind import TABLES, Kind, place_of, predicted, refuse, rows_by_item
from polyseme.tasks.predictions import Judgment, Prediction
from polyseme.text.words import split_words
from polyseme.types import Document, Pieces

NOWHERE = (-1, -1)
N_ANSWERS = 6
"""Answers that a prediction holds, the best included, at most."""


class Span(Kind):
    """Gold: a tuple of `Answer`, empty where the passage has none. Long passages are read in overlapping windows."""

    name = "span"
    hub_task = "question-answering"
    usual_columns: ClassVar[UsualNames] = {
        "text": ("context", "passage"),
        "second": ("question",),
        "label": ("answers", "answer"),
    }
    formats = (*TABLES, "json")
    second = "question"
    head = SpanHead
    head_options = frozenset({"no_answer", "separate_rows"})
    frozen_head = "bilstm-attention"
    max_pieces = 384
    reads_words = True

    # --- users' files -------------------------------------------------------------------------------------------------

    def read(self, file: str | InMemory, format: str, options: DataOptions, log: ReadingLog) -> Sequence[Item]:
        if format == "json":
            return list(squad_items(Path(str(file)), log, repair=options.repair))
        return super().read(file, format, options, log)

    def item(self, row: Row, options: DataOptions, log: ReadingLog) -> Item:
        passage = text_of(row.content, str(options.text), row.place)
        start = None if options.start is None else row.fields[str(options.start)]
        gold = _answers(passage, row.fields[str(options.label)], start, row.place, options, log)
        question = text_of(row.fields[str(options.second)], str(options.second), row.place)
        return Item(text=passage, second=question, gold=gold, id=row.id, place=str(row.place))

    def metrics(self, *, n_labels: int) -> tuple[str, ...]:
        return ("answer_f1", "exact_match")

    def check_item(self, data: TaskData, item: Item) -> None:
        for answer in item.gold:
            if not isinstance(answer, Answer) or not answer.text or not item.text.startswith(answer.text, answer.start):
                raise refuse(item, f"the answer {answer} does not occur in its passage.")

    # --- rows, gold and answers ---------------------------------------------------------------------------------------

    def seconds(self, item: Item) -> list[Document | None]:
        return [second_of(item)]

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        """The question with one window of the passage after another."""
        passages = maker.encode_once([item.text for item in items])
        questions = maker.encode([second_of(item) for item in items])
        return [
            self._windows(maker, number, question, passages[item.text])
            for number, (item, question) in enumerate(zip(items, questions, strict=True))
        ]

    def _windows(self, maker: RowMaker, number: int, question: Pieces, passage: Pieces) -> list[TaskRow]:
        if not maker.frames_pairs:
            return [TaskRow(number, maker.single(passage), maker.single(question))]
        room = maker.room_of_pair()
        question = maker.cut(question, max(room // 2, 1))
        left = room - len(question)
        rows = []
        for start, end in overlapping_windows(passage, left, min(maker.stride, left // 2)):
            words = np.flatnonzero((passage.words[:, 0] >= start) & (passage.words[:, 1] < end))
            framed = maker.frame_pair(question.ids, passage.ids[start:end])
            if framed.pair_offset is None:
                raise ModelError("The tokenizer's frame of a pair does not say where the second text is.")
            text = maker.text(framed, passage.words[words] - start + framed.pair_offset)
            rows.append(TaskRow(number, text, first_word=int(words[0]) if len(words) else 0))
        return rows

    def reads_whole(self, maker: RowMaker, *, plain: bool, frozen: bool, from_start: bool) -> bool:
        """A vector for the whole row stands for "no answer"."""
        return not frozen and maker.frames_pairs and maker.starts

    def reads_decoder(self, *, over_whole: bool) -> bool:
        return True

    def whole_readout(self, readout: str, stack: str) -> str:
        return "last" if stack == "decoder" else "first"

    def head_settings(self, data: TaskData) -> dict[str, Any]:
        return {"no_answer": any(not item.gold for item in data.splits["train"])}

    def gold(self, config: HeadConfig, item: Item, row: TaskRow) -> NDArray[Any]:
        start, end = _answer_words(item, place_of(item, row))
        if start < row.first_word or end >= row.first_word + row.n_words:
            return np.array(NOWHERE, dtype=np.int64)
        return np.array([start - row.first_word, end - row.first_word], dtype=np.int64)

    def answers(
        self, config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Spans],
        probabilities: Sequence[Any],
    ) -> list[Judgment]:  # fmt: skip
        results = []
        for item, places in zip(items, rows_by_item(items, rows), strict=True):
            firsts = [rows[place].first_word for place in places]
            spans = join_windows([labels[place] for place in places], firsts, n_best=config.n_best)
            words = split_words(item.text)
            ends = [(words[each.start].start, words[each.end].end) for each in spans.best]
            shares = spans.probabilities(no_answer=config.no_answer)
            best = tuple(
                (start, end, item.text[start:end], share)
                for (start, end), share in zip(ends, shares, strict=False)
            )  # fmt: skip
            answer = spans.answer(no_answer=config.no_answer, threshold=config.no_answer_threshold)
            text = "" if answer is None else item.text[words[answer.start].start : words[answer.end].end]
            margin = spans.none - (spans.best[0].score if spans.best else 0.0)
            results.append(Judgment(text, shares, best, margin))
        return results

    def calibrated(
        self, config: HeadConfig, items: Sequence[Item], judge: Callable[[HeadConfig], Sequence[Judgment]]
    ) -> HeadConfig | None:
        """How far "no answer" must score above the best span to be the answer, as is best on dev."""
        if not config.no_answer:
            return None
        judgments = judge(config.replace(no_answer_threshold=0.0))
        best = [each.spans[0][2] if each.spans else "" for each in judgments]
        scores = [each.f1 for each in answer_scores([item.gold for item in items], best, version="v2.0")]
        margins = [each.none_margin for each in judgments]
        threshold = best_threshold(scores, [bool(item.gold) for item in items], margins)
        return config.replace(no_answer_threshold=threshold.value)

    def baseline(self, data: TaskData, learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
        """No answer."""
        return [""] * len(items)

    def baseline_name(self, data: TaskData) -> str:
        return "no answer"

    # --- what is written ----------------------------------------------------------------------------------------------

    def prediction(self, config: HeadConfig, item: Item, judgment: Judgment) -> Prediction:
        none = judgment.probabilities[-1] if config.no_answer and judgment.probabilities else None
        return predicted(
            item,
            label=judgment.answer,
            probability=judgment.spans[0][3] if judgment.answer else none,
            answers=tuple(
                {"text": text, "start": start, "end": end, "probability": float(share)}
                for start, end, text, share in judgment.spans[:N_ANSWERS]
            ),
        )

    def arrow_columns(self, arrow: Any, config: HeadConfig) -> dict[str, Any]:
        whole, number = arrow.int64(), arrow.float64()
        answer = {"text": arrow.string(), "start": whole, "end": whole, "probability": number}
        return {**super().arrow_columns(arrow, config), "answers": arrow.list_(arrow.struct(answer))}

    def shown_gold(self, item: Item) -> Any:
        return [answer.text for answer in item.gold]

    def badness(self, item: Item, judgment: Judgment, labels: Sequence[str]) -> float:
        version = "v1.1" if item.gold else "v2.0"
        return 1.0 - answer_scores([item.gold], [judgment.answer], version=version)[0].f1

    def confidence(self, judgment: Judgment, labels: Sequence[str]) -> float | None:
        return next((share for *_, text, share in judgment.spans if text == judgment.answer), None)


def _answer_words(item: Item, where: str) -> tuple[int, int]:
    """The first and the last word of the first gold answer; nowhere where there is none."""
    if not item.gold:
        return NOWHERE
    answer: Answer = item.gold[0]
    if item.text[answer.start : answer.end] != answer.text:
        raise InputError(
            f"{where}: the answer {answer.text!r} does not occur in its passage at character {answer.start}; there is "
            f"{item.text[answer.start : answer.end]!r}."
        )
    words = split_words(item.text)
    inside = [number for number, word in enumerate(words) if word.start < answer.end and word.end > answer.start]
    return (inside[0], inside[-1]) if inside else NOWHERE


# --- answers in users' files ------------------------------------------------------------------------------------------


def _answers(
    passage: str, value: Any, start: Any, place: Place, options: DataOptions, log: ReadingLog
) -> tuple[Answer, ...]:
    """An answer, several, none (null, empty), or SQuAD's object with lists of texts and starts."""
    if isinstance(value, Mapping):
        texts, starts = value.get("text", []), value.get("answer_start", [])
    else:
        texts = value if isinstance(value, list) else [] if value in (None, "") else [value]
        starts = start if isinstance(start, list) else [start] * len(texts)
    texts, starts = (each if isinstance(each, list) else [each] for each in (texts, starts))
    starts = starts or [None] * len(texts)
    if len(texts) != len(starts):
        raise InputError(f"{place}: there are {len(texts)} answers and {len(starts)} places where they start.")
    return tuple(
        find_answer(passage, text, _whole_number(at, place), place, log, repair=options.repair)
        for text, at in zip(texts, starts, strict=True)
    )


def _whole_number(value: Any, place: Place) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InputError(f"{place}: where an answer starts must be a whole number. Got {value!r} instead.") from None


def find_answer(passage: str, text: Any, start: Any, place: object, log: ReadingLog, *, repair: bool = False) -> Answer:
    """An answer that occurs in the passage; without a start, where it first does."""
    if not isinstance(text, str) or not text:
        raise InputError(f"{place}: the text of an answer is empty or missing. A question without an answer has none.")
    if start is None:
        start = passage.find(text)
        if start < 0:
            raise InputError(f"{place}: the answer {excerpt(text)!r} does not occur in its passage.")
        if passage.find(text, start + 1) >= 0:
            log.add("an answer that occurs in the passage more than once, of which the first place was taken", place)
        return Answer(start, text)
    if isinstance(start, int) and start >= 0 and passage.startswith(text, start):
        return Answer(start, text)
    others = _places(passage, text)
    if repair and others and isinstance(start, int):
        log.add("an answer that is not where it should be, of which the nearest place was taken", place)
        return Answer(min(others, key=lambda at: abs(at - start)), text)
    there = f"It is at {', '.join(map(str, others[:3]))}" if others else "It is nowhere in it"
    stands = passage[start : start + len(text)] if isinstance(start, int) and start >= 0 else ""
    raise InputError(
        f"{place}: the answer {excerpt(text)!r} is not at character {start} of its passage, where there is "
        f"{excerpt(stands)!r}. {there}.",
        *([Advice("repair", "Have it looked for with --repair (repair=True).")] if others else []),
    )


def _places(passage: str, text: str) -> list[int]:
    places = [passage.find(text)]
    while places[-1] >= 0:
        places.append(passage.find(text, places[-1] + 1))
    return places[:-1]


# --- SQuAD's layout ---------------------------------------------------------------------------------------------------


def squad_items(file: Path, log: ReadingLog, *, repair: bool = False) -> Iterator[Item]:
    """The questions of a file in SQuAD's own layout. The answers of v2.0's `is_impossible` are none.

    Args:
        file: JSON, plain or compressed.
        log: takes down what was repaired.
        repair: whether an answer that is not where it should be is looked for elsewhere in the passage.
    """
    for item, entry in _questions(file):
        answers = entry.get("answers")
        if entry.get("is_impossible"):
            gold: tuple[Answer, ...] | None = ()
        elif answers is None:  # whether there is an answer is not known
            gold = None
        else:
            gold = tuple(
                find_answer(item.text, each.get("text"), each.get("answer_start"), item.place, log, repair=repair)
                for each in _list(entry, "answers", item.place)
            )
        yield replace(item, gold=gold)


def squad_questions(file: Path) -> Iterator[Item]:
    """The same without a look at answers, which may be missing or wrong: what is to be predicted."""
    for item, _ in _questions(file):
        yield item


def _questions(file: Path) -> Iterator[tuple[Item, dict[str, Any]]]:
    """Each question with its passage, and its entry."""
    data = _json(file)
    articles = data.get("data") if isinstance(data, dict) else None
    if not isinstance(articles, list):
        raise InputError(f"{file} is not laid out as SQuAD is: an object with a list 'data' of articles.")
    for article in articles:
        title = str(article.get("title", "")) if isinstance(article, dict) else ""
        for number, paragraph in enumerate(_list(article, "paragraphs", f"{file}, an article"), start=1):
            place = f"{file}, paragraph {number} of {title!r}"
            passage = paragraph.get("context")
            if not isinstance(passage, str):
                raise InputError(f"{place}: it has no 'context', which is the passage.")
            for entry in _list(paragraph, "qas", place):
                yield _question(entry, passage, file, title), entry


def _question(entry: dict[str, Any], passage: str, file: Path, title: str) -> Item:
    id_ = str(entry.get("id", ""))
    place = f"{file}, question {id_}"
    question = entry.get("question")
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"{place}: it has no 'question', or an empty one.")
    return Item(text=passage, second=question, id=id_, place=place, fields={"title": title} if title else {})


def _list(holder: Any, name: str, place: str) -> list[Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InputError(f"{place}: there is no list {name!r} of objects in it, as SQuAD has.")
    return value


def _json(file: Path) -> Any:
    source = open_source(file)
    try:
        return parse_json(source.stream.read())
    except READ_ERRORS as error:
        raise source.explain(error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8, at byte {error.start}.") from error
    except ValueError as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{file} is not JSON: it breaks{where} ({error}).") from error
    finally:
        source.close()
