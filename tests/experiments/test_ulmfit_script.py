"""The script of ULMFiT's figures: its tables of the results that are there."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SCRIPT = "ulmfit"


def test_what_has_a_result_is_not_begun(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the target language model of rows that have theirs; ensembles come last."""
    for row in script.ROWS:
        for seed in range(2):
            if row not in ("scratch", "no-general") or seed == 0:
                script.keep(tmp_path, f"imdb.{row}.{seed}", {})
    begun: list[Sequence[str]] = []
    monkeypatch.setattr(script.Runs, "_start", lambda runs, job: begun.append(tuple(job)) or 0)
    line = ["rest", "-o", tmp_path / "runs", "--results", tmp_path, "--tasks", "imdb", "--seeds", "2", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", ["ulmfit.py", *map(str, line)])
    script.main()
    assert begun == [
        ("target", "imdb", "only"),
        ("row", "scratch", "imdb", "1"),
        ("row", "no-general", "imdb", "1"),
        ("row", "ensemble", "imdb", "0"),
        ("row", "ensemble", "imdb", "1"),
    ]


@pytest.mark.slow
def test_the_tables(script: Any, tmp_path: Path) -> None:
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
