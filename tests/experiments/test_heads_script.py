"""The script of heads: which direction is read, and when heads follow a relation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = "heads"


def record(relation: str, direction: str, train: float, difference: float, error: float = 0.01) -> dict[str, Any]:
    return {
        "relation": relation, "direction": direction, "layer": 3, "head": 1, "train_accuracy": train, "accuracy": 0.7,
        "error": 0.02, "offset": -2, "offset_accuracy": 0.7 - difference, "difference": difference,
        "difference_error": error,
    }  # fmt: skip


def test_the_table_says_for_which_models_the_claim_holds(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{script.MARKS[0]}\n{script.MARKS[1]}\n")
    monkeypatch.setattr(sys, "argv", ["heads", "table", "--results", str(tmp_path), "--docs", str(page)])
    with pytest.raises(SystemExit, match="holds no results"):
        script.main()
    weak = [record("obj", "to head word", 0.8, 0.3), record("obj", "to dependent", 0.9, 0.05)]  # the second is chosen
    strong = [record("obj", "to head word", 0.9, 0.3), record("obj", "to dependent", 0.8, 0.05)]
    others = [record("det", "to head word", 0.9, 0.2), record("amod", "to head word", 0.9, 0.2, error=0.2)]
    random = [record(relation, "to head word", 0.1, -0.2) for relation in script.RELATIONS]
    rows = {"minilm": weak + others, "english-encoder": strong + others}
    rows |= {f"{name}-random0": random for name in rows}
    for name, records in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"data": "ud-ewt: some", "records": records}))
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit("|", 2)[1].strip() for line in lines[2:8]] == ["no", "yes", "no", "yes", "yes", "no"]
    assert "to dependent" in lines[2]
    assert "−20.0 ± 1.0" in lines[5]
    assert "`minilm`: does not hold; `english-encoder`: holds" in lines[-1]
    assert page.read_text().splitlines()[1:-1] == lines
