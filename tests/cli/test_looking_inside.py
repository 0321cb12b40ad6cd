"""`lens`, `attribute`, `cells` and `patch` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from cli.commands import Refuse, Run
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.task_folder import save_task_model
from polyseme.transfer.task_model import TaskConfig
from tiny_models import tiny_model

HOSTILE = "<script>alert(1)</script> [MASK]"


def test_lens_prints_layers_and_writes_a_page(run: Run, tiny: Path, tmp_path: Path) -> None:
    ended = run("lens", HOSTILE, "-m", tiny, "-o", tmp_path / "lens.html", "--top", 3)
    assert (ended.code, len(ended.out.splitlines())) == (0, 6)
    page = (tmp_path / "lens.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    read = json.loads(run("lens", HOSTILE, "-m", tiny, "--json").out)
    assert len(read["records"]) == 4
    assert {"answer_rank", "entropy", "divergence", "top_1", "probability_5"} <= set(read["records"][0])
    assert read["places"][0]["answer"] == read["records"][-1]["top_1"]


def test_lens_refuses(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "no mask" in refuse("lens", "Dawn broke", "-m", tiny, "-o", tmp_path / "lens.html", folder=tmp_path)
    assert "must end in .html" in refuse("lens", HOSTILE, "-m", tiny, "-o", tmp_path / "a.pdf", folder=tmp_path)
    assert "Shorten the text" in refuse("lens", "broke " * 60 + "[MASK]", "-m", tiny, folder=tmp_path)


def test_attribute_is_for_task_models(run: Run, refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    model = build_task_model(
        tiny_model("bert").bundle,
        TaskConfig(kind="classify", max_pieces=40),
        "linear",
        head_settings={"labels": ("a", "b")},
    )
    save_task_model(model, tmp_path / "task", card={})
    page = tmp_path / "why.html"
    ended = run("attribute", HOSTILE, "Dawn broke", "-m", tmp_path / "task", "-o", page, "--steps", 3)
    assert ended.code == 0
    assert "sum of all" in ended.out
    assert "<script" not in page.read_text(encoding="utf-8")
    line = ("attribute", "Dawn", "-m", tmp_path / "task")
    assert "no label 'c'" in refuse(*line, "--label", "c", folder=tmp_path)
    assert "already there" in refuse(*line, "-o", page, folder=tmp_path)
    assert "polyseme finetune" in refuse("attribute", "Dawn", "-m", tiny, folder=tmp_path)


def test_cells_of_recurrent_models(run: Run, refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    tiny_model("lstm").save(tmp_path / "lstm")
    line = ("cells", HOSTILE, "-m", tmp_path / "lstm")
    ended = run(*line, "--property", "position in line", "--top", 4, "-o", tmp_path / "cells.html")
    assert (ended.code, len(ended.out.splitlines())) == (0, 6)
    assert "<script" not in (tmp_path / "cells.html").read_text(encoding="utf-8")
    assert len(json.loads(run(*line, "--cell", "1,2", "--json").out)["cells"]) == 2
    (tmp_path / "text.txt").write_text(HOSTILE, encoding="utf-8")
    read = run("cells", "--in", tmp_path / "text.txt", "--cell", 1, "-m", tmp_path / "lstm")
    assert (read.code, read.out) == (0, run(*line, "--cell", 1).out)
    assert "Name a text" in refuse("cells", "-m", tmp_path / "lstm", "--cell", 1, folder=tmp_path)
    assert "Did you mean 'inside quotes'" in refuse(*line, "--property", "inside qoutes", folder=tmp_path)
    assert "whole numbers" in refuse(*line, "--cell", "x", folder=tmp_path)
    assert "polyseme heads" in refuse("cells", "Dawn", "--cell", 1, "-m", tiny, folder=tmp_path)
    (tmp_path / "text.txt").write_text("Dawn broke.\nWe broke even.\n", encoding="utf-8")
    of_file = ("cells", "--in", tmp_path / "text.txt", "-m", tmp_path / "lstm", "--cell", 1)
    assert json.loads(run(*of_file, "--json").out)["text"] == "Dawn broke.\nWe broke even.\n"
    assert "a text or a file" in refuse("cells", "--cell", 1, "-m", tmp_path / "lstm", folder=tmp_path)


def test_patch_prints_layers_and_words(run: Run, refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    sentences = ("The vase [broke]", "The news [is]")
    ended = run("patch", *sentences, "-m", tiny, "-o", tmp_path / "patch.html")
    assert (ended.code, len(ended.out.splitlines())) == (0, 6)
    assert "vase / news" in (tmp_path / "patch.html").read_text(encoding="utf-8")
    records = json.loads(run("patch", *sentences, "-m", tiny, "--json").out)["records"]
    assert {each["layer"] for each in records} == {0, 1, 2, 3}
    assert "the same number of words" in refuse("patch", "The vase [broke]", "News [is]", "-m", tiny, folder=tmp_path)
