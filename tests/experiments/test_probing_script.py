"""The script that asks which layer knows what: its verdicts follow the rule, and its table fills the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "probing"


def result(task: str, accuracies: list[float], center: float, *, per_type: float = 0.5) -> dict[str, Any]:
    """Three seeds; centers of gravity that differ by 0.1."""
    rows = [
        {
            "layer": str(layer),
            "accuracy": accuracy,
            "standard_error": 0.01,
            "selectivity": None,
            "random_weights": 0.4,
            "per_type": per_type,
        }
        for layer, accuracy in enumerate(accuracies)
    ]
    mix = {
        "shares": [[0.5, 0.3, 0.2]] * 3,
        "centers_of_gravity": [center - 0.1, center, center + 0.1],
        "expected_layers": [1.0],
    }
    return {
        "model": "mine",
        "task": task,
        "records": rows,
        "mix": mix,
        "per_type": per_type,
        "majority": 0.2,
        "seeds": [0, 1, 2],
        "notes": [],
        "machine": "a machine",
        "cost": {"device": "cpu"},
    }


def test_the_verdict_follows_the_rule(script: Any) -> None:
    low = result("pos", [0.8, 0.9, 0.7], 1.0)
    assert script.verdict(low, result("wsd", [0.6, 0.7, 0.8], 1.5)) == "yes"
    assert script.verdict(low, result("wsd", [0.6, 0.7, 0.8], 1.1)) == "in part"
    assert script.verdict(low, result("wsd", [0.6, 0.8, 0.7], 1.1)) == "no"
    assert script.verdict(low, result("wsd", [0.5, 0.5, 0.51], 1.5)) == "not above the words"


def test_the_table_fills_the_page(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task, center in (("pos", 1.0), ("wsd", 1.5), ("coreference", 1.7)):
        content = result(task, [0.6, 0.7, 0.8] if center > 1 else [0.8, 0.9, 0.7], center)
        (tmp_path / f"mine.{task}.json").write_text(json.dumps(content), encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("\n".join(["before", *script.MARKS, "after"]), encoding="utf-8")
    arguments = ["probing.py", "table", "--results", tmp_path, "--docs", page, "--picture", tmp_path / "map.svg"]
    monkeypatch.setattr(sys, "argv", [str(each) for each in arguments])
    script.main()
    text = page.read_text(encoding="utf-8")
    assert (text[:7], text[-5:]) == ("before\n", "after")
    assert "| mine | word sense | yes |" in text
    assert "| part of speech | mine | 1 of 2 | 90.0 ± 1.0 |" in text
    assert (tmp_path / "map.svg").read_bytes().startswith(b"<?xml")
    assert all(mark in (ROOT / "docs" / "probe.md").read_text(encoding="utf-8") for mark in script.MARKS)
