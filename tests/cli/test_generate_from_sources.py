"""`polyseme generate` with a model that reads sources: a line a line, in order, gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.errors import PolysemeWarning
from polyseme.generating import generate_files
from polyseme.generating.text_generator import TextGenerator
from tiny_models import tiny_model

SOURCES = ["The vase broke.", "", "Sandy broke the law; they throw a party!", "Dawn", "A crane caught a fish."] * 3


@pytest.fixture(scope="module", params=["bart", "t5"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "model"
    tiny_model(request.param).save(folder)
    return folder


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(generate_files, "CHUNK_PROMPTS", 4)
    path = tmp_path / "test.en"
    path.write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    return path


def one_line(text: str) -> str:
    return " ".join(text.splitlines())


@pytest.mark.filterwarnings("ignore:Some texts have line breaks")
def test_a_line_a_line(run: Run, model: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "test.hyp"
    ended = run("generate", "--in", source, "-m", model, "--beam", "3", "--max-new", "6", "-o", output)
    assert ended.code == 0, ended.err
    lines = output.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    expected = polyseme.load(model, device="cpu").generate(SOURCES, beam=3, max_new=6)
    assert lines == [one_line(text) for text in expected]  # type: ignore[arg-type]
    assert len(set(lines)) > 1


def test_stopped_and_gone_on_with(model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"source": source, "model": model, "max_new": 5, "device": "cpu"}
    polyseme.generate(**settings, output=tmp_path / "whole.jsonl")  # type: ignore[arg-type]
    calls: list[int] = []
    write = TextGenerator.__call__

    def interrupted(self: TextGenerator, *given: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TextGenerator, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        polyseme.generate(**settings, output=tmp_path / "out.jsonl")  # type: ignore[arg-type]
    monkeypatch.setattr(TextGenerator, "__call__", write)
    assert not (tmp_path / "out.jsonl").exists()
    with pytest.warns(PolysemeWarning, match="an earlier run had done 8 prompts"):
        polyseme.generate(**settings, output=tmp_path / "out.jsonl")  # type: ignore[arg-type]
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_what_is_printed_is_the_text_alone(run: Run, model: Path) -> None:
    ended = run("generate", "The vase broke.", "-m", model, "--max-new", "4")
    [text] = polyseme.load(model, device="cpu").generate(["The vase broke."], max_new=4)
    assert ended.out == f"{text}\n"


def test_what_is_refused(refuse: Refuse, model: Path, tmp_path: Path) -> None:
    for said, line in (
        ("of a source. Shorten it", ["Dawn broke " * 40]),
        ("no use for a stride", ["Dawn", "--stride", "3"]),
        ("writes at most", ["Dawn", "--max-new", "500"]),
    ):
        assert said in refuse("generate", *line, "-m", model, folder=tmp_path)
