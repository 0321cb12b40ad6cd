"""Texts typed at the command line of commands that read files, too: as those of a file, and never a missing file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import Refuse, Run
from polyseme.files.in_memory import file_or_text
from polyseme.files.source_paths import FileName
from polyseme.files.vector_files import read_vectors

TEXTS = ("Dawn broke.", "I didn't see either/or cranes")


def test_typed_texts_are_scored_and_embedded_as_those_of_a_file(
    run: Run, causal: Path, tiny: Path, tmp_path: Path
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    typed, read = (json.loads(run("score", *each, "-m", causal, "--json").out) for each in (TEXTS, (file,)))
    assert typed == read
    assert [each["id"] for each in typed["texts"]] == ["1", "2"]
    for name, sources in {"typed": TEXTS, "read": (file,)}.items():
        assert run("embed", *sources, "-m", tiny, "-o", tmp_path / f"{name}.jsonl", "--device", "cpu").code == 0
    assert (tmp_path / "typed.jsonl").read_text() == (tmp_path / "read.jsonl").read_text()
    assert [each.text for each in read_vectors(tmp_path / "typed.jsonl")] == list(TEXTS)


@pytest.mark.parametrize(
    "name", ["no such file.txt", "./no such", "/no such", "more texts/no such", "my *.csv.gz", "gone.txt"]
)
def test_what_looks_like_a_path_is_never_a_text(
    refuse: Refuse, causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more texts").mkdir()
    assert isinstance(file_or_text(name), FileName)
    assert "o file " in refuse("score", name, "-m", causal, folder=tmp_path)


def test_files_with_blanks_are_files_and_one_word_is_none(
    refuse: Refuse, causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my texts").write_text("Dawn broke.\n")
    assert isinstance(file_or_text("my texts"), FileName)
    assert "If it is a text: " in refuse("score", "Hello", "-m", causal, folder=tmp_path)
    assert "texts by themselves" in refuse("score", "my texts", "Dawn broke.", "-m", causal, folder=tmp_path)
    assert "'field' is about files" in refuse("score", "Dawn broke.", "--field", "text", "-m", causal, folder=tmp_path)
