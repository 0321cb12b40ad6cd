"""The script of the geometry of layers: its tables, the rule and the picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = "geometry"


def result(model: str, samples: list[list[float]]) -> dict[str, object]:
    def records(figures: list[float]) -> list[dict[str, object]]:
        kinds = ("as they are", "without mean")
        return [
            {"layer": layer, "vectors": kind, "anisotropy": value, "self_similarity_adjusted": 1 - value}
            for kind in kinds
            for layer, value in enumerate(figures)
        ]

    return {"model": model, "words": 9, "samples": [{"records": records(each)} for each in samples]}


@pytest.mark.slow
def test_the_table_says_for_which_models_the_rule_holds(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["geometry", "--results", str(tmp_path), "table", "--picture", str(tmp_path / "geometry.svg")]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit, match="holds no results"):
        script.main()
    growing, falling = [[0.1, 0.2, 0.3], [0.1, 0.25, 0.4]], [[0.1, 0.5, 0.2], [0.1, 0.2, 0.3]]
    for name, samples in (("a", growing), ("a.random", falling), ("b", [[0.1, 0.11, 0.12]] * 2)):
        (tmp_path / f"{name}.json").write_text(json.dumps(result(name, samples)))
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| a | 0.10 | 0.23 | 0.35 | 0.071 |" in lines
    assert [each for each in lines if each.endswith(("yes |", "no |"))] == [
        "| a | 1.00 | +0.20 | yes |",
        "| a.random | 0.50 | +0.10 | no |",
        "| b | 1.00 | +0.02 | no |",
    ]
    assert b"<svg" in (tmp_path / "geometry.svg").read_bytes()
