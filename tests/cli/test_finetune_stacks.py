"""`polyseme finetune --stack` and `--head text`: a line that works, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import Refuse, Run
from tiny_models import tiny_model

QUICK = ("--epochs", "1", "--batch-size", "8", "--device", "cpu", "--text", "text", "--label", "label")


def write(path: Path, labels: tuple[str, str] = ("good", "bad"), n: int = 24) -> Path:
    words = ("crane", "vase", "fish", "news", "beam", "tire")
    texts = [f"the {words[number % 6]} is {words[number // 6 % 6]}" for number in range(n)]
    rows = [f"{text},{labels[number % 2]}" for number, text in enumerate(texts)]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two-stacks")
    for family in ("bart", "t5"):
        tiny_model(family).save(folder / family)
    return folder


@pytest.mark.parametrize(
    ("family", "options", "expected"),
    [
        ("bart", (), {"stack": "decoder", "head": "linear"}),
        ("bart", ("--stack", "encoder"), {"stack": "encoder", "readout": "first"}),
        ("bart", ("--head", "text"), {"head": "text", "stack": None}),
        ("t5", (), {"head": "text"}),
        ("t5", ("--stack", "decoder"), {"stack": "decoder", "readout": "last", "head": "linear"}),
    ],
    ids=["bart", "bart-encoder", "bart-text", "t5", "t5-decoder"],
)
def test_fitted_and_predicted(
    family: str, options: tuple[str, ...], expected: dict[str, Any], run: Run, models: Path, tmp_path: Path
) -> None:
    table = write(tmp_path / "reviews.csv")
    fitted = tmp_path / "fitted"
    line = ("finetune", "classify", "--train", table, "-m", models / family, "-o", fitted, *QUICK, *options)
    assert run(*line).code == 0
    settings = json.loads((fitted / "report.json").read_text())["settings"]
    assert {name: settings[name] for name in expected} == expected
    out = tmp_path / "said.jsonl"
    assert run("predict", table, "--field", "text", "-m", fitted, "-o", out, "--device", "cpu").code == 0
    said = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(said) == 24
    assert {each["label"] for each in said} <= {"good", "bad"}
    ended = run("evaluate", table, "-m", fitted, "--device", "cpu", "--json")
    assert ended.code == 0
    assert "accuracy" in ended.out


WORDS = ("good", "bad")
REFUSED: dict[str, tuple[str, tuple[str, str], tuple[str, ...], str]] = {
    "one stack": ("tiny", WORDS, ("--stack", "decoder"), "one stack, and no decoder"),
    "typo": ("t5", WORDS, ("--stack", "decodre"), "Did you mean 'decoder'?"),
    "encoder": ("tiny", WORDS, ("--head", "text"), "Take a model of two stacks"),
    "no model": ("none", WORDS, ("--head", "text"), "Without a model"),
    "unknown": ("t5", ("good", "★"), (), "The label '★' cannot be written"),
    "alike": ("t5", ("a★", "a☆"), ("--head", "text"), "are written alike"),
    "frozen": ("t5", WORDS, ("--head", "text", "--frozen"), "nothing of its own to learn"),
    "readout": ("t5", WORDS, ("--head", "text", "--readout", "mean"), "readout means nothing"),
    "first": ("bart", WORDS, ("--stack", "decoder", "--readout", "first"), "has read nothing yet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, refuse: Refuse, tiny: Path, models: Path, tmp_path: Path) -> None:
    model, labels, options, said = REFUSED[case]
    table = write(tmp_path / "reviews.csv", labels)
    place = {"tiny": tiny, "none": "none"}.get(model, models / model)
    line = ("finetune", "classify", "--train", table, "-m", place, "-o", tmp_path / "fitted", *QUICK, *options)
    assert said in refuse(*line, folder=tmp_path)


def test_tags_are_not_written(refuse: Refuse, models: Path, tmp_path: Path) -> None:
    table = tmp_path / "train.conll"
    table.write_text("the\tO\ncrane\tB\n\na\tO\nfish\tB\n\nthe\tO\nbeer\tB\n")
    line = (
        "finetune",
        "tag",
        "--train",
        table,
        "--label",
        "2",
        "-m",
        models / "t5",
        "--head",
        "text",
        "--device",
        "cpu",
    )
    assert "Got a task of kind 'tag'" in refuse(*line, folder=tmp_path)
