"""The script of distillation: the table of all rows, and whether its rule holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = "distillation"


@pytest.mark.slow
def test_the_table_says_whether_the_rule_holds(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["distillation", "table", "--results", str(tmp_path)])
    with pytest.raises(SystemExit, match="holds no results"):
        script.main()
    for row, scores in (("scratch", [0.6, 0.7, 0.7]), ("student", [0.76, 0.78, 0.77]), ("teacher", [0.8, 0.7, 0.9])):
        result = {
            "row": row,
            "seed": 0,
            "layers": 6,
            "parameters": 1_000_000,
            "scores": {"rte": scores, "sst2": scores},
        }
        (tmp_path / f"{row}-seed0.json").write_text(json.dumps(result))
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:5]] == ["teacher", "distilled", "pretrained from scratch"]
    assert "77.0 ± 0.4 | 96.2%" in lines[3]
    assert "The rule holds: the student keeps 96.2% of the teacher's mean and is +7.0 points" in lines[-1]
