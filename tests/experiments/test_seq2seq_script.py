"""The script of the bottleneck: the table of all rows, the mean over seeds, and BLEU by length as a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = "seq2seq"


def result(row: str, seed: int, bleu: float) -> dict[str, object]:
    parts = [{"first": 4 * n, "last": 4 * n + 3, "mean": 4.0 * n + 1, "bleu": bleu - n} for n in range(1, 4)]
    cost = {"steps": 9, "pieces": 1, "seconds": 2.0, "flops": 1.0, "kwh": 0.25, "device": "cpu"}
    held_out = {"last": 1.5, "lowest": 1.0}
    return {"row": row, "seed": seed, "bleu": bleu, "by_length": parts, "held_out": held_out, "cost": cost} | {
        "signature": "nrefs:1"
    }


@pytest.mark.slow
def test_the_table_and_the_picture(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, picture = tmp_path / "results", tmp_path / "lengths.svg"
    arguments = ["seq2seq", "table", "--results", str(results), "--draw", str(picture)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="holds no results"):
        script.main()
    results.mkdir()
    for row, seed, bleu in (("attention", 0, 30.0), ("attention", 1, 32.0), ("none", 0, 20.0)):
        (results / f"{row}-seed{seed}.json").write_text(json.dumps(result(row, seed, bleu)))
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["LSTM, last state only", "LSTM with attention"]
    assert [cell.strip() for cell in lines[3].split("|")[2:6]] == ["31.0", "30.0", "29.0", "28.0"]
    assert "4–7 words" in lines[0]
    assert "<svg" in picture.read_text(encoding="utf-8")
