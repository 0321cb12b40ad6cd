"""`polyseme geometry`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import Refuse, Run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("Dawn broke.\nThe news broke.\nSandy broke the law.\n", encoding="utf-8")
    return path


def test_geometry_prints_and_writes_the_same(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    ask = ("geometry", "-m", tiny, "--in", source, "--min-uses", 2)
    ended = run(*ask, "-o", tmp_path / "geometry.json")
    assert ended.code == 0
    assert "without mean and 2 components" in ended.out
    assert "note: Anisotropy is the mean cosine of all pairs of words" in ended.err
    written = json.loads((tmp_path / "geometry.json").read_text(encoding="utf-8"))
    printed = json.loads(run(*ask, "--json").out)
    assert printed["records"] == written["records"]
    assert written["data"] == f"{source}: 3 texts, 12 words"
    assert run(*ask, "-o", tmp_path / "geometry.html").code == 0


def test_bad_input_is_refused(refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    ask = ("geometry", "-m", tiny, "--in")
    assert "cannot be read twice" in refuse(*ask, "-", folder=tmp_path, stdin=b"Dawn broke.\n")
    assert "must end in .html" in refuse(*ask, source, "-o", tmp_path / "geometry.pdf", folder=tmp_path)
    assert "There is no file" in refuse(*ask, tmp_path / "none.txt", "-o", tmp_path / "a.html", folder=tmp_path)
    wordless = tmp_path / "wordless.jsonl"
    wordless.write_text('{"text": []}\n', encoding="utf-8")
    assert "has 0 words" in refuse(*ask, wordless, "-o", tmp_path / "a.html", folder=tmp_path)
    for model in (tmp_path / "nowhere", source):
        refuse(*ask, source, "--against", model, folder=tmp_path)
