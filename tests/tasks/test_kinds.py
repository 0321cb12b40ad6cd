"""Every kind of task keeps one contract, and no other file knows their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.files.rows import Place, Row
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.span_head import Span, Spans
from polyseme.tasks.data_columns import DataOptions
from polyseme.tasks.encoder_rows import word_rows
from polyseme.tasks.items import Answer, Item, ReadingLog, TaskData
from polyseme.tasks.kinds import KINDS, baseline_scores, build_head

LABELS = ("no", "yes")
ITEMS: dict[str, list[Item]] = {
    "classify": [Item(text="the crane broke", gold="yes"), Item(text="a fish", gold="no")],
    "pair": [Item(text="the crane", second="broke", gold="no"), Item(text="a fish", second="swims", gold="yes")],
    "tag": [Item.of_words(["the", "crane", "the"], gold=("no", "yes", "yes")), Item.of_words(["the"], gold=("no",))],
    "span": [
        Item(text="the crane broke", second="what?", gold=(Answer(4, "crane"),)),
        Item(text="a fish swims", second="who?", gold=(Answer(2, "fish swims"),)),
    ],
    "choose": [
        Item(text="the crane", choices=("broke", "swims"), gold=0),
        Item(text="a fish", choices=("broke", "flew", "swims"), gold=2),
    ],
    "edge": [
        Item(text="the crane broke", spans=((0, 9), (10, 15)), gold="yes"),
        Item(text="a fish", spans=((0, 1), (0, 6)), gold="no"),
    ],
    "edge-pair": [
        Item(text="the crane", second="it broke", spans=((4, 9), (0, 2)), gold="no"),
        Item(text="a fish", second="swims", spans=((2, 6), (0, 5)), gold="yes"),
    ],
}
every_kind = pytest.mark.parametrize("name", KINDS)


def config_of(name: str) -> HeadConfig:
    return HeadConfig(kind=name, width=4, labels=LABELS if KINDS[name].has_labels else ())


def said(name: str, gold: Any) -> tuple[Any, Any]:
    """What a head would say that is certain of this gold: labels and probabilities."""
    if name == "span":
        return Spans(best=(Span(int(gold[0]), int(gold[1]), 1.0),), none=0.0), None
    if name == "tag":
        return gold.tolist(), np.eye(len(LABELS))[gold]
    return int(gold), np.eye(3 if name == "choose" else len(LABELS))[gold]


@every_kind
def test_a_head_that_says_the_gold_gives_the_gold_back(name: str) -> None:
    kind, items, config = KINDS[name], ITEMS[name], config_of(name)
    units = [unit for rows in word_rows(items, kind.seconds) for unit in kind.units(rows)]
    golds = [kind.gold(config, items[unit[0].item], unit[0]) for unit in units]
    labels, probabilities = zip(*(said(name, gold) for gold in golds), strict=True)
    judgments = kind.answers(config, items, [unit[0] for unit in units], labels, probabilities)
    expected = [item.gold[0].text if name == "span" else item.gold for item in items]
    assert [each.answer for each in judgments] == expected
    assert [kind.badness(item, each, LABELS) for item, each in zip(items, judgments, strict=True)] == [0.0, 0.0]
    predictions = [kind.prediction(config, item, each) for item, each in zip(items, judgments, strict=True)]
    assert [each.label for each in predictions] == expected
    assert all(type(each).from_json(each.to_json()) == each for each in predictions)
    header = kind.table_header(config)
    assert all(len(cells) == len(header) for each in predictions for cells, _ in kind.table_rows(config, each, []))


@every_kind
def test_knowing_nothing_scores_below_the_gold(name: str) -> None:
    kind, items = KINDS[name], ITEMS[name]
    metrics = kind.metrics(n_labels=2)
    data = TaskData(
        name="mine", kind=name, labels=config_of(name).labels, splits={"train": items, "dev": items}, metrics=metrics
    )
    assert 0 <= baseline_scores(data)[metrics[0]] < 1
    build_head(config_of(name).replace(**kind.head_settings(data)))


ROWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classify": ("a fish", {"label": "no"}),
    "pair": ("a fish", {"second": "swims", "label": "yes"}),
    "tag": (["a", "fish"], {"label": ["no", "yes"]}),
    "span": ("a fish swims", {"second": "who?", "label": "fish"}),
    "choose": ("a fish", {"choices": ["broke", "swims"], "label": 1}),
    "edge": ("a fish", {"first_span": "a", "second_span": [2, 6], "label": "no"}),
    "edge-pair": ("a fish", {"second": "it swims", "first_span": "2:6", "second_span": "it", "label": "no"}),
}


@every_kind
def test_a_row_of_a_file_becomes_an_item(name: str) -> None:
    content, fields = ROWS[name]
    options = DataOptions(name, {}, text="text", **{role: role for role in fields})
    item = KINDS[name].item(Row(content, "7", Place("f", 7), fields), options, ReadingLog())
    assert (item.id, item.place) == ("7", "f, line 7")
    KINDS[name].check_item(TaskData(name="mine", kind=name, splits={}, metrics=()), item)
    assert all(KINDS[name].texts(item).values())


def test_no_other_file_compares_the_names_of_kinds() -> None:
    names = "|".join(KINDS)
    compared = re.compile(rf"""(?:==|!=|\bin)\s*\(?\s*["'](?:{names})["']|["'](?:{names})["']\s*(?:==|!=|:\s)""")
    root = Path(polyseme.__file__).parent
    own = {root / "tasks" / f"{name.partition('-')[0]}.py" for name in KINDS}
    rooms = ("tasks", "datasets", "metrics", "heads", "transfer", "verbs", "sklearn", "cli")
    files = [file for room in rooms for file in (root / room).rglob("*.py") if file not in own]
    assert len(files) > 50
    assert {
        f"{file.relative_to(root)}: {line.strip()}"
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if compared.search(line) and "kind" in line
    } == set()
