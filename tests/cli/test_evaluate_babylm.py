"""`polyseme evaluate babylm`: both parts by BabyLM's convention, one piece hidden at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.verbs.evaluate import evaluate
from tiny_models import tiny_model

BLIMP = {
    "passive_1": (
        "argument_structure",
        [("The vase broke.", "The broke vase."), ("Sandy broke it.", "It broke Sandy.")],
    ),
    "wh_island": ("island_effects", [("A crane caught a fish.", "A fish caught a crane.")]),
}
SUPPLEMENT = {
    "hypernym": [("They throw a ball.", "They ball a throw.")],
    "turn_taking": [("We broke even.", "We even.")],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for folder in ("blimp_filtered", "supplement_filtered"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    for uid, (term, pairs) in BLIMP.items():
        rows = [
            {"sentence_good": good, "sentence_bad": bad, "field": "f", "linguistics_term": term, "UID": uid}
            for good, bad in pairs
        ]
        _write(tmp_path / "data" / "blimp_filtered" / f"{uid}.jsonl", rows)
    for name, pairs in SUPPLEMENT.items():
        rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in pairs]
        _write(tmp_path / "data" / "supplement_filtered" / f"{name}.jsonl", rows)
    return tmp_path / "data"


def _write(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("family", "hide"), [("gpt2", None), ("modernbert", None), ("bert", "word")])
def test_each_kind_of_model_by_its_own_likelihood(tmp_path: Path, data: Path, family: str, hide: str | None) -> None:
    """A causal model by its log-likelihood; a masked one by its pseudo-log-likelihood, one piece hidden at a time."""
    model = tiny_model(family)
    model.save(tmp_path / "model")
    report = evaluate("babylm", model=tmp_path / "model", data=data, hide=hide)  # type: ignore[arg-type]
    settings = {} if family == "gpt2" else {"hide": hide or "piece"}

    def margin(good: str, bad: str) -> float:
        first, second = polyseme.load(tmp_path / "model").score([good, bad], **settings)
        return first.totals.log_prob - second.totals.log_prob

    shares = {uid: [margin(*pair) > 0 for pair in pairs] for uid, (_, pairs) in BLIMP.items()}
    expected = sum(sum(each) / len(each) for each in shares.values()) / len(shares)
    assert report["blimp"]["accuracy"] == pytest.approx(expected)
    assert report["supplement"]["accuracy"] == pytest.approx(
        sum(margin(*pair) > 0 for [pair] in SUPPLEMENT.values()) / 2
    )
    first = next(item for item in report.items if item["set"] == "blimp" and item["paradigm"] == "passive_1")
    assert first["margin"] == pytest.approx(margin(*BLIMP["passive_1"][1][0]), abs=1e-3)
    expected_how = {None: "one piece hidden at a time", "word": "whole words hidden at once"}[hide]
    assert (expected_how in report.method) == (family != "gpt2")


def test_the_terminal_and_the_files(run: Run, tiny: Path, data: Path, tmp_path: Path) -> None:
    ended = run("evaluate", "babylm", "-m", tiny, "--data", data)
    assert ended.code == 0, ended.err
    names = [line.split()[1] for line in ended.out.splitlines()[1:]]
    assert names == [
        *("blimp", "argument_structure", "passive_1", "island_effects", "wh_island"),
        *("supplement", "hypernym", "turn_taking"),
    ]
    assert "2 paradigms; BabyLM's mean is over 67" in ended.err
    for ending in ("json", "tsv", "html", "svg"):
        assert run("evaluate", "babylm", "-m", tiny, "--data", data, "-o", tmp_path / f"report.{ending}").code == 0
    lines = json.loads((tmp_path / "report.json").read_text())["lines"]
    assert [line["name"] for line in lines if line["depth"] == 0] == ["blimp", "supplement"]


def test_without_the_supplement_the_report_says_so(run: Run, tiny: Path, data: Path) -> None:
    ended = run("evaluate", "babylm", "-m", tiny, "--data", data / "blimp_filtered")
    assert ended.code == 0, ended.err
    assert "The supplement part (hypernym, " in ended.err
    assert "supplement" not in ended.out


def test_a_folder_without_pairs_is_refused(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "does not hold BabyLM's pairs" in refuse(
        "evaluate", "babylm", "-m", tiny, "--data", tmp_path, folder=tmp_path
    )
