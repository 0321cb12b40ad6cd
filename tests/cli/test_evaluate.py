"""`polyseme evaluate`: benchmarks and one's own pairs, reports in every format, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import polyseme
from cli.commands import Refuse, Run
from polyseme.api import Model
from polyseme.verbs.evaluate import EVALUATIONS, evaluate
from tiny_models import tiny_model

PAIRS = [
    ("Dawn broke.", "Dawn crane.", "verbs"),
    ("We broke even.", "We even broke.", "order"),
    ("The tire is flat.", "The tire is flat.", "verbs"),
    ("A crane caught a fish.", "A fish caught a crane.", "<b>order</b>"),
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([("good", "bad", "group"), *PAIRS])
    return file


def margins(model: Model) -> list[float]:
    sides = [[each.totals.log_prob for each in model.score([row[side] for row in PAIRS])] for side in (0, 1)]
    return [good - bad for good, bad in zip(*sides, strict=True)]


@pytest.mark.parametrize("kind", ["causal", "tiny"])
def test_ones_own_pairs(run: Run, request: pytest.FixtureRequest, pairs: Path, kind: str) -> None:
    folder: Path = request.getfixturevalue(kind)
    report = evaluate(str(pairs), model=folder)
    assert report.evaluation == "pairs.csv"
    expected = margins(polyseme.load(folder))
    np.testing.assert_allclose([item["margin"] for item in report.items], expected, atol=1e-3)
    assert expected[2] == 0
    assert report.items[2]["right"] is False, "a tie is wrong"
    assert report["all"]["accuracy"] == sum(margin > 0 for margin in expected) / 4
    assert report["verbs"]["ties"] == 1
    by_name = evaluate("pairs", model=folder, data=pairs)
    assert by_name.lines == report.lines
    ended = run("evaluate", pairs, "-m", folder)
    assert ended.code == 0
    header, every, *groups = ended.out.splitlines()
    assert header.split()[:4] == ["level", "name", "n", "accuracy"]
    assert every.split()[:4] == ["all", "all", "4", f"{100 * (report['all']['accuracy'] or 0):.1f}"]
    assert [line.split()[1] for line in groups] == ["verbs", "order", "<b>order</b>"]
    assert f"Scored {report.method}." in ended.err


def test_reports_in_every_format(run: Run, causal: Path, pairs: Path, tmp_path: Path) -> None:
    report = evaluate(str(pairs), model=causal)
    for ending in ("json", "tsv", "jsonl", "html", "svg", "png"):
        ended = run("evaluate", pairs, "-m", causal, "-o", tmp_path / f"report.{ending}")
        assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["evaluation"] == "pairs.csv"
    assert content["lines"][0]["figures"] == report["all"]
    assert content["cost"]["documents"] == 7, "a text that stands twice is scored once"
    with (tmp_path / "report.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["name"] for row in rows] == ["all", "verbs", "order", "<b>order</b>"]
    assert float(rows[0]["accuracy"]) == pytest.approx(report["all"]["accuracy"])
    items = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [item["group"] for item in items] == [group for _, _, group in PAIRS]
    html = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;order&lt;/b&gt;" in html
    assert "<b>order</b>" not in html
    assert "<script" not in html
    ElementTree.parse(tmp_path / "report.svg")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_printed_json(run: Run, causal: Path, pairs: Path) -> None:
    found = json.loads(run("evaluate", pairs, "-m", causal, "--json").out)
    assert found["baseline"] == 0.5
    assert "items" not in found


def test_a_model_that_finds_all_alike_is_never_right(pairs: Path, tmp_path: Path) -> None:
    model = tiny_model("bert")
    for output in model.bundle.outputs.values():
        for parameter in output.parameters():
            torch.nn.init.zeros_(parameter)
    assert evaluate_in(model, tmp_path, pairs)["all"]["accuracy"] is not None
    report = evaluate_in(model, tmp_path, pairs)
    same_length = [item for item in report.items if abs(item["margin"]) < 1e-9]
    assert same_length
    assert not any(item["right"] for item in same_length)


def evaluate_in(model: Model, folder: Path, pairs: Path) -> polyseme.verbs.score.Report:  # type: ignore[name-defined]
    model.save(folder / "model", force=True)
    return evaluate(str(pairs), model=folder / "model")


# --- benchmarks -------------------------------------------------------------------------------------------------------


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    """A few rows of each benchmark, as its files have them."""
    tasks = tmp_path / "tasks"
    for name in ("blimp", "lambada", "agreement"):
        (tasks / name).mkdir(parents=True)
    blimp = [
        {"sentence_good": good, "sentence_bad": bad, "UID": f"{group}_1", "field": field, "linguistics_term": "t"}
        for (good, bad, group), field in zip(PAIRS[:3], ("syntax/semantics", "syntax_semantics", "syntax"), strict=True)
    ]
    (tasks / "blimp" / "blimp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in blimp))
    (tasks / "lambada" / "lambada_test.jsonl").write_text(
        '{"text": "A crane caught a fish, a crane"}\n{"text": "Dawn broke. The\\n\\nbroke"}\n'
    )
    agreement = tasks / "agreement"
    (agreement / "linzen.tsv").write_text(
        "position\tcorrect\twrong\tn_attractors\tsentence\n2\tis\tare\t0\tthe tire is flat\n1\tx\ty\t1\tthe tire is\n"
    )
    (agreement / "colorless.tab").write_text(
        "pattern\tconstr_id\tsent_id\tform\tclass\ttype\tlen_prefix\tsent\n"
        "p\t0\t0\tbroke\tcorrect\toriginal\t1\tDawn broke even <eos>\n"
        "p\t0\t0\tfish\twrong\toriginal\t1\tDawn broke even <eos>\n"
    )
    (agreement / "marvin.jsonl").write_text(
        '{"construction": "simple", "case": "s", "good": "they dance", "bad": ["they dances", "they balls"]}\n'
    )
    return tmp_path


def test_blimp(causal: Path, benchmarks: Path) -> None:
    report = evaluate("blimp", model=causal, data=benchmarks)
    assert [(line.level, line.name, line.n) for line in report.lines] == [
        ("all", "all", 3),
        ("field", "syntax_semantics", 2),
        ("paradigm", "verbs_1", 1),
        ("paradigm", "order_1", 1),
        ("field", "syntax", 1),
        ("paradigm", "verbs_1", 1),
    ]


@pytest.mark.parametrize("kind", ["causal", "tiny"])
def test_lambada_is_the_last_word_given_the_rest(request: pytest.FixtureRequest, benchmarks: Path, kind: str) -> None:
    folder: Path = request.getfixturevalue(kind)
    report = evaluate("lambada", model=folder, data=benchmarks / "tasks")
    scored = polyseme.load(folder).score(["A crane caught a fish, a crane", "Dawn broke. The\n\nbroke"])
    expected = [each.word_log_probs[-1] for each in scored]
    np.testing.assert_allclose(report["all"]["log_prob"], np.mean(expected), rtol=1e-4)
    np.testing.assert_allclose(report["all"]["perplexity"], np.exp(-np.mean(expected)), rtol=1e-3)
    assert [item["word"] for item in report.items] == ["crane", "broke"]
    assert any("sees how many pieces" in note for note in report.notes) == (kind == "tiny")


@pytest.mark.parametrize("kind", ["causal", "tiny"])
def test_agreement_compares_the_verb_in_its_place(request: pytest.FixtureRequest, benchmarks: Path, kind: str) -> None:
    folder: Path = request.getfixturevalue(kind)
    report = evaluate("agreement", model=folder, data=benchmarks)
    model = polyseme.load(folder)

    def word(words: str, place: int) -> float:
        [scored] = model.score([words.split()])
        return float(scored.word_log_probs[place])

    linzen, gulordava, marvin = report.items
    assert linzen["good"] == pytest.approx(word("the tire is flat", 2), rel=1e-4)
    assert linzen["bad"] == pytest.approx(word("the tire are flat", 2), rel=1e-4)
    assert gulordava["good"] == pytest.approx(word("Dawn broke even", 1), rel=1e-4)
    assert gulordava["bad"] == pytest.approx(word("Dawn fish even", 1), rel=1e-4)
    whole = [each.totals.log_prob for each in model.score(["they dance", "they dances", "they balls"])]
    np.testing.assert_allclose([marvin["good"], *marvin["bad"]], whole, rtol=1e-4)
    assert marvin["right"] == (whole[0] > max(whole[1:]))
    assert "1 rows are left out" in report.notes[0]
    assert [line.name for line in report.lines if line.level == "set"] == ["linzen", "gulordava", "marvin"]


def test_every_row_of_the_table_has_files_or_two_sides() -> None:
    assert set(EVALUATIONS) >= {"blimp", "lambada", "agreement", "pairs"}
    for each in EVALUATIONS.values():
        assert each.files or each.two_sides


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["blmp"], "Did you mean 'blimp'"),
        (["blimp"], "blimp needs its data"),
        (["blimp", "--data", "nowhere"], "There is no file or folder nowhere"),
        (["nowhere.csv"], "There is no file or folder nowhere.csv"),
        (["blimp", "--data", "pairs.csv"], "there is no field 'sentence_good'"),
        (["pairs.csv", "--data", "pairs.csv"], "leave out --data (data='pairs.csv')"),
        (["pairs.csv", "-o", "r.txt"], "must end in .json"),
        (["pairs.csv", "--hide", "x"], "There is no way 'x'"),
        (["half.csv"], "line 3: 'bad' is missing or empty"),
        (["notes.md"], "ends in none of the endings"),
        (["lambada", "--data", "pairs.csv"], "can be the text"),
    ],
)
def test_what_is_refused(
    refuse: Refuse,
    causal: Path,
    pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half.csv").write_text("good,bad\na,b\nc,\n")
    (tmp_path / "notes.md").write_text("good\n")
    assert said in refuse("evaluate", *line, "-m", causal, folder=tmp_path)


def test_a_model_without_a_fitting_output_is_refused(refuse: Refuse, pairs: Path, tmp_path: Path) -> None:
    assert "cannot score texts" in refuse("evaluate", pairs, "-m", "minilm", folder=tmp_path)
