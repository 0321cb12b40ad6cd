"""A budget of time is all in, holds where the trial was wrong, and a run that it corrected is resumed exactly."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

import polyseme
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.parts.device import cpu_threads
from polyseme.training import run_job
from polyseme.training.energy_ledger import Ledger
from polyseme.training.loop import Trained, train
from polyseme.training.pretraining import TRIAL_SECONDS, TRIAL_SHARE, Pretraining
from polyseme.training.run_job import PausedRun
from polyseme.training.time_budget import CHECKS, Timing
from polyseme.training.trainer import Trainer
from training.kills import SETTINGS, losses, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:After .* learned nothing:polyseme.errors.PolysemeWarning"),
    pytest.mark.filterwarnings("ignore:.* is enough to read this text:polyseme.errors.PolysemeWarning"),
    pytest.mark.filterwarnings("ignore:The held-out loss was lowest:polyseme.errors.PolysemeWarning"),
]
"""The text is short, and of words in a random order: there is nothing to learn from context, and a fast machine takes
so many steps within its time that the text is memorized.
"""
SMALL: dict[str, Any] = {**SETTINGS, "vocab_size": None, "evaluate_every": None, "checkpoint_every": 40}
BUDGET = "2.5s"
"""Of training: what the first step of a process loads is loaded before, by `import torch._dynamo`."""


def about(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "run.json").read_text())
    return content


def count_cpu_time(patch: pytest.MonkeyPatch) -> None:
    """Seconds are then those of this process alone, so that other work on the machine does not use up a budget."""
    patch.setattr(time, "perf_counter", time.process_time)


@pytest.fixture(scope="module")
def hurried(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose trial took steps to be much faster than they are."""
    run = tmp_path_factory.mktemp("runs") / "hurried"
    with pytest.MonkeyPatch.context() as patch:
        count_cpu_time(patch)
        patch.setattr(Pretraining, "trial", lambda self, **_: Timing((0.0004,), 0.0))
        polyseme.pretrain(corpus, output=run, **{**SMALL, "budget": BUDGET})
    return run


def test_a_budget_holds_where_the_trial_was_wrong(hurried: Path) -> None:
    run = about(hurried)
    first, *later = run["corrections"]
    assert first["planned"] > 4 * run["n_steps"], "a step takes more than 2 ms anywhere"
    assert first["step"] <= CHECKS[0] * first["planned"] + 1
    assert first["slowdown"] > 4
    assert 2 <= len(later) < len(CHECKS)
    assert all(first["step"] < each["step"] < run["n_steps"] for each in later)
    ledger = Ledger.from_json(json.loads((hurried / "ledger.json").read_text()))
    assert ledger.steps == run["n_steps"]
    assert ledger.total_seconds < 8, "and not many times as long"


@pytest.mark.parametrize("before", [True, False], ids=["before-it", "after-it"])
def test_a_corrected_run_that_is_killed_ends_as_if_it_had_not(before: bool, hurried: Path, tmp_path: Path) -> None:
    run = about(hurried)
    cut = tmp_path / "cut"
    shutil.copytree(hurried, cut)
    shutil.rmtree(cut / "model")
    whole = [losses(hurried), weights(hurried)]
    last = sorted((cut / "checkpoints").iterdir())[-1]
    shutil.rmtree(last)
    if before:  # as if none but the first had been written
        for path in (cut / "checkpoints").iterdir():
            shutil.rmtree(path)
    (cut / "run.json").write_text(json.dumps({**run, "finished": False}))
    polyseme.pretrain(resume=cut, device="cpu")
    assert [losses(cut), weights(cut)] == whole
    assert about(cut)["n_steps"] == run["n_steps"]
    assert about(cut)["corrections"] == run["corrections"]


def test_a_run_that_stops_before_its_correction_is_corrected_later(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the steps of the slice that gets there, and by what all slices together have left."""
    count_cpu_time(monkeypatch)
    monkeypatch.setattr(Pretraining, "trial", lambda self, **_: Timing((0.0004,), 0.0))
    paused = polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, "budget": BUDGET}, stop_after="0.001s")
    assert isinstance(paused, PausedRun)
    assert about(tmp_path / "run")["corrections"] == []
    bill = polyseme.pretrain(resume=tmp_path / "run", device="cpu")
    assert isinstance(bill, Ledger)
    assert about(tmp_path / "run")["corrections"][0]["planned"] == paused.n_steps
    assert about(tmp_path / "run")["n_steps"] == bill.steps < paused.n_steps / 4
    assert bill.total_seconds < 8


@pytest.mark.parametrize("alone", [0.001, 0.01], ids=["one-thread-is-faster", "all-are-faster"])
def test_a_cpu_trains_with_one_thread_where_that_is_faster(
    alone: float, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes then all do, and torch has as many as before afterwards."""
    used = set()

    def step(self: Pretraining, *arguments: Any) -> float:
        return 0.005 if torch.get_num_threads() == 2 else alone

    def loop(*arguments: Any, **options: Any) -> Trained:
        used.add(torch.get_num_threads())
        return train(*arguments, **options)

    monkeypatch.setattr(Pretraining, "_mean_step", step)
    monkeypatch.setattr(Trainer, "n_warmups", 0)  # on a busy machine a slow one would be the measure
    monkeypatch.setattr(run_job, "train", loop)
    with cpu_threads(2):
        polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, "budget": "5min"}, stop_after="0.001s")
        polyseme.pretrain(resume=tmp_path / "run", device="cpu", stop_after="0.001s")
        assert torch.get_num_threads() == 2
    chosen = 1 if alone < 0.005 else None
    assert used == {chosen or 2}
    timing = about(tmp_path / "run")["timing"]
    assert timing["threads"] == chosen
    assert timing["steps"] == [min(alone, 0.005)]


def test_a_budget_counts_from_the_start_of_the_command(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pretraining, "trial", lambda self, **_: Timing((10.0,), 0.0))
    settings = {**SMALL, "budget": "30min"}
    polyseme.pretrain(corpus, output=tmp_path / "run", **settings, started=time.perf_counter() - 600, stop_after="1s")
    assert 117 <= about(tmp_path / "run")["n_steps"] <= 119


def test_steps_are_timed_for_a_small_share_of_a_short_budget(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def trial(_: Pretraining, *, seconds: float, **__: float) -> Timing:
        asked.append(seconds)
        return Timing((0.1,), 0.0)

    monkeypatch.setattr(Pretraining, "trial", trial)
    settings = {**SMALL, "budget": "2min"}
    polyseme.pretrain(corpus, output=tmp_path / "run", **settings, started=time.perf_counter() - 40, stop_after="1s")
    assert 0 < asked[0] <= TRIAL_SHARE * 80 < TRIAL_SECONDS


def test_a_budget_that_the_corpus_used_up_is_refused_and_the_run_resumed_with_all_of_it(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pretraining, "trial", lambda self, **_: Timing((10.0,), 0.0))
    settings = {**SMALL, "vocab_size": 300, "budget": "30min"}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning), pytest.raises(OptionError) as error:
        polyseme.pretrain(text, output=tmp_path / "run", **settings, started=time.perf_counter() - 3600)
    assert "the corpus took 60.0 min of the budget of 30min" in str(error.value)
    assert f"--resume {tmp_path / 'run'}" in str(error.value)
    polyseme.pretrain(resume=tmp_path / "run", device="cpu", stop_after="1s")
    assert about(tmp_path / "run")["n_steps"] > 170
