"""Gold answers as numbers that heads learn from, and what heads say as answers that are scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.heads.head import NO_GOLD
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.span_head import Spans, join_windows
from polyseme.tasks.encoder_rows import TaskRow
from polyseme.tasks.items import Answer, Item
from polyseme.text.words import split_words

NOWHERE = (-1, -1)


@dataclass(frozen=True)
class Judged:
    """What the model says of one item."""

    answer: Any
    """As `Item.gold` has it: a label, a number, labels, a tag a word, the text of an answer (empty: none), a choice."""
    probabilities: Any = None
    """Of the labels, of each word's tags, or of the choices, in their order; of spans, those of the best ones."""
    spans: tuple[tuple[int, int, str, float], ...] = ()
    """The best answers of a passage: start and end in its text, the text, its probability."""
    none_margin: float = 0.0
    """By how much "no answer" scores above the best one."""


def gold_of(config: HeadConfig, item: Item, row: TaskRow) -> NDArray[Any]:
    """The gold of a row, as the head of this config learns from it."""
    number = {label: place for place, label in enumerate(config.labels)}
    where = item.place or f"Item {item.id or row.item + 1}"
    if config.kind in ("classify", "pair"):
        return _whole_gold(config, item, number, where)
    if config.kind == "tag":
        given = item.gold or ()
        its = given[row.first_word : row.first_word + row.n_words]
        return np.array([number.get(tag, NO_GOLD) for tag in its], dtype=np.int64)
    if config.kind == "span":
        start, end = _answer_words(item, where)
        if start < row.first_word or end >= row.first_word + row.n_words:
            return np.array(NOWHERE, dtype=np.int64)
        return np.array([start - row.first_word, end - row.first_word], dtype=np.int64)
    return np.array(NO_GOLD if item.gold is None else item.gold, dtype=np.int64)


def _whole_gold(config: HeadConfig, item: Item, number: Mapping[str, int], where: str) -> NDArray[Any]:
    if config.regression:
        try:
            return np.array(float(item.gold), dtype=np.float32)
        except (TypeError, ValueError):
            raise InputError(f"{where}: the label must be a number. Got {item.gold!r} instead.") from None
    if config.multi:
        held = np.zeros(len(config.labels), dtype=np.float32)
        held[[number[label] for label in item.gold if label in number]] = 1.0
        return held
    return np.array(number.get(item.gold, NO_GOLD), dtype=np.int64)


def _answer_words(item: Item, where: str) -> tuple[int, int]:
    """The first and the last word of the first gold answer; nowhere where there is none."""
    if not item.gold:
        return NOWHERE
    answer: Answer = item.gold[0]
    if item.text[answer.start : answer.end] != answer.text:
        raise InputError(
            f"{where}: the answer {answer.text!r} does not stand in its passage at character {answer.start}; there is "
            f"{item.text[answer.start : answer.end]!r}."
        )
    words = split_words(item.text)
    met = [number for number, word in enumerate(words) if word.start < answer.end and word.end > answer.start]
    return (met[0], met[-1]) if met else NOWHERE


# --- what heads say ---------------------------------------------------------------------------------------------------


def judged(
    config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Any], probabilities: Any
) -> list[Judged]:
    """What the head says of rows (of choices: of items) as answers for items."""
    if config.kind == "choose":
        numbers = list(dict.fromkeys(row.item for row in rows))
        return [
            Judged(int(label), [float(each) for each in share[: len(items[number].choices)]])
            for number, label, share in zip(numbers, labels, probabilities, strict=True)
        ]
    if config.kind == "span":
        return _spans(config, items, rows, labels)
    if config.kind == "tag":
        return _tags(config, items, rows, labels, probabilities)
    if config.regression:
        return [Judged(float(label)) for label in labels]
    if config.multi:
        return [
            Judged(tuple(config.labels[number] for number in label), share.tolist())
            for label, share in zip(labels, probabilities, strict=True)
        ]
    return [Judged(config.labels[label], share.tolist()) for label, share in zip(labels, probabilities, strict=True)]


def _by_item(items: Sequence[Item], rows: Sequence[TaskRow]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in items]
    for place, row in enumerate(rows):
        found[row.item].append(place)
    return found


def _tags(
    config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Any], probabilities: Any
) -> list[Judged]:
    made = []
    for places in _by_item(items, rows):
        tags = tuple(config.labels[number] for place in places for number in labels[place])
        shares = [row for place in places for row in probabilities[place][: len(labels[place])]]
        made.append(Judged(tags, shares))
    return made


def _spans(config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Spans]) -> list[Judged]:
    made = []
    for item, places in zip(items, _by_item(items, rows), strict=True):
        firsts = [rows[place].first_word for place in places]
        found = join_windows([labels[place] for place in places], firsts, n_best=config.n_best)
        words = split_words(item.text)
        shares = found.probabilities(no_answer=config.no_answer)
        best = tuple(
            (
                words[each.start].start,
                words[each.end].end,
                item.text[words[each.start].start : words[each.end].end],
                share,
            )
            for each, share in zip(found.best, shares, strict=False)
        )
        answer = found.answer(no_answer=config.no_answer, threshold=config.no_answer_threshold)
        text = "" if answer is None else item.text[words[answer.start].start : words[answer.end].end]
        margin = found.none - (found.best[0].score if found.best else 0.0)
        made.append(Judged(text, shares, best, margin))
    return made


# --- what a task has to learn from ------------------------------------------------------------------------------------


def labels_in(items: Sequence[Item], *, kind: str, multi: bool) -> Counter[Any]:
    """How often each label (tag) occurs."""
    if kind == "tag" or multi:
        return Counter(label for item in items for label in item.gold or ())
    return Counter(item.gold for item in items if item.gold is not None)
