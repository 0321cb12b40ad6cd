"""A task model on files with labels: which labels count, and what is told on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.metrics.evaluation_report import Report
from polyseme.tasks.items import Item
from polyseme.transfer import predict_files as predicting
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.task_folder import save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import BAD, GOOD, small_task

SETTINGS = FinetuneSettings(epochs=4, batch_size=16, learning_rate=1e-2, frozen=True)


def made(folder: Path, metrics: tuple[str, ...], /, **task: Any) -> Path:
    done = finetune_task(small_task("classify", **task), tiny_model("bert").bundle, SETTINGS)
    columns = {"text": "review", "label": "stars"}
    save_task_model(done.model, folder, card={"metrics": list(metrics), "columns": columns})
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It tells good from bad."""
    return made(tmp_path_factory.mktemp("evaluated") / "model", ("accuracy", "f1", "macro_f1"))


def evaluated(path: Path, rows: list[tuple[str, str]], model: Path, **settings: Any) -> Report:
    path.write_text("review,stars\n" + "".join(f"the {text} .,{label}\n" for text, label in rows))
    return polyseme.evaluate(str(path), model=model, device="cpu", **settings)


def test_the_positive_label_is_the_models(model: Path, tmp_path: Path) -> None:
    report = evaluated(tmp_path / "bad.csv", [(word, "bad") for word in BAD], model)
    right = [item["predicted"] == "bad" for item in report.items]
    assert any(right)
    assert report.lines[0].figures["accuracy"] == sum(right) / len(right)
    assert report.lines[0].figures["f1"] == 0.0  # of good, of which there is none


def test_a_loaded_model_is_evaluated_as_its_folder_is(model: Path, tmp_path: Path) -> None:
    rows = [(word, "bad") for word in BAD] + [(word, "good") for word in GOOD]
    by_name = evaluated(tmp_path / "test.csv", rows, model)
    loaded = polyseme.load(model, device="cpu")
    report = polyseme.evaluate(str(tmp_path / "test.csv"), model=loaded)
    assert report.items == by_name.items
    assert (report.model, report.lines) == (by_name.model, by_name.lines)
    assert loaded.task_model[0].bundle.encoder is loaded.bundle.encoder
    with pytest.raises(OptionError, match="loaded already"):
        polyseme.evaluate(str(tmp_path / "test.csv"), model=loaded, device="cpu")


def test_unknown_labels_are_wrong_and_that_is_said(model: Path, tmp_path: Path) -> None:
    rows = [(word, "bad") for word in BAD] + [(word, "good") for word in GOOD]
    known = evaluated(tmp_path / "known.csv", rows, model)
    report = evaluated(tmp_path / "test.csv", [*rows, ("house", "odd"), ("law", "strange")], model)
    assert any("'odd', 'strange'): they count as wrong" in note for note in report.notes)
    before, after = known.lines[0].figures, report.lines[0].figures
    n_right = sum(item["predicted"] == item["gold"] for item in report.items)
    assert after["accuracy"] == n_right / len(report.items)
    assert before["f1"] is not None
    assert after["f1"] is not None
    assert after["f1"] <= before["f1"]
    assert after["macro_f1"] == pytest.approx(_macro(report))


def _macro(report: Report) -> float:
    figures = []
    for label in ("bad", "good", "odd", "strange"):
        both = sum(item["gold"] == item["predicted"] == label for item in report.items)
        either = sum(item[side] == label for item in report.items for side in ("gold", "predicted"))
        figures.append(2 * both / either)
    return sum(figures) / 4


def test_several_labels_are_several_though_each_row_has_one(tmp_path: Path) -> None:
    task = small_task("classify")
    splits = {
        name: [type(item)(text=item.text, gold=(item.gold,)) for item in its] for name, its in task.splits.items()
    }
    metrics = ("micro_f1", "multi_macro_f1", "accuracy")
    model = made(tmp_path / "model", metrics, multi=True, splits=splits, metrics=metrics)
    path = tmp_path / "test.jsonl"
    path.write_text("".join(f'{{"review": "the {word}", "stars": "bad"}}\n' for word in BAD))
    report = polyseme.evaluate(str(path), model=model, device="cpu")
    right = sum(tuple(item["predicted"]) == ("bad",) for item in report.items)
    assert right > 0
    assert report.lines[0].figures["accuracy"] == right / len(BAD)


def test_several_labels_of_a_row_are_refused_by_a_model_of_one(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"review": "the crane", "stars": ["good", "bad"]}\n')
    with pytest.raises(InputError, match=r"test.jsonl, line 1: there are several labels, and the model gives one"):
        polyseme.evaluate(str(path), model=model, device="cpu")


def test_progress_is_told(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "CHUNK_TEXTS", 4)
    told: list[tuple[int, int | None]] = []
    rows = [(word, "bad") for word in BAD]
    report = evaluated(tmp_path / "bad.csv", rows, model, progress=lambda *each: told.append(each))
    assert told == [(0, 6), (4, 6), (6, 6)]
    assert len(report.items) == 6


def test_a_correlation_that_is_not_defined_is_reported(tmp_path: Path) -> None:
    """Dev has one text only, so that all predictions on it are the same."""
    task = small_task("classify", n_train=64, n_dev=8, metrics=("matthews", "accuracy"))
    same = [Item(text="the crane broke .", gold=item.gold) for item in task.splits["dev"]]
    task = replace(task, splits={**task.splits, "dev": same})
    with pytest.warns(PolysemeWarning, match="Seed 0, dev: All predictions are the same, so that matthews is not"):
        done = finetune_task(task, tiny_model("bert").bundle, SETTINGS)
    assert done.report.best.dev["matthews"] == 0
    [note] = [note for note in done.report.notes if "matthews is not defined and is given as 0" in note]
    assert note in FinetuneReport.from_json(json.loads(json.dumps(done.report.to_json()))).notes
    folder = tmp_path / "model"
    columns = {"text": "review", "label": "stars"}
    save_task_model(done.model, folder, card={"metrics": ["matthews"], "columns": columns})
    with pytest.warns(PolysemeWarning, match="All predictions are the same, so that matthews is not defined"):
        report = evaluated(tmp_path / "same.csv", [("crane", "good"), ("crane", "bad")], folder)
    assert any("matthews is not defined" in note for note in report.notes)
    assert report.lines[0].figures["matthews"] == 0
