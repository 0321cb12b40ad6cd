"""`polyseme evaluate wsc` and `gap`: the two readings of a pronoun, whole and behind the mention; and fitted models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse
from gap_files import ROW, changed, gap
from tiny_models import tiny_model

ROWS = [
    {"before": "The crane broke the vase because", "pronoun": "it", "after": "is flat.", "label": 1},
    {"before": "The crane broke the vase because", "pronoun": "it", "after": "is a crane.", "label": 0},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "wsc").mkdir()
    rows = [{**row, "candidates": ["The crane", "The vase"], "wsc273": True} for row in ROWS]
    (tmp_path / "wsc" / "wsc273.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (gap(tmp_path / "gap", ROW, changed(A_coref="FALSE"))).rename(tmp_path / "gap" / "gap-test.tsv")
    return tmp_path


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_readings_by_the_model_s_own_scores(data: Path, tmp_path: Path, family: str) -> None:
    """A causal model's sums, and a masked one's, over all words and over those behind the mention."""
    model = tiny_model(family)
    model.save(tmp_path / "model")
    report = polyseme.evaluate("wsc", model=tmp_path / "model", data=data, device="cpu")
    assert [line.name for line in report.widest] == ["partial", "full"]
    loaded = polyseme.load(tmp_path / "model", device="cpu")
    for row, partial, full in zip(ROWS, report.items[:2], report.items[2:], strict=True):
        texts = [f"{row['before']} the {noun} {row['after']}" for noun in ("crane", "vase")]
        scored = loaded.score(texts)
        n_behind = len(str(row["after"]).rstrip(".").split()) + 1
        wholes = [sum(each.word_log_probs) for each in scored]
        tails = [sum(each.word_log_probs[-n_behind:]) for each in scored]
        right = int(row["label"])  # type: ignore[call-overload]
        assert full["margin"] == pytest.approx(wholes[right] - wholes[1 - right], abs=1e-4)
        assert partial["margin"] == pytest.approx(tails[right] - tails[1 - right], abs=1e-4)


def test_gap_by_gender_and_a_fitted_model_on_its_own_task(data: Path, tmp_path: Path, refuse: Refuse) -> None:
    tiny_model("gpt2").save(tmp_path / "model")
    report = polyseme.evaluate("gap", model=tmp_path / "model", data=data, device="cpu")
    assert [(line.name, line.parent, line.n) for line in report.lines] == [
        ("partial", "", 1), ("feminine", "partial", 1), ("full", "", 1), ("feminine", "full", 1)
    ]  # fmt: skip
    gap(tmp_path / "gap", *([ROW, changed(A_coref="FALSE", B_coref="TRUE")] * 3))
    polyseme.finetune("gap", data=tmp_path, model=tiny_model("bert"), epochs=1, output=tmp_path / "fitted")
    fitted = polyseme.evaluate("gap", model=tmp_path / "fitted", data=tmp_path, device="cpu")
    assert {"f1", "accuracy", "f1 (feminine)"} == set(fitted.columns)
    (tmp_path / "gap" / "gap-test.tsv").write_text(
        (tmp_path / "gap" / "gap-test.tsv").read_text().replace("Eve\t8", "Eve\t7")
    )
    said = refuse("evaluate", "gap", "-m", tmp_path / "model", "--data", tmp_path, folder=tmp_path)
    assert "gap-test.tsv, line 2: B should be 'Eve' at character 7 of its text, and there is ' Ev'" in said
