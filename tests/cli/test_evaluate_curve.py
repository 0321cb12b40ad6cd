"""`polyseme evaluate --curve`: the models that a run kept, each scored, against words seen; and samples of pairs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from cli.commands import Refuse, Run
from polyseme.api import Model
from polyseme.verbs.evaluate import evaluate
from tiny_models import tiny_model

PAIRS = [
    ("The vase broke.", "The broke vase.", "order"),
    ("A crane caught a fish.", "A fish caught a crane.", "order"),
    ("They throw a ball.", "They throws a ball.", "agreement"),
    ("The beer is flat.", "The beer are flat.", "agreement"),
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([("good", "bad", "group"), *PAIRS])
    return file


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """A run that kept two models on its way, each with weights of its own."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "ledger.json").write_text(json.dumps({"pieces": 52_000, "steps": 400}))
    for number, (folder, words) in enumerate([("at-words/1000", 1000), ("at-words/10000", 10_000), ("model", 0)]):
        model = tiny_model("modernbert")
        _shift(model, number)
        model.save(run / folder)
        if words:
            seen = {"words": words, "pieces": words * 13 // 10, "step": words // 100}
            (run / folder / "seen.json").write_text(json.dumps(seen))
    return run


def _shift(model: Model, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for parameter in model.bundle.encoder.parameters():
        with torch.no_grad():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3 * number)


def test_every_model_of_the_run_is_evaluated(run: Run, a_run: Path, pairs: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    report = evaluate(str(pairs), model=a_run, curve=True, progress=lambda done, total: calls.append((done, total)))
    folders = [a_run / "at-words" / "1000", a_run / "at-words" / "10000", a_run / "model"]
    alone = [evaluate(str(pairs), model=folder) for folder in folders]
    assert [point.lines for point in report.curve] == [each.lines for each in alone]
    assert len({point.lines[0].figures["margin"] for point in report.curve}) == 3, "the models differ"
    assert [(point.words, point.step) for point in report.curve] == [(1000, 10), (10_000, 100), (40_000, 400)]
    assert report.lines == alone[-1].lines
    assert report.cost is not None
    assert alone[0].cost is not None
    assert report.cost.pieces == 3 * alone[0].cost.pieces
    assert calls[-1][0] == calls[-1][1] == report.cost.pieces
    ended = run("evaluate", pairs, "-m", a_run, "--curve")
    assert ended.code == 0, ended.err
    header, *rows = [line.split() for line in ended.out.splitlines()]
    assert header == ["words", "pieces", "step", "accuracy"]
    assert rows == [
        [
            f"{point.words:,}",
            f"{point.pieces:,}",
            f"{point.step:,}",
            f"{100 * (point.lines[0].figures['accuracy'] or 0):.1f}",
        ]
        for point in report.curve
    ]


def test_the_curve_in_every_format(run: Run, a_run: Path, pairs: Path, tmp_path: Path) -> None:
    for ending in ("json", "tsv", "jsonl", "html", "svg", "png"):
        ended = run("evaluate", pairs, "-m", a_run, "--curve", "-o", tmp_path / f"curve.{ending}")
        assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "curve.json").read_text())
    assert [point["words"] for point in content["curve"]] == [1000, 10_000, 40_000]
    with (tmp_path / "curve.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [(row["words"], row["name"]) for row in rows[:4]] == [
        ("1000", "all"),
        ("1000", "order"),
        ("1000", "agreement"),
        ("10000", "all"),
    ]
    lines = (tmp_path / "curve.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 100, 400]
    html = (tmp_path / "curve.html").read_text()
    assert html.count("<path") == 3, "all, and both groups"
    assert "10k" in html
    text = "".join(ElementTree.parse(tmp_path / "curve.svg").getroot().itertext())
    for label in ("words seen", "accuracy (%)", "order", "agreement", "1k", "10k"):
        assert label in text
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_sample_of_each_group(run: Run, a_run: Path, pairs: Path) -> None:
    ended = run("evaluate", pairs, "-m", a_run, "--pairs", "1", "--json")
    content = json.loads(ended.out)
    assert [(line["name"], line["n"]) for line in content["lines"]] == [("all", 2), ("order", 1), ("agreement", 1)]
    assert "A sample: 2 of the 4 pairs of pairs.csv, at most 1 of each group." in content["notes"]
    assert not any("sample" in note for note in evaluate(str(pairs), model=a_run, pairs=2).notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["pairs.csv", "--curve"], "A curve is of a run"),
        (["pairs.csv", "--curve", "-m", "run/model/nowhere"], "There is no model at"),
        (["pairs.csv", "--curve", "-m", "run/at-words/1000"], "is no run: it has no run.json"),
        (["pairs.csv", "--pairs", "0", "-m", "run"], "At least 1 pair of each group"),
        (["lambada", "--data", "last.jsonl", "--pairs", "3", "-m", "run"], "lambada has no minimal pairs"),
    ],
)
def test_what_is_refused(
    refuse: Refuse,
    a_run: Path,
    pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last.jsonl").write_text('{"text": "A crane caught a fish"}\n')
    assert message in refuse("evaluate", *line, folder=tmp_path)
