"""What the forms of a task model cost: scores, errors, seconds and bytes are those of folders that one would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyseme
from polyseme.cli import main
from polyseme.errors import MissingPackageError
from polyseme.exporting import model_forms
from polyseme.exporting.model_forms import Form
from polyseme.exporting.tradeoff_table import FormMeasurement, tradeoff_figures
from polyseme.tasks.items import Item
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import small_task

TASK = small_task("classify", n_train=48, n_dev=16)
ROWS = [{"text": item.text, "label": item.gold} for item in TASK.splits["dev"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "stars"
    done = finetune_task(TASK, tiny_model("bert").bundle, FinetuneSettings(epochs=1))
    save_task_model(done.model, folder, card={"metrics": ["accuracy"]}, files={"report.json": "x" * 10_000_000})
    return folder


@pytest.mark.filterwarnings("ignore:This processor has no instructions")
def test_one_line_per_form(folder: Path, tmp_path: Path) -> None:
    """Scores and bytes are those of the folders that `convert` writes."""
    report = polyseme.tradeoffs(ROWS, model=folder, also=[folder], rounds=1, output=tmp_path / "costs.html")
    assert [line.name for line in report.lines] == ["full", "bf16", "int8", "onnx", "stars"]
    polyseme.convert_model(model=folder, output=tmp_path / "int8", dtype="int8")
    (tmp_path / "int8" / "report.json").unlink()
    n_bytes = sum(path.stat().st_size for path in (tmp_path / "int8").iterdir() if path.name != "README.md")
    assert report["int8"]["megabytes"] == pytest.approx(n_bytes / 1e6, rel=1e-2)
    assert report["int8"]["megabytes"] < report["full"]["megabytes"] < 10
    evaluated = polyseme.evaluate(ROWS, model=tmp_path / "int8")
    assert report["int8"]["accuracy"] == evaluated["all"]["accuracy"]
    assert report["onnx"]["accuracy"] == report["full"]["accuracy"] == report["stars"]["accuracy"]
    assert report["stars"]["change error"] == 0
    for line in report.lines:
        assert line.figures["seconds"] > 0
        assert line.figures["speed"] == report["full"]["seconds"] / line.figures["seconds"]
    page = (tmp_path / "costs.html").read_text()
    assert "change error" in page
    assert "the forms in turn, 1 time each" in page


def test_errors_are_those_of_sampling(folder: Path) -> None:
    """Of a share p of n items √(p (1 − p) / n); a change on the same items is surer than two scores apart."""
    rng = np.random.default_rng(1)
    model = load_task_model(folder)
    items = [Item(text="a", gold=str(gold)) for gold in rng.choice(["bad", "good"], 400)]
    answers = [item.gold if number % 5 else "none" for number, item in enumerate(items)]
    others = [answer if number % 50 else "none" for number, answer in enumerate(answers)]
    measured = [
        FormMeasurement(Form(name, Predictor(model), 10**6), given, [2.0, 9.0, 1.0])
        for name, given in (("full", answers), ("small", others))
    ]
    figures = tradeoff_figures(measured, items, "accuracy")
    assert figures["full"]["accuracy"] == 0.8
    assert figures["full"]["error"] == pytest.approx(0.02, rel=0.2)
    assert figures["small"]["change"] == 0  # each fiftieth is a fifth, too
    assert figures["small"]["change error"] == 0
    assert figures["small"]["seconds"] == 2.0
    assert len(figures.items) == 800


@pytest.mark.filterwarnings("ignore:This processor has no instructions")
def test_forms_that_are_not_there_are_noted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingPackageError("The package 'onnx' is needed here.")

    monkeypatch.setattr(model_forms, "need_packages", missing)
    report = polyseme.tradeoffs(ROWS, model=folder, forms=["full", "onnx"], items=5, rounds=1)
    assert [(line.name, line.n) for line in report.lines] == [("full", 5)]
    assert "Left out: onnx. The package 'onnx' is needed here." in report.notes


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    file, unlabeled = tmp_path / "a.csv", tmp_path / "b.csv"
    file.write_text("text,label\nthe crane,good\n")
    unlabeled.write_text("text,label\n")
    tiny_model("bert").save(tmp_path / "plain")
    done = finetune_task(small_task("tag", n_train=16, n_dev=8), tiny_model("bert").bundle, FinetuneSettings(epochs=1))
    save_task_model(done.model, tmp_path / "tags")
    (tmp_path / "there.html").touch()
    for arguments, message in (
        ([file, "-m", tmp_path / "plain"], "without a head"),
        ([file, "-m", tmp_path / "gone"], "no such folder"),
        ([file, "-m", folder, "--forms", "full,int4"], "int8"),
        ([file, "-m", folder, "--rounds", "0"], "at least 1"),
        ([file, "-m", folder, "--items", "0"], "at least 1"),
        ([file, "-m", folder, "--also", tmp_path / "tags"], "for another task"),
        ([file, "-m", folder, "-o", tmp_path / "there.html"], "there.html"),
        ([file, "-m", folder, "-o", tmp_path / "a.doc"], "must end in"),
        ([tmp_path / "none.csv", "-m", folder], "none.csv"),
        ([unlabeled, "-m", folder], "b.csv"),
    ):
        ended = CliRunner().invoke(main, ["tradeoffs", *map(str, arguments)])
        assert ended.exit_code == 2, arguments
        assert message in " ".join(ended.output.split()), arguments


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This processor has no instructions")
def test_the_command(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    ended: Any = CliRunner().invoke(main, ["tradeoffs", str(file), "-m", str(folder), "--rounds", "1"])
    assert ended.exit_code == 0
    assert [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("form")] == [
        "full",
        "bf16",
        "int8",
        "onnx",
    ]
