"""The scripts of the pretraining figures: a row in slices, its JSON, the table, and the tiny models' prompts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROW = ["bert-small", "--recipe", "bert-tiny", "--budget", "4steps", "--no-blimp"]
SMALL = ["--set", "n_layers=1", "--set", "width=16", "--set", "n_heads=2", "--set", "inner_width=16"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    words = ["the", "a", "dawn", "vase", "crane", "broke", "fell", "sat", "on", "in", "under", "house", "river"]
    lines = [" ".join(words[(n * k + k) % len(words)] for k in range(3, 40)) + f" {n}." for n in range(1500)]
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join(lines))
    return file


def test_a_slice_counts_from_the_start_of_the_script(import_script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = import_script("pretraining_runs")
    monkeypatch.setattr(shared.time, "monotonic", lambda: 100.0)
    assert shared.what_is_left("9min", 40.0) == "480s"
    assert shared.what_is_left("9min", -1000.0) == "1s"
    assert shared.what_is_left(None, 40.0) is None


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
def test_a_row_in_slices_ends_as_one_result(
    import_script: Any, tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first slice takes one step, the second finishes the run and writes its figures, a third does nothing."""

    def printed(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        import_script(name).main()
        return capsys.readouterr().out

    row = [
        *ROW,
        *SMALL,
        "--pretrain",
        "batch_size=16",
        "--texts",
        texts,
        "-o",
        tmp_path / "runs",
        "--results",
        tmp_path / "results",
    ]
    assert "the slice has ended" in printed("pretraining_rows", *row, "--slice", "0.1s")
    assert not (tmp_path / "results").exists()
    assert "done" in printed("pretraining_rows", *row)
    file = tmp_path / "results" / "bert-small-seed0.json"
    result = json.loads(file.read_text())
    assert result["n_steps"] == result["ledger"]["steps"] == 4
    assert result["ledger"]["n_sessions"] == 2
    assert result["below_unigram"] == pytest.approx(result["unigram_entropy"] - result["held_out"]["masked"])
    assert result["request"]["shape"]["n_layers"] == 1
    assert result["request"]["batch_size"] == 16
    assert result["parameters"]["model"] > 0
    before = file.read_bytes()
    assert "done" in printed("pretraining_rows", *row)
    assert file.read_bytes() == before
    table = printed("pretraining_table", tmp_path / "results")
    assert "| BERT: `bert-tiny`," in table
    assert "nats below unigram 3.00: no" in table


def test_a_goal_is_reached_by_the_mean_over_seeds(import_script: Any) -> None:
    table = import_script("pretraining_table")
    ledger = {"utilization": None, "total_seconds": 1.0, "kwh": 0.0}
    results = [
        {"held_out_loss": loss, "ledger": ledger, "blimp": {"piece": {"accuracy": share}, "word": {"accuracy": 0.9}}}
        for loss, share in [(2.4, 0.73), (2.6, 0.76)]
    ]
    assert table.verdict({"blimp": 74, "held_out_loss": 2.45}, results) == "BLiMP 74.0: yes; held-out loss 2.450: no"
    assert table.verdict({"glue": 66}, results) == "GLUE, five tasks (dev) 66.0: not measured"
    assert table.verdict({"utilization": 0.3}, results) == "utilization 30%: not measured"
    assert table.spelled("blimp", results) == "73.0, 76.0"


def test_the_clock_of_a_slice(import_script: Any) -> None:
    runs = import_script("pretraining_runs")
    now = runs.time.perf_counter()
    assert runs.Clock(now, None).has(1e9)
    assert runs.Clock(now, None).stop_after is None
    assert runs.Clock(now - 100, 540).has(400)
    assert not runs.Clock(now - 100, 540).has(450)
    assert runs.Clock(now, 540).stop_after == "540s"


def test_the_prompts_are_twenty_of_each_kind(import_script: Any) -> None:
    prompts = import_script("tiny_prompts")
    assert {len(each) for each in (prompts.FILLED, prompts.CONTINUED, prompts.REPLACED)} == {20}
    assert all(prompt.count("[MASK]") == 1 for prompt in prompts.FILLED)
    for sentence, word, other in prompts.REPLACED:
        assert word in sentence.replace(".", "").split()
        assert word != other


def test_cores_are_bound_in_pairs(import_script: Any, tmp_path: Path) -> None:
    recipes = import_script("cpu_recipes")
    assert recipes.parse_cores("0,1,4-7") == [0, 1, 4, 5, 6, 7]
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    probe = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    process = recipes.start([sys.executable, "-c", probe], tmp_path / "log", [core])
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "log").read_text().strip() == f"[{core}] 1"
    assert os.sched_getaffinity(0) == before


def test_the_page_shows_outputs_as_they_are(import_script: Any) -> None:
    output = {
        "model": "generator",
        "kind": "fills masks",
        "columns": ["prompt", "answers"],
        "rows": [["A [MASK] | b", "##x *y*\nz"]],
    }
    result = {
        "recipe": "electra-tiny",
        "request": {"budget": "5min"},
        "cores": 2,
        "texts": ["books.txt"],
        "machine": "a machine",
        "parameters": {"model": 1_500_000, "generator": 400_000},
        "n_steps": 7,
        "held_out_loss": 5.0,
        "unigram_entropy": 6.5,
        "below_unigram": 1.5,
        "ledger": {"pieces": 2_000_000, "total_seconds": 299.6},
        "outputs": [output],
    }
    page = import_script("cpu_recipes").page_of([result])
    assert "| `electra-tiny` | 1.50M + 0.40M | 7 | 2.0M | 5.00 | 6.50 | **1.50** |" in page
    assert "The generator fills masks:" in page
    assert r"| A \[MASK\] \| b | \#\#x \*y\* ⏎ z |" in page


def test_pairs_of_neighbors_stay_within_their_document(import_script: Any) -> None:
    """Skip-thoughts: of three sentences four pairs; an autoencoder: as many as sentences."""
    encoders = import_script("sentence_encoders")
    documents = encoders.sentences_of(["One. Two is\nhere. Three.", "Alone.", "Never read."], words=6)
    assert documents == [["One.", "Two is", "here.", "Three."], ["Alone."]]
    pairs = encoders.neighbors([["a", "b", "c"], ["d"]])
    assert pairs == [("a", "<next> b"), ("b", "<next> c"), ("b", "<previous> a"), ("c", "<previous> b")]
    assert encoders.itself(["a", "d"]) == [("a", "a"), ("d", "d")]


def test_tables_show_what_was_measured(import_script: Any, tmp_path: Path) -> None:
    """Rows and tasks that were not run are left out or empty."""
    result = {"mean": {"dev": 0.5, "test": 0.4}, "spread": {"dev": 0.01, "test": 0.0}, "baseline": 0.2}
    (tmp_path / "wnut17.glove.json").write_text(json.dumps(result))
    lines = import_script("stacked_inputs").markdown(tmp_path).splitlines()
    assert lines[2:] == ["| + GloVe | 50.0 ± 1.0 | 40.0 ± 0.0 |  |  |"]
    (tmp_path / "trec.random.json").write_text(json.dumps(result))
    lines = (
        import_script("sentence_encoders").markdown(tmp_path, ["random", "autoencoder"], ["trec", "imdb"]).splitlines()
    )
    assert lines[2:] == ["| random | 50.0 ± 1.0 |  |"]
