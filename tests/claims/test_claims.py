"""The claims: each has a rule that was written before its result, and results that the rule decided."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import polyseme
from polyseme.claims import check_claims, claim_result, claim_table
from polyseme.claims.check_claims import ClaimReport
from polyseme.claims.claim import Claim
from polyseme.claims.claim_result import RESULTS, ClaimResult, packaged_results
from polyseme.claims.claim_table import CLAIMS, NOT_SHOWN
from polyseme.claims.data_sources import DATA, VARIABLE
from polyseme.claims.lab import Figures, Lab, pretraining_rows
from polyseme.claims.rule import Rule, above, fingerprint
from polyseme.claims.script_rules import SCRIPT_RULES
from polyseme.errors import InputError, OptionError, OutputError
from polyseme.sweeps.grid import ROW
from polyseme.sweeps.sweep_report import Figure, RunCost, RunResult

SCORE = "score"
every_claim = pytest.mark.parametrize("claim", CLAIMS.values(), ids=list(CLAIMS))
every_result = pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)


@every_claim
def test_a_claim_says_all_that_must_be_known_before_a_run(claim: Claim) -> None:
    assert claim.text.endswith(".")
    assert claim.runs.endswith(".")
    assert any(character.isdigit() for character in claim.source)
    assert claim.minutes > 0
    assert set(claim.data) <= set(DATA)
    assert (claim.run is None) == bool(claim.script) == isinstance(claim.rule, str)
    assert (claim.small_minutes is None) == (not claim.small_lacks)
    if isinstance(claim.rule, Rule):
        assert claim.seeds > 1 or not claim.rule.seeds


def test_what_cannot_be_shown_has_a_reason() -> None:
    assert NOT_SHOWN
    assert all(each.text.endswith(".") and each.reason.endswith(".") for each in NOT_SHOWN)


@every_result
def test_a_result_is_of_a_rule_that_has_not_changed(file: Path) -> None:
    result = ClaimResult.read(file)
    claim = CLAIMS[result.claim]
    assert file.name.startswith(f"{result.claim}.{result.size}")
    assert result.rule in (claim.rule_text, *claim.earlier_rules), "keep the rule that decided, beside the new one"
    if isinstance(claim.rule, Rule) and result.rule == claim.rule_text:
        assert claim.rule.verdict(result.sweep) == result.verdict
        names = [outcome["condition"] for outcome in result.outcomes]
        assert names == [condition.text for condition in claim.rule.conditions]
    if claim.run is not None:
        assert len({run.seed for run in result.sweep.runs}) == claim.seeds
        assert all(run.cost.seconds > 0 and run.version for run in result.sweep.runs)


def test_a_rule_that_was_changed_in_a_result_is_refused(tmp_path: Path) -> None:
    file = copied_result(tmp_path, lambda content: {**content, "rule": f"{content['rule']} Or so."})
    with pytest.raises(InputError, match="the rule was changed after its result was known"):
        ClaimResult.read(file)


def copied_result(folder: Path, change: object) -> Path:
    content = json.loads(next(iter(sorted(RESULTS.glob("*.json")))).read_text(encoding="utf-8"))
    file = folder / "copy.json"
    file.write_text(json.dumps(change(content)), encoding="utf-8")  # type: ignore[operator]
    return file


# --- a run ------------------------------------------------------------------------------------------------------------


def of_numbers(scores: Mapping[str, float], calls: list[str], *, shared: str = "") -> Claim:
    """A claim whose experiment measures two rows."""

    def run(lab: Lab) -> list[RunResult]:
        def figures(row: str, seed: int) -> Figures:
            calls.append(f"{row} {seed}")
            return {SCORE: Figure(value=scores[row] + 0.001 * seed, unit="share", error=0.001)}

        return lab.measure_rows(scores, figures, shared=shared)

    return Claim(
        name="ten-beats-five",
        text="Ten beats five.",
        source="Nobody 2020",
        runs="Two numbers.",
        rule=Rule(conditions=(above("ten", "five", SCORE),)),
        run=run,
        data=(),
        device="cpu",
        minutes=2,
        small_minutes=1,
        small_lacks="Large numbers.",
    )


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch) -> tuple[Claim, list[str]]:
    calls: list[str] = []
    ours = of_numbers({"ten": 0.10, "five": 0.05}, calls)
    monkeypatch.setattr(check_claims, "CLAIMS", {ours.name: ours})
    monkeypatch.setattr(claim_table, "CLAIMS", {ours.name: ours})
    return ours, calls


def test_a_run_is_decided_written_and_not_repeated(claim: tuple[Claim, list[str]], tmp_path: Path) -> None:
    ours, calls = claim
    output = tmp_path / "claim.html"
    [report] = polyseme.check_claims(ours.name, small=True, output=output)
    assert report.verdict == "shown (small)"
    assert len(calls) == 6
    page = output.read_text(encoding="utf-8")
    assert "<b>Shown</b>, at the small size" in page
    assert "Two numbers. That is the full size; the rows below are of the small one." in page
    assert "What this size cannot show: Large numbers." in page
    assert "ten − five" in page
    assert "Of shares, 0.01 is a point." in page
    kept = ClaimResult.read(output.with_suffix(".json"))
    assert kept.fingerprint == fingerprint(ours.rule_text)
    assert kept.sweep.summary(SCORE, row="ten").mean == pytest.approx(0.101)
    [resumed] = polyseme.check_claims(ours.name, small=True, output=output)
    assert len(calls) == 6
    assert resumed.results[0].to_json() == kept.to_json()
    foreign = tmp_path / "foreign.html"
    foreign.write_text("mine")
    with pytest.raises(polyseme.PolysemeError, match="is already there"):
        polyseme.check_claims(ours.name, output=foreign)


def test_claims_that_run_together_share_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[str] = []
    one = of_numbers({"ten": 0.10, "five": 0.05}, calls, shared="numbers")
    other = dataclasses.replace(one, name="five-beats-ten", rule=Rule(conditions=(above("five", "ten", SCORE),)))
    monkeypatch.setattr(check_claims, "CLAIMS", {each.name: each for each in (one, other)})
    monkeypatch.setattr(claim_table, "CLAIMS", {each.name: each for each in (one, other)})
    reports = polyseme.check_claims(f"{other.name},{one.name}", output=tmp_path / "claims")
    assert [(each.claim.name, each.verdict) for each in reports] == [
        (other.name, "refuted here"),
        (one.name, "shown"),
    ]
    assert len(calls) == 6, "the second claim takes the rows of the first"
    folders = {each.name for each in (tmp_path / "claims").iterdir()}
    assert folders == {"runs", *(f"{each.name}.{ending}" for each in (one, other) for ending in ("html", "json"))}


def test_results_of_older_versions_and_rules_are_stated(claim: tuple[Claim, list[str]], tmp_path: Path) -> None:
    ours, _ = claim
    [report] = polyseme.check_claims(ours.name, output=tmp_path / "claim.html")
    [result] = report.results
    older = dataclasses.replace(result, version="0.0.1", size="small", rule="Another.")
    both = ClaimReport(claim=ours, results=[result, older])
    assert both.verdict == "shown; shown (small, polyseme 0.0.1, by an earlier rule)"


def test_time_that_is_over_leaves_a_message(claim: tuple[Claim, list[str]], tmp_path: Path) -> None:
    ours, calls = claim
    [report] = polyseme.check_claims(ours.name, output=tmp_path / "claim.html", stop_after="0.5s")
    assert "the same command resumes it" in report.message
    assert not calls
    assert not (tmp_path / "claim.html").exists()


def test_runs_of_another_budget_are_refused_or_discarded(claim: tuple[Claim, list[str]], tmp_path: Path) -> None:
    ours, calls = claim
    output = tmp_path / "claim.html"
    polyseme.check_claims(ours.name, output=output)
    with pytest.raises(OutputError, match="budget was 1 × the smallest and is 2 × the smallest"):
        polyseme.check_claims(ours.name, output=output, budget="4min")
    assert len(calls) == 6
    [report] = polyseme.check_claims(ours.name, output=output, budget="4min", force=True)
    assert len(calls) == 12
    assert report.results[0].budget == "2 × the smallest"


def test_a_folder_of_others_is_left_alone(claim: tuple[Claim, list[str]], tmp_path: Path) -> None:
    ours, calls = claim
    foreign = tmp_path / "claim.runs" / "full" / "notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    with pytest.raises(OutputError, match="is there already"):
        polyseme.check_claims(ours.name, output=tmp_path / "claim.html", force=True)
    assert not calls
    assert [each.name for each in foreign.parent.iterdir()] == ["notes.txt"]


def test_a_damaged_measurement_is_named(claim: tuple[Claim, list[str]], tmp_path: Path) -> None:
    ours, _ = claim
    polyseme.check_claims(ours.name, output=tmp_path / "claim.html")
    [measured] = (tmp_path / "claim.runs" / "full" / "measured").glob("*.ten.0.json")
    measured.write_text('{"figures": []}')
    with pytest.raises(InputError, match=r"ten\.0\.json is damaged .* the same command measures it again"):
        polyseme.check_claims(ours.name, output=tmp_path / "claim.html")


def test_a_result_has_the_version_of_its_runs(claim: tuple[Claim, list[str]]) -> None:
    ours, _ = claim
    runs = [RunResult(name=name, settings={ROW: name}, seed=0, folder="", version="0.0.9") for name in ("ten", "five")]
    result = ClaimResult.of(ours, runs, size="small", device="a CPU", factor=1.0)
    assert result.version == "0.0.9"
    assert ClaimReport(claim=ours, results=[result]).verdict == "not shown (small, polyseme 0.0.9)"


def test_notes_of_a_measurement_are_kept(tmp_path: Path) -> None:
    lab = Lab(claim="ten-beats-five", folder=tmp_path, data=Path(), n_seeds=1, device="cpu")
    notes: list[str] = []

    def figures() -> Figures:
        notes.append("ten, seed 0: no better on dev than majority label.")
        return {SCORE: Figure(value=0.1)}

    for _ in range(2):  # measured, then read
        measured = lab.measure("ten", 0, figures, notes=notes)
        assert measured.notes == ("ten, seed 0: no better on dev than majority label.",)


def test_pretraining_is_a_row_of_its_own() -> None:
    run = RunResult(name="run", settings={ROW: "LM"}, seed=0, folder="runs/LM", cost=RunCost(seconds=60.0))
    [row] = pretraining_rows([run])
    assert row == dataclasses.replace(run, settings={ROW: "LM: pretraining"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cache-help", {}, "Did you mean 'cache-helps'"),
        (
            "cache-helps",
            {"budget": "10s", "small": True},
            "cannot be tried honestly in 10s: it needs 15 minutes of two",
        ),
        ("cache-helps", {"budget": "later"}, "cannot be read"),
        ("cache-helps", {"device": "cpu"}, "minutes of a GPU, and this is a CPU. On a CPU, --small"),
        ("cache-helps", {"small": True, "output": "claim.png"}, "NAME.html"),
        ("heads-follow-relations", {}, "is run by experiments/heads.py"),
        ("cache-helps", {"small": True, "jobs": -3}, "jobs must be 0 or more. Got -3"),
        ("all", {"budget": "6min"}, "A budget is that of one claim"),
        ("cache-helps,nnlm-with-kn5", {"budget": "6min"}, "A budget is that of one claim"),
        ("cache-helps,nnlm-with-kn6", {}, "Did you mean 'nnlm-with-kn5'"),
        ("mix-beats-top,cache-helps", {"small": True}, "no small size"),
        (None, {"small": True}, "small would change nothing of a list"),
        (None, {"show": True}, "show would change nothing of a list"),
        ("cache-helps", {"show": True, "small": True}, "small would change nothing of what --show"),
        ("all,cache-helps", {}, "'all' stands alone"),
        ("cache-helps,,nnlm-with-kn5", {}, "separated by single commas"),
        ("", {}, "separated by single commas"),
        ("../../etc/passwd", {}, "There is no claim '../../etc/passwd'"),
        ("mix-beats-top", {"budget": "30min"}, "have a fixed length, and a budget would change nothing"),
    ],
)
def test_what_cannot_be_run_is_refused(name: str | None, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        polyseme.check_claims(name, **options)


def test_data_that_is_not_there_is_named_with_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(OptionError, match="needs data: tasks/wikitext-2"):
        polyseme.check_claims("cache-helps", small=True)
    with pytest.raises(InputError, match=r"tasks/wikitext-2, which is not there\. It is WikiText-2 \(Merity"):
        polyseme.check_claims("cache-helps", small=True, data=tmp_path)


def test_the_list_has_every_claim_and_what_is_known() -> None:
    reports = polyseme.check_claims()
    assert [report.claim.name for report in reports] == list(CLAIMS)
    for report in reports:
        known = packaged_results(report.claim.name, claim_result.RESULTS)
        assert (report.verdict == "not run yet") == (not known)
        json.dumps(report.to_json())


@pytest.mark.parametrize("script", SCRIPT_RULES)
def test_the_rule_of_a_script_is_in_its_own_words(script: str) -> None:
    root = Path(__file__).parents[2]
    texts = [file.read_text(encoding="utf-8") for file in (root / script, root / "docs/input_formats.md")]
    rule, *_ = SCRIPT_RULES[script]["rule"].removeprefix("A difference between two rows counts").split(". A row is")
    assert " ".join(rule.split()) in " ".join(" ".join(texts).replace('"', "'").split())
