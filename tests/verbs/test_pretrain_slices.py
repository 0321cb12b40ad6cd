"""A run in slices (`stop_after`) ends as if it had never stopped."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import polyseme
from polyseme.cli import main
from polyseme.errors import OptionError, PolysemeError, PolysemeWarning
from polyseme.training.effects import read_log
from polyseme.training.energy_ledger import Ledger
from polyseme.training.pretraining import Pretraining
from polyseme.training.run_job import PausedRun
from polyseme.training.time_budget import Timing
from training.kills import CARRIED, SETTINGS, losses, weights

RUNS: dict[str, dict[str, Any]] = {
    "masked": {**SETTINGS, "budget": "7steps", "evaluate_every": 3, "checkpoint_every": 4},
    "carried": {**CARRIED, "budget": "5steps", "evaluate_every": 2, "checkpoint_every": 3},
}
AT_ONCE = "0.001s"
"""So short that a slice takes one step."""


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that were never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    for name, settings in RUNS.items():
        with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
            polyseme.pretrain(text, output=folder / name, **settings)
    return {name: folder / name for name in RUNS}


def in_slices(run: Path, first: Any, **settings: Any) -> tuple[list[PausedRun], Ledger]:
    """What the slices returned, and what the last one did."""
    results = [first]
    while isinstance(results[-1], PausedRun):
        results.append(polyseme.pretrain(resume=run, device="cpu", stop_after=AT_ONCE, **settings))
    assert isinstance(results[-1], Ledger)
    return results[:-1], results[-1]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_slices_of_one_step_ends_as_if_it_had_never_stopped(
    name: str, text: Path, whole: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    corpus = whole[name] / "corpus"
    settings = {**RUNS[name], "vocab_size": None}
    paused, bill = in_slices(run, polyseme.pretrain(corpus, output=run, **settings, stop_after=AT_ONCE))
    n_steps = bill.steps
    assert [each.done for each in paused] == list(range(1, n_steps))
    assert losses(run) == losses(whole[name])
    assert weights(run) == weights(whole[name])
    unbroken = json.loads((whole[name] / "ledger.json").read_text())
    assert (bill.pieces, bill.steps, bill.flops) == (unbroken["pieces"], unbroken["steps"], unbroken["flops"])
    assert bill.n_sessions == n_steps
    ledgers = [*(each.ledger for each in paused), bill]
    for before, after in itertools.pairwise(ledgers):
        in_session = after.total_seconds - before.total_seconds
        assert in_session > after.seconds - before.seconds, "what a session sets up and writes is part of it"
    assert json.loads((run / "ledger.json").read_text())["total_seconds"] == bill.total_seconds
    about = json.loads((run / "run.json").read_text())
    assert about["finished"]
    assert about["stopped"] is None


def test_a_slice_writes_its_checkpoint_its_ledger_and_why_it_stopped(whole: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {**RUNS["masked"], "vocab_size": None}
    paused = polyseme.pretrain(whole["masked"] / "corpus", output=run, **settings, stop_after=AT_ONCE)
    assert isinstance(paused, PausedRun)
    assert (paused.folder, paused.done, paused.n_steps, paused.ledger.steps) == (run, 1, 7, 1)
    assert f"polyseme pretrain --resume {run}" in paused.lines()[0]
    about = json.loads((run / "run.json").read_text())
    assert not about["finished"]
    assert "step 1 of 7" in about["stopped"]
    assert json.loads((run / "ledger.json").read_text()) == paused.ledger.to_json()
    assert sorted(each.name for each in (run / "checkpoints").iterdir()) == ["step-00000000", "step-00000001"]
    assert not (run / "model").exists()


def test_checkpoints_of_slices_do_not_push_out_those_that_are_due(
    whole: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With one every 4 steps and two to keep, those of steps 0 and 4 stay beside the one of the slice."""
    run = tmp_path / "run"
    settings = {**RUNS["masked"], "vocab_size": None}
    polyseme.pretrain(whole["masked"] / "corpus", output=run, **settings, stop_after=AT_ONCE)
    with caplog.at_level("INFO"):
        for _ in range(4):
            polyseme.pretrain(resume=run, device="cpu", stop_after=AT_ONCE)
    resumed = [each for each in caplog.messages if each.startswith("Resumed")]
    assert resumed == [f"Resumed: an earlier run had taken {step} of 7 steps." for step in (1, 2, 3, 4)]
    steps = sorted(int(each.name.removeprefix("step-")) for each in (run / "checkpoints").iterdir())
    assert steps == [0, 4, 5]
    polyseme.pretrain(resume=run, device="cpu")
    steps = sorted(int(each.name.removeprefix("step-")) for each in (run / "checkpoints").iterdir())
    assert steps == [4, 7]


def test_a_run_that_is_interrupted_says_where_it_is_and_how_it_is_resumed(
    whole: dict[str, Path], tmp_path: Path
) -> None:
    def interrupt(report: Any) -> None:
        raise KeyboardInterrupt

    settings = {**RUNS["masked"], "vocab_size": None}
    with pytest.raises(KeyboardInterrupt) as stopped:
        polyseme.pretrain(whole["masked"] / "corpus", output=tmp_path / "run", **settings, on_report=interrupt)
    assert stopped.value.__notes__ == [f"The run is kept in {tmp_path / 'run'}: the same command resumes it."]


def test_the_same_command_resumes_a_run_and_a_slice_that_is_long_enough_ends_it(
    whole: dict[str, Path], tmp_path: Path
) -> None:
    run, corpus = tmp_path / "run", whole["masked"] / "corpus"
    settings = {**RUNS["masked"], "vocab_size": None}
    assert isinstance(polyseme.pretrain(corpus, output=run, **settings, stop_after=AT_ONCE), PausedRun)
    bill = polyseme.pretrain(corpus, output=run, **settings, stop_after="1h")
    assert isinstance(bill, Ledger)
    assert (bill.steps, bill.n_sessions) == (7, 2)
    assert weights(run) == weights(whole["masked"])


@pytest.mark.filterwarnings("ignore:.* is enough to read this text:polyseme.errors.PolysemeWarning")
def test_a_slice_does_not_change_the_steps_of_a_budget_of_time(
    whole: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are timed once, in the first slice, which also decides how many evaluations take a tenth of it."""
    timed: list[float] = []
    monkeypatch.setattr(Pretraining, "trial", lambda self, **_: timed.append(1.0) or Timing((100.0,), 30.0))
    run = tmp_path / "run"
    unsaid = dict.fromkeys(("vocab_size", "evaluate_every", "checkpoint_every"))
    settings = {**RUNS["masked"], **unsaid, "budget": "1150s"}
    first = polyseme.pretrain(whole["masked"] / "corpus", output=run, **settings, stop_after=AT_ONCE)
    assert isinstance(first, PausedRun)
    assert first.n_steps == 10
    paused, bill = in_slices(run, first)
    assert {each.n_steps for each in paused} == {10}
    assert bill.steps == 10
    assert timed == [1.0]
    assert [line["step"] for line in read_log(run) if "held_out" in line] == [4, 8, 10]


def test_set_up_counts_from_when_the_command_began(whole: dict[str, Path], tmp_path: Path) -> None:
    """A command that began an hour ago has no time left for more than one step."""
    settings = {**RUNS["masked"], "vocab_size": None}
    paused = polyseme.pretrain(
        whole["masked"] / "corpus",
        output=tmp_path / "run",
        **settings,
        stop_after="30min",
        started=time.perf_counter() - 3600,
    )
    assert isinstance(paused, PausedRun)
    assert paused.ledger.total_seconds > 3600


def test_a_run_that_diverges_is_stopped_in_whichever_slice(whole: dict[str, Path], tmp_path: Path) -> None:
    """What the loss was at first is known to later slices, too."""
    settings = {**RUNS["masked"], "vocab_size": None, "budget": "40steps", "learning_rate": 3.0, "warmup": 0}
    messages = []
    for name, slices in (("whole", {}), ("cut", {"stop_after": AT_ONCE})):
        with pytest.raises(PolysemeError, match="does not come down") as error:  # noqa: PT012
            result = polyseme.pretrain(whole["masked"] / "corpus", output=tmp_path / name, **settings, **slices)
            while isinstance(result, PausedRun):
                result = polyseme.pretrain(resume=tmp_path / name, device="cpu", **slices)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_the_command_line_says_how_to_resume(whole: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--budget=6steps", "--batch-size=8", "--length=16", "--device=cpu", "--log-every=1"]
    options += [f"--set={name}={value}" for name, value in RUNS["masked"]["shape"].items()]
    corpus = str(whole["masked"] / "corpus")
    done = CliRunner().invoke(main, ["pretrain", corpus, "-o", str(run), *options, "--stop-after", AT_ONCE])
    assert done.exit_code == 0, done.output
    assert "step 1 of 6" in done.output
    assert f"polyseme pretrain --resume {run}" in done.output
    done = CliRunner().invoke(main, ["pretrain", "--resume", str(run), "--device=cpu", "--stop-after=9min"])
    assert done.exit_code == 0, done.output
    assert "6 steps" in done.output
    assert "in 2 sessions" in done.output
    assert [line["step"] for line in read_log(run)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_two_processes_stop_after_the_same_step(whole: dict[str, Path], tmp_path: Path) -> None:
    """And end where two that were never stopped end; a process that stopped elsewhere would wait for ever."""
    options = ["--budget=5steps", "--batch-size=8", "--length=16", "--device=cpu", "--log-every=1"]
    options += [f"--set={name}={value}" for name, value in RUNS["masked"]["shape"].items()]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "polyseme"]

    def pretrain(run: Path, *more: str) -> str:
        done = subprocess.run(
            [*command, "pretrain", str(whole["masked"] / "corpus"), "-o", str(run), *options, *more],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stderr

    assert "step 1 of 5" in pretrain(tmp_path / "cut", "--stop-after", AT_ONCE)
    assert "step 2 of 5" in pretrain(tmp_path / "cut", "--stop-after", AT_ONCE)
    pretrain(tmp_path / "cut", "--stop-after", "1h")
    pretrain(tmp_path / "whole")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop_after": "soon"}, "stop_after 'soon' cannot be read.*9min"),
        ({"stop_after": "0s"}, "stop_after '0s' cannot be read"),
        ({"stop_after": "100steps"}, "stop_after must be a time.*100steps"),
        ({"stop_after": "9min", "dry_run": True}, "dry run.*stop_after"),
    ],
    ids=["word", "nothing", "steps", "dry"],
)
def test_a_slice_that_cannot_be_is_refused(
    changes: dict[str, Any], message: str, whole: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=message):
        polyseme.pretrain(
            whole["masked"] / "corpus", output=tmp_path / "run", **{**RUNS["masked"], "vocab_size": None, **changes}
        )
    assert not (tmp_path / "run").exists()


def test_a_slice_of_a_resumed_run_that_cannot_be_is_refused(whole: dict[str, Path]) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        polyseme.pretrain(resume=whole["masked"], stop_after="soon")
