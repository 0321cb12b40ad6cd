"""A sweep: every point of a grid with every seed, resumed where it was stopped, in one table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.errors import OptionError, OutputError, PolysemeError, PolysemeWarning
from polyseme.sweeps.sweep_report import Sweep
from polyseme.training.trainer import Trainer
from polyseme.verbs import sweep_run

SETTINGS: dict[str, Any] = {
    "recipe": "bert-tiny",
    "budget": "3steps",
    "batch_size": 8,
    "length": 16,
    "shape": {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32},
    "device": "cpu",
    "workers": 0,
    "jobs": 0,
}
OVER = {"mask_rate": [0.1, 0.4]}


@pytest.fixture(scope="module")
def pairs(text: Path) -> Path:
    path = text.with_name("pairs.tsv")
    lines = [f"the dawn broke a vase\tbroke the a {word} dawn" for word in ("vase", "house", "news", "beer")]
    path.write_text("good\tbad\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def output(text: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep, from raw text, with an evaluation of each model."""
    output = tmp_path_factory.mktemp("sweep") / "sweep.html"
    run(text, output, seeds=2, then=[("evaluate", {"name": str(pairs)})])
    return output


def run(text: Path, output: Path, **changes: Any) -> Sweep:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        settings = {**SETTINGS, "vocab_size": 300, "over": OVER, **changes}
        return polyseme.sweep("pretrain", text, output=output, **settings)


@pytest.fixture(scope="module")
def corpus(output: Path) -> Path:
    [corpus] = output.with_suffix(".runs").glob("corpus-*")
    return corpus


def again(corpus: Path, output: Path, **changes: Any) -> Sweep:
    """On a corpus that is built already."""
    return run(corpus, output, **{"vocab_size": None, **changes})


def read(output: Path) -> Sweep:
    return Sweep.read(output)


def test_every_point_has_a_run_for_every_seed_with_its_own_settings(output: Path) -> None:
    result, folder = read(output), output.with_suffix(".runs")
    assert [(each.settings["mask_rate"], each.seed, each.state) for each in result.runs] == [
        (rate, seed, "finished") for rate in (0.1, 0.4) for seed in (0, 1)
    ]
    for each in result.runs:
        settings = json.loads((folder / each.name / "run" / "run.json").read_text())["settings"]
        assert settings["objective"]["mask_rate"] == each.settings["mask_rate"]
        assert settings["training"]["seed"] == each.seed
        assert settings["encoder"]["width"] == 16
        ledger = json.loads((folder / each.name / "run" / "ledger.json").read_text())
        assert each.figures["held-out loss"].value == ledger["held_out"]
        assert not (folder / each.name / "run" / "checkpoints").exists()
    assert len(list(folder.glob("corpus-*"))) == 1, "the corpus is built once"


def test_the_table_has_means_over_seeds_and_the_cost_of_all(output: Path, pairs: Path) -> None:
    result = read(output)
    values = [each.figures["held-out loss"].value for each in result.runs[:2]]
    summary = result.summary("held-out loss", mask_rate=0.1)
    assert summary.mean == pytest.approx(sum(values) / 2)
    assert summary.spread == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert result.columns == ("mask_rate", "runs", "held-out loss", f"{pairs.name} accuracy", "minutes per run")
    assert result.rows()[0][:3] == ("0.1", "2 of 2", f"{summary.mean:.3f} ± {summary.spread:.3f}")
    ledgers = [json.loads((Path(each.folder) / "run" / "ledger.json").read_text()) for each in result.runs]
    assert result.cost.seconds > sum(each["total_seconds"] for each in ledgers), "with the evaluations"
    assert any("own objective" in line for line in result.lines())
    difference = result.difference("held-out loss", {"mask_rate": 0.1}, {"mask_rate": 0.4})
    other = result.summary("held-out loss", mask_rate=0.4)
    assert difference.value == pytest.approx(summary.mean - other.mean)
    assert difference.seed_error == pytest.approx(((summary.spread**2 + other.spread**2) / 2) ** 0.5)


def test_a_page_a_picture_and_tables_are_beside_each_other(output: Path) -> None:
    page, picture = output.read_text(), output.with_suffix(".svg").read_text()
    lines = output.with_suffix(".tsv").read_text().splitlines()
    assert "<table" in page
    assert page.count('<svg class="chart"') == picture.count("<svg y=") == 2, "one for each figure"
    assert picture.count("<circle") == 2 * 2 * 3, "of each point a mean and two seeds"
    assert lines[0].split("\t")[:4] == ["mask_rate", "seed", "state", "held-out loss"]
    assert len(lines) == 5


def test_the_same_call_repeats_nothing_and_further_seeds_are_added(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "sweep.html"
    first = again(corpus, output, over={"mask_rate": [0.1]})
    steps: list[int] = []
    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, *args: steps.append(1) or step(self, *args))
    assert again(corpus, output, over={"mask_rate": [0.1]}).runs == first.runs
    assert not steps
    more = again(corpus, output, over={"mask_rate": [0.1]}, seeds=2)
    assert more.runs[0] == first.runs[0]
    assert [each.state for each in more.runs] == ["finished"] * 2
    assert len(steps) == 3
    with pytest.raises(OutputError, match=r"learning_rate was none and is 0.5.*--force"):
        again(corpus, output, over={"mask_rate": [0.1]}, learning_rate=0.5)
    assert again(corpus, output, over={"mask_rate": [0.1]}, learning_rate=0.5, force=True).runs[0] != first.runs[0]


class Killed(BaseException):
    """As a signal that ends the process."""


def test_a_sweep_that_was_stopped_resumes_the_unfinished_run(
    corpus: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second of two runs, after two of three steps."""
    steps: Iterator[int] = iter(range(100))
    step = Trainer.step

    def killed(self: Trainer, *args: Any) -> Any:
        if next(steps) == 5:
            raise Killed
        return step(self, *args)

    place = tmp_path / "sweep.html"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", killed)
        with pytest.raises(Killed):
            again(corpus, place, checkpoint_every=1)
    assert not place.exists()
    first = tmp_path / "sweep.runs" / "mask_rate=0.1,seed=0" / "run"
    written = (first / "run.json").stat().st_mtime_ns
    taken: list[int] = []
    monkeypatch.setattr(Trainer, "step", lambda self, *args: taken.append(1) or step(self, *args))
    result = again(corpus, place, checkpoint_every=1)
    assert len(taken) == 1, "one was left"
    assert (first / "run.json").stat().st_mtime_ns == written
    unbroken = [each for each in read(output).runs if each.seed == 0]
    assert [each.figures["held-out loss"] for each in result.runs] == [
        each.figures["held-out loss"] for each in unbroken
    ]


def test_a_run_that_fails_is_reported_and_the_others_go_on(corpus: Path, tmp_path: Path) -> None:
    """And a row has options and settings of the encoder and of the objective, by their names."""
    rows = {
        "wild": {"learning_rate": 1e30},
        "tame": {"learning-rate": 0.02, "unit": "word", "set.inner_width": 8, "objective": {"mask_rate": 0.2}},
    }
    result = again(corpus, tmp_path / "s.html", over=None, rows=rows)
    assert [(each.settings["row"], each.state) for each in result.runs] == [("wild", "failed"), ("tame", "finished")]
    assert result.rows()[0][:2] == ("wild", "0 of 1")
    assert any(line.startswith("row=wild,seed=0 failed: ") for line in result.lines())
    assert "row=wild,seed=0 failed" in (tmp_path / "s.html").read_text()
    settings = json.loads((Path(result.runs[1].folder) / "run" / "run.json").read_text())["settings"]
    assert settings["training"]["optimizer"]["lr"] == 0.02
    assert (settings["objective"]["unit"], settings["objective"]["mask_rate"]) == ("word", 0.2)
    assert (settings["encoder"]["inner_width"], settings["encoder"]["width"]) == (8, 16)


def test_no_run_begins_after_the_time_is_over(corpus: Path, tmp_path: Path) -> None:
    place = tmp_path / "s.html"
    stopped = again(corpus, place, stop_after="0.001s")
    assert [each.state for each in stopped.runs] == ["unfinished"] * 2
    assert any("the same command resumes" in line for line in stopped.lines())
    assert not list((tmp_path / "s.runs").glob("*/run"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"over": None}, "nothing to vary"),
        ({"over": {}}, "nothing to vary"),
        ({"over": {"mask_rate": []}}, "no values"),
        ({"over": {"mask_rate": 0.1}}, "must be a list"),
        ({"over": {"mask_rate": [0.1, 0.1]}}, "twice"),
        ({"over": {"mask_rat": [0.1]}}, "Did you mean 'mask_rate'"),
        ({"over": {"recip": ["a"]}}, "Did you mean 'recipe'"),
        ({"over": {"recipe": ["bert-tiny", "bert-tinny"]}}, "Did you mean 'bert-tiny'"),
        ({"over": {"mask_rate": [0.1, 7]}}, "mask_rate=7.*up to 1"),
        ({"over": {"n_heads": [2, 3]}}, "n_heads=3.*cannot be divided"),
        ({"over": {"budget": ["3steps", "soon"]}}, "budget 'soon' cannot be read"),
        ({"over": {"learning_rate": ["fast"]}}, "learning_rate must be a number"),
        ({"over": {"seed": [1]}}, "set by the sweep itself"),
        ({"over": {"jobs": [1]}}, "set by the sweep itself"),
        ({"seed": 3}, "--seeds"),
        ({"learning_rat": 0.1}, "Did you mean 'learning_rate'"),
        ({"resume": "run"}, "set by the sweep itself"),
        ({"seeds": 0}, "seeds must be"),
        ({"seeds": [1, 1]}, "seeds must be"),
        ({"jobs": -1}, "jobs must be 0 or more"),
        ({"stop_after": "soon"}, "stop_after 'soon' cannot be read"),
        ({"rows": {"a": {}}}, "row 'a' has no settings"),
        ({"rows": {"a": {"mask_rate": 0.2}}}, "'mask_rate' is varied by --over and is in a row"),
        ({"then": ["evaluate blimp"]}, "pair of a command"),
        ({"then": [("evalute", {"name": "blimp"})]}, "Did you mean 'evaluate'"),
        ({"then": [("evaluate", {"name": "blimp", "data": "nowhere"})]}, "no file or folder nowhere"),
        ({"then": [("evaluate", {})]}, "name"),
        ({"then": [("evaluate", {"name": "blimp", "model": "x"})]}, "'model' of evaluate is set by the sweep"),
        ({"then": [("benchmark", {"suite": "glu", "data": "x"})]}, "Did you mean 'glue'"),
        ({"output": "sweep"}, "NAME.html"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_any_run(
    changes: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    settings = {"output": tmp_path / "s.html", **SETTINGS, "over": OVER, **changes}
    with pytest.raises(PolysemeError, match=message):
        polyseme.sweep("pretrain", corpus, **settings)
    assert list(tmp_path.iterdir()) == []


def test_an_output_in_the_way_is_kept(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "s.tsv").write_text("mine")
    with pytest.raises(OutputError, match=r"s\.tsv is already there"):
        again(corpus, tmp_path / "s.html")
    (tmp_path / "s.tsv").unlink()
    (tmp_path / "s.runs").mkdir()
    (tmp_path / "s.runs" / "mine").touch()
    with pytest.raises(OutputError, match="no unfinished sweep of polyseme"):
        again(corpus, tmp_path / "s.html", force=True)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["mine", "s.runs"]
    with pytest.raises(OptionError, match="Did you mean 'pretrain'"):
        polyseme.sweep("pretain", corpus, output=tmp_path / "t.html")


def test_fine_tunings_have_their_metrics_on_dev(output: Path, tmp_path: Path) -> None:
    lines = [f"{'the dawn broke' if number % 2 else 'bread and beer'} {number}\t{number % 2}" for number in range(60)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    model = next(output.with_suffix(".runs").glob("mask_rate*")) / "run"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        result = polyseme.sweep(
            "finetune", "classify", train=tmp_path / "train.tsv", model=model, epochs=1, device="cpu", jobs=0,
            over={"batch_size": [8, 16]}, output=tmp_path / "s.html",
        )  # fmt: skip
    assert result.figures[0].endswith("on dev")
    report = json.loads((tmp_path / "s.runs" / "batch_size=8,seed=0" / "run" / "report.json").read_text())
    assert report["settings"]["batch_size"] == 8
    name = result.figures[0].removesuffix(" on dev")
    figure = result.runs[0].figures[result.figures[0]]
    assert figure.value == report["seeds"][0]["dev"][name]
    assert figure.error is not None


@pytest.mark.slow
def test_a_sweep_killed_with_sigkill_is_resumed_by_the_same_command(corpus: Path, output: Path, tmp_path: Path) -> None:
    """Its runs are processes, and end with it."""
    settings = {**SETTINGS, "jobs": 2, "budget": "600steps", "checkpoint_every": 5, "over": OVER}
    script = f"import polyseme; polyseme.sweep('pretrain', {str(corpus)!r}, output='s.html', **{settings!r})"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    folder = tmp_path / "s.runs"
    deadline = time.monotonic() + 240
    while not (begun := [each.parents[1] for each in folder.glob("*/run/checkpoints/step-000000[1-9]?")]):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "s.html").exists()
    assert not json.loads((begun[0] / "run.json").read_text())["finished"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=400)
    result = read(tmp_path / "s.html")
    assert [each.state for each in result.runs] == ["finished"] * 2
    assert json.loads((begun[0] / "ledger.json").read_text())["n_sessions"] == 2
    whole = again(corpus, tmp_path / "whole.html", **{**settings, "jobs": 0})
    assert [each.figures for each in result.runs] == [each.figures for each in whole.runs]


@pytest.mark.slow
def test_runs_side_by_side_give_what_they_give_one_after_another(corpus: Path, output: Path, tmp_path: Path) -> None:
    beside = again(corpus, tmp_path / "s.html", jobs=2)
    assert [each.figures["held-out loss"] for each in beside.runs] == [
        each.figures["held-out loss"] for each in read(output).runs if each.seed == 0
    ]
    assert (Path(beside.runs[0].folder) / sweep_run.LOG).exists()
