"""The script of ULMFiT's figures: its tables of the results that are there."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.slow
def test_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    script = importlib.import_module("ulmfit")
    for row, seed, shares in (
        ("full", 0, {"1%": 0.6, "100%": 0.8}),
        ("full", 1, {"1%": 0.7, "100%": 0.9}),
        ("no-concat", 0, {"100%": 0.7}),
    ):
        result = {"shares": {share: {"dev": 0.0, "test": value} for share, value in shares.items()}}
        script.keep(tmp_path, f"trec.{row}.{seed}", result)
    script.keep(tmp_path, "pretrain.forwards", {"seconds": 1.0})
    curve, steps = script.markdown(tmp_path).split("\n\n")
    assert "65.0 ± 7.1" in curve.splitlines()[2]
    assert [line.split("|")[3].strip() for line in steps.splitlines()[2:]] == ["85.0 ± 7.1", "70.0"]
    assert json.loads((tmp_path / "trec.full.0.json").read_text())["shares"]["1%"]["test"] == 0.6
    assert set(script.NAMES) == {*script.ROWS, "ensemble"}
