"""What happens beside the loop."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from polyseme.training.checkpoint import read_latest
from polyseme.training.effects import (
    CHECKPOINTS,
    LOG,
    Log,
    Report,
    ReportProgress,
    StepState,
    WriteCheckpoints,
    due,
    read_log,
    truncate_log,
)
from polyseme.training.loop import train
from polyseme.training.training_settings import Plan
from training import small


def moment(done: int, loss: float, *, n_steps: int = 100, trainer: Any = None) -> StepState:
    """A moment of a run of the masked objective."""
    return StepState(
        done=done,
        n_steps=n_steps,
        means={"masked": torch.tensor(loss, dtype=torch.float64)},
        learning_rate=1e-3,
        pieces=128 * done,
        seconds=2.0 * done,
        waited=0.1 * done,
        seconds_before=0.0,
        trainer=trainer or small.trainer_for("masked", small.settings()),
    )


def test_the_first_the_last_and_every_so_many_steps_are_due() -> None:
    assert [done for done in range(1, 101) if due(moment(done, 1.0), 40)] == [1, 40, 80, 100]


def test_the_log_has_a_line_a_logged_step(tmp_path: Path) -> None:
    log = Log(tmp_path, 10)
    for done in range(1, 21):
        log(moment(done, 5.0))
    lines = read_log(tmp_path)
    assert [line["step"] for line in lines] == [1, 10, 20]
    assert lines[1] == {
        "step": 10,
        "loss": 5.0,
        "masked": 5.0,
        "pieces": 1280,
        "seconds": 20.0,
        "lr": 1e-3,
        "wait": 0.05,
    }


def test_a_line_cut_short_is_left_out_and_what_is_done_again_forgotten(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "loss": 1.0}) for step in (1, 2, 3)]
    (tmp_path / LOG).write_text("\n".join([*lines, '{"step": 4, "lo']))
    truncate_log(tmp_path, 2)
    assert [line["step"] for line in read_log(tmp_path)] == [1, 2]
    assert (tmp_path / LOG).read_text().endswith("}\n")


def test_weights_that_are_no_numbers_are_not_kept(tmp_path: Path) -> None:
    trainer = small.trainer_for("masked", small.settings())
    keep = WriteCheckpoints(tmp_path, 1, 100, lambda done, seconds: {"seconds": seconds}, keep=2, shard_size=None)
    keep(moment(1, 1.0, trainer=trainer))
    next(trainer.inner.parameters()).data.view(-1)[0] = math.nan
    keep(moment(2, 1.0, trainer=trainer))
    found = read_latest(tmp_path / CHECKPOINTS)
    assert found is not None
    assert found.step == 1


def test_reports_say_how_fast_and_how_long() -> None:
    reports: list[Report] = []
    tell = ReportProgress(reports.append, 10)
    for done in range(1, 31):
        tell(moment(done, 2.0))
    assert [report.done for report in reports] == [1, 10, 20, 30]
    assert reports[-1].pieces_per_second == pytest.approx(64.0)
    assert reports[-1].seconds_left == pytest.approx(140.0)
    assert reports[-1].perplexity == pytest.approx(math.e**2)


def test_the_loop_tells_each_effect_of_each_step() -> None:
    training = small.settings()
    plan = Plan(training, 5)
    trainer = small.trainer_for("masked", training)
    seen: list[tuple[int, int, float]] = []
    trained = train(
        trainer,
        small.loader_for(trainer, plan),
        plan,
        [lambda moment: seen.append((moment.done, moment.pieces, moment.loss))],
        first=2,
        seconds=10.0,
    )
    assert [done for done, _, _ in seen] == [3, 4, 5]
    assert [pieces for _, pieces, _ in seen] == [plan.pieces_until(done) for done in (3, 4, 5)]
    assert all(math.isfinite(loss) for _, _, loss in seen)
    assert trained.done == 5
    assert trained.seconds > 10.0
