"""The script of the four ways: rows of models that are not run again stay, and figures of other data do not mix."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from polyseme.tasks.items import Item, TaskData
from tiny_models import tiny_model

SCRIPT = "contextualreps"


def test_a_trial_makes_its_rows(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a good film", "a bad film", "a film"]
    items = [Item(text=texts[number % 3], gold=("good", "bad", "film")[number % 3]) for number in range(12)]
    labels = ("bad", "film", "good")
    splits = {"train": items, "dev": items[:6], "test": items[6:]}
    data = TaskData(name="sst3", kind="classify", labels=labels, metrics=("accuracy",), splits=splits)
    monkeypatch.setattr(script, "read_benchmark", lambda name, folder: data)
    monkeypatch.setattr(script, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(script, "STRATEGIES", {"fine-tuned": {"epochs": 1}})
    tiny_model("bert").save(tmp_path / "bert")
    line = ["run", "--bert", tmp_path / "bert", "--seeds", "1", "--max-items", "6"]
    line += ["--work", tmp_path / "work", "--output", tmp_path / "rows.json"]
    monkeypatch.setattr(sys, "argv", ["contextualreps.py", *map(str, line)])
    script.main()
    content = json.loads((tmp_path / "rows.json").read_text())
    assert content["task"] == "sst3, 6 of each split"
    [row] = content["rows"]
    assert (row["model"], row["strategy"], row["seeds"]) == ("BERT", "fine-tuned", 1)
    assert 0 <= row["test"]["median"] <= 1


def test_rows_of_other_models_stay(script: Any, tmp_path: Path) -> None:
    stored = [{"model": "ELMo", "test": 1}, {"model": "BERT", "test": 2}]
    (tmp_path / "rows.json").write_text(json.dumps({"task": "all", "machine": "old", "rows": stored}))
    again = {"model": "BERT", "test": 3, "machine": "new"}
    rows = script.merged(tmp_path / "rows.json", "all", [again])
    assert rows == [{"model": "ELMo", "test": 1, "machine": "old"}, again]
    with pytest.raises(SystemExit, match="other data"):
        script.merged(tmp_path / "rows.json", "a sample", [again])
