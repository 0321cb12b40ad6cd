"""`polyseme attention`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import Refuse, Run
from tiny_models import tiny_model

ARPA = "\\data\\\nngram 1=3\n\n\\1-grams:\n-0.5\t<unk>\n-0.4\t</s>\n-0.6\tdawn\n\n\\end\\\n"


def test_a_table_by_layer_is_printed_and_a_page_is_written(run: Run, tiny: Path, tmp_path: Path) -> None:
    page = tmp_path / "attention.html"
    code, out, err = run("attention", "Dawn broke, and the vase broke.", "-m", tiny, "--rollout", "-o", page)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "Attention: Dawn broke, and the vase broke."
    assert lines[1].split("  ")[0] == "layer"
    assert [line.split()[0] for line in lines[2:]] == ["1", "2", "3"]
    assert str(page) in err
    assert "rollout" in page.read_text(encoding="utf-8")
    read = json.loads(run("attention", "Dawn broke.", "-m", tiny, "--pieces", "--json").out)
    assert read["maps"][0]["rows"][0] == "[CLS]"
    assert len(read["maps"][0]["layers"]) == 3


def test_windows_are_reported(run: Run, tiny: Path) -> None:
    ended = run("attention", "Dawn broke. " * 20, "-m", tiny)
    assert "windows, as embed reads it" in ended.err
    assert ended.out.splitlines()[1].startswith("window  layer")


@pytest.mark.parametrize(
    ("family", "options", "reason"),
    [
        ("elmo", [], "has no attention heads in its encoder. It reads word by word"),
        ("static", [], "one vector for each word"),
        ("arpa", [], "has no encoder"),
        ("bert", ["--target", "Dawn"], "the model has one stack"),
        ("bert", ["-o", "attention.pdf"], "must end in .html, .json, .tsv, .csv"),
    ],
)
def test_what_is_refused(refuse: Refuse, tmp_path: Path, family: str, options: list[str], reason: str) -> None:
    model = tmp_path / ("model.arpa" if family == "arpa" else "model")
    if family == "arpa":
        model.write_text(ARPA, encoding="utf-8")
    else:
        tiny_model(family).save(model)
    assert reason in refuse("attention", "Dawn broke.", "-m", model, *options, folder=tmp_path)


def test_a_text_without_words_is_refused(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "The text has no words" in refuse("attention", " ", "-m", tiny, folder=tmp_path)
