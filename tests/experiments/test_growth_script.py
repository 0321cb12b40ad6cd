"""The script of how cost grows: its verdicts follow the rule, a real point is measured once, and the page is filled."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Import = Callable[[str], Any]
MEBIBYTE = 2**20


SIZES = (100, 300, 1_000, 3_000, 10_000)


def points(exponent: float, *, grown: float = 0.0, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """Memory in MiB is 300 before the call, 40 more in it, and what is grown at the largest size."""
    return [
        {
            "size": size,
            "cpu_seconds": 0.002 * size**exponent,
            "seconds": 0.01 * size**exponent,
            "before": 400 * MEBIBYTE,
            "private_before": 300 * MEBIBYTE,
            "private": (340 + grown * size / sizes[-1]) * MEBIBYTE,
            "peak": (450 + grown * size / sizes[-1]) * MEBIBYTE,
            "machine": "a machine",
        }
        for size in sizes
    ]


def test_verdicts_follow_the_rule(import_script: Import) -> None:
    page = import_script("growth_page")
    for exponent, verdict in ((0.84, "below linear"), (0.86, "linear"), (1.14, "linear"), (1.16, "above linear")):
        assert page.time_line(points(exponent)).slope == pytest.approx(exponent)
        assert page.time_verdict(points(exponent)) == verdict
    assert page.memory_verdict(points(1.0, grown=35)) == "flat", "31.5 MiB over the upper half"
    assert page.memory_verdict(points(1.0, grown=40)) == "grows"
    assert page.memory_line(points(1.0, grown=40)).slope == pytest.approx(40 * MEBIBYTE / 10_000)
    only_small = [{**each, "cpu_seconds": 1.0} for each in points(1.0)[:2]] + points(1.0)[2:]
    assert page.time_line(only_small).slope == pytest.approx(1.0), "the lower half does not count"


def test_the_table_fills_the_page(
    import_script: Import,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = import_script("growth")
    results = tmp_path / "results"
    jobs = script.JOBS
    grown = {"embed": (1.0, 0.0), "corpus": (1.3, 0.0), "finetune": (1.0, 90.0), "similar": (1.0, 0.0)}
    for name, (exponent, more) in grown.items():
        for point in points(exponent, grown=more, sizes=jobs[name].sizes):
            script.store(name, point, results)
    for point in points(1.3, sizes=jobs["score"].sizes[:-1]):
        script.store("score", point, results)
    script.store("embed", points(1.0, sizes=jobs["embed"].sizes)[0], results)
    assert script.points_of("embed", results) == points(1.0, sizes=jobs["embed"].sizes), "no size is there twice"
    page = tmp_path / "page.md"
    page.write_text("\n".join(["before", *script.MARKS, "after"]), encoding="utf-8")
    arguments = ["growth.py", "--results", results, "table", "--docs", page, "--pictures", tmp_path]
    monkeypatch.setattr(sys, "argv", [str(each) for each in arguments])
    script.main()
    text = page.read_text(encoding="utf-8")
    assert (text[:7], text[-5:]) == ("before\n", "after")
    assert (
        "3 of 4 jobs grow as expected; more: `corpus`. No verdict, since larger sizes are not measured yet: `score`.\n"
        in text
    )
    assert "| embed | 1,000 … 1,000,000 rows | 2,000 s per call | 1.00 | linear | 450 | 340 | 0 | flat |" in text
    assert "| 1.30 | **above linear** (expected: linear) |" in text
    assert "| score | 1,000 … 100,000 rows so far | 6,325 s per call | 1.30 |  | 450 | 340 | 0 |  |" in text
    assert f"| {90 * MEBIBYTE / 100_000:,.0f} | grows |" in text
    assert "| similar | 1,000,000 | 2,000 s | 340 | 20,000 s | 340 |" in text, "ten times as many uses"
    for group in ("rows", "uses"):
        assert (tmp_path / f"growth_{group}.svg").read_bytes().startswith(b"<?xml")
    assert all(mark in (ROOT / "docs" / "growth.md").read_text(encoding="utf-8") for mark in script.MARKS)


def test_a_point_is_measured_once(
    import_script: Import,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script, draw = import_script("growth"), random.Random(0)
    texts, results = tmp_path / "texts.txt", tmp_path / "results"
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(300)]
    texts.write_text("".join(f"{' '.join(draw.choices(words, k=8))}\n" for _ in range(1_000)), encoding="utf-8")
    line = ["growth.py", "--results", results, "run", "--only", "tokenizer, by rows", "--most", 1_000]
    line += ["--texts", texts, "--work", tmp_path / "work"]
    monkeypatch.setattr(sys, "argv", [str(each) for each in line])
    script.main()
    assert capsys.readouterr().out.startswith("tokenizer, by rows, 1,000 rows: ")
    [file] = results.iterdir()
    [point] = json.loads(file.read_text(encoding="utf-8"))["points"]
    assert point["size"] == 1_000
    assert point["cpu_seconds"] > 0
    assert point["private"] < point["peak"]
    assert not [*(tmp_path / "work").glob("*-*/")], "outputs are removed"
    script.main()
    assert capsys.readouterr().out == ""
