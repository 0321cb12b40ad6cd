"""Cloze sets: read from LAMA's lines, answered by a model, counted at 1, 5 and 10."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.datasets.cloze import ClozeItem, read_cloze
from polyseme.errors import InputError, OptionError
from polyseme.filling.cloze_ranks import ClozeAnswer, cloze_answers
from polyseme.metrics.cloze_accuracy import cloze_figures
from tiny_models import tiny_model

LINES: list[dict[str, Any]] = [
    {"masked_sentences": ["The [MASK] broke."], "obj_label": "vase", "predicate_id": "P1", "uuid": "u1", "extra": 1},
    {"text": "Dawn [MASK].", "answers": ["broke", "Broke"], "group": "P2"},
    {"template": "[X] is a [Y] .", "sub_label": "Sandy", "answer": "crane", "relation": "P1"},
    {"text": "I saw a [MASK].", "answer": "crane", "candidates": ["crane", "misunderstandings", "fish"]},
]


def write(file: Path, lines: list[dict[str, Any]]) -> Path:
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    return file


def test_lines_of_lama_and_of_ones_own_are_items(tmp_path: Path) -> None:
    items = read_cloze([write(tmp_path / "set.jsonl", LINES)])
    assert [item.text for item in items] == [
        "The [MASK] broke.",
        "Dawn [MASK].",
        "Sandy is a [MASK] .",
        "I saw a [MASK].",
    ]
    assert [item.answers for item in items] == [("vase",), ("broke", "Broke"), ("crane",), ("crane",)]
    assert [item.group for item in items] == ["P1", "P2", "P1", None]
    assert [item.id for item in items] == ["u1", "2", "3", "4"]
    assert items[3].candidates == ("crane", "misunderstandings", "fish")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "A [MASK]."', "this is no line of JSON"),
        ('["A [MASK].", "law"]', "must be an object with text and answer"),
        ('{"answer": "law"}', "there is no text.*There are: answer"),
        ('{"text": "A [MASK]."}', "there is no answer. An item needs one of answer, answers, obj_label"),
        ('{"text": "A law.", "answer": "law"}', r"must have one \[MASK\], and has none"),
        ('{"text": "[MASK] [MASK]", "answer": "law"}', r"must have one \[MASK\], and has 2"),
        ('{"text": "A [MASK].", "answer": 3}', "'answer' must be a word or a list of words. Got 3"),
        ('{"text": "A [MASK].", "answers": []}', r"'answers' must be a word or a list of words. Got \[\]"),
        ('{"text": "A [MASK].", "answer": "law", "candidates": ["vase"]}', "'law' is not among the candidates"),
    ],
)
def test_malformed_lines_are_refused_with_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text(json.dumps(LINES[0]) + f"\n{line}\n")
    with pytest.raises(InputError, match=rf"set.jsonl, line 2: .*{said}"):
        read_cloze([file])


def test_ranks_are_those_of_the_model_s_own_lists(tmp_path: Path) -> None:
    model = tiny_model("bert")
    items = read_cloze([write(tmp_path / "set.jsonl", LINES)])
    [listed] = model.fill("The [MASK] broke.", whole_words=True, top=10)
    right = ClozeItem(items[0].text, ("no", listed.words[3].upper()), "P1", (), "x", "place")  # the model is uncased
    wrong = ClozeItem(items[0].text, ("no" if "no" not in listed.words else "zz",), "P1", (), "y", "place")
    found = cloze_answers(model.filler(), [right, wrong, items[3]])
    assert [answer.rank for answer in found[:2]] == [4, 0]
    assert found[0].words == tuple(listed.words)
    [given] = model.fill(items[3].text, targets=items[3].candidates)
    assert found[2].rank == given.words.index("crane") + 1
    among = cloze_answers(model.filler(), items[:3], among="answers")
    [of_group] = model.fill(items[0].text, targets=["vase", "crane"])
    assert among[0].rank == of_group.words.index("vase") + 1
    assert sorted(among[0].words) == ["crane", "vase"]


def test_figures_count_ranks_in_all_and_by_group() -> None:
    groups = ["a", "a", "a", "b", "b"]
    ranks = [1, 4, 0, 1, 10]
    items = [ClozeItem("[MASK]", ("w",), group, (), str(n), "p") for n, group in enumerate(groups)]
    figures = cloze_figures(items, [ClozeAnswer(rank, ("w",)) for rank in ranks])
    every, of_a = figures["all"], figures["a"]
    assert every["accuracy"] == pytest.approx(2 / 5)
    assert every["accuracy_at_5"] == pytest.approx(3 / 5)
    assert every["accuracy_at_10"] == pytest.approx(4 / 5)
    assert every["mrr"] == pytest.approx((1 + 1 / 4 + 0 + 1 + 1 / 10) / 5)
    assert every["macro_accuracy"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert of_a["mrr"] == pytest.approx((1 + 1 / 4) / 3)
    assert [item["rank"] for item in figures.items] == [1, 4, None, 1, 10]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_evaluate_reports_a_cloze_set(tmp_path: Path, family: str) -> None:
    tiny_model(family).save(tmp_path / "model")
    data = write(tmp_path / "set.jsonl", LINES)
    output = tmp_path / "report.json"
    report = polyseme.evaluate("cloze", data=data, model=tmp_path / "model", device="cpu", output=output)
    assert [(line.name, line.n) for line in report.lines] == [("all", 4), ("P1", 2), ("P2", 1)]
    assert json.loads(output.read_text())["lines"][0]["n"] == 4
    assert "among all whole words" in report.notes[0]
    assert report.cost is not None
    assert (report.cost.documents, report.cost.words) == (4, 4 + 3 + 5 + 5)
    assert report.cost.pieces > 100
    assert report.cost.flops > 0


def test_a_model_from_no_folder_has_a_name(tmp_path: Path) -> None:
    report = polyseme.evaluate("cloze", data=write(tmp_path / "set.jsonl", LINES[:1]), model=tiny_model("bert"))
    assert repr(report).startswith("cloze: a model from no folder")


@pytest.mark.parametrize(
    ("name", "settings", "error", "said"),
    [
        ("cloze", {"among": "all"}, OptionError, "not ranked among 'all'"),
        ("cloze", {"max_pieces": 0}, OptionError, "at least 1 piece"),
        ("cloze", {"hide": "piece"}, OptionError, "no way 'piece' to hide"),
        ("cloze", {"stride": 3}, OptionError, "stride means nothing for cloze"),
        ("lambada", {"among": "answers"}, OptionError, "among is for cloze"),
        ("cloze", {"data": "none.jsonl"}, InputError, "no file or folder none.jsonl"),
    ],
)
def test_what_means_nothing_is_refused(
    tmp_path: Path, name: str, settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    tiny_model("bert").save(tmp_path / "model")
    data = write(tmp_path / "set.jsonl", LINES)
    with pytest.raises(error, match=said):
        polyseme.evaluate(name, **{"data": data, "model": tmp_path / "model", "device": "cpu", **settings})


def test_an_item_that_does_not_fit_is_named(tmp_path: Path) -> None:
    data = write(tmp_path / "set.jsonl", [LINES[0], {"text": "[MASK]" + " broke" * 60, "answer": "law"}])
    with pytest.raises(InputError, match=r"set.jsonl, line 2: .* reads 40 at once"):
        cloze_answers(tiny_model("bert").filler(), read_cloze([data]))
