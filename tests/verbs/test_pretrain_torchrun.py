"""Pretraining by two processes under `torchrun`, of which one is killed; one process alone sees the run through."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.errors import PolysemeWarning
from polyseme.training.effects import read_log

pytestmark = pytest.mark.slow

N_STEPS = 200
SHAPE = {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32}
SETTINGS: dict[str, Any] = {
    "recipe": "bert-tiny",
    "budget": f"{N_STEPS}steps",
    "batch_size": 8,
    "length": 16,
    "shape": SHAPE,
    "device": "cpu",
    "log_every": 1,
    "checkpoint_every": 10,
}
COMMAND = (
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "polyseme"),
    *("pretrain", "--recipe=bert-tiny", f"--budget={N_STEPS}steps", "--batch-size=8", "--length=16", "--device=cpu"),
    *("--log-every=1", "--checkpoint-every=10", *(f"--set={name}={value}" for name, value in SHAPE.items())),
)


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a run that one process makes without a stop."""
    run = tmp_path_factory.mktemp("whole") / "run"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):  # of how little is learned
        polyseme.pretrain(corpus, output=run, **SETTINGS)
    return losses(run)


def losses(run: Path) -> dict[int, float]:
    lines = read_log(run)
    by_step = {line["step"]: line["loss"] for line in lines}
    assert len(by_step) == len(lines), "a step is there twice"
    return by_step


@pytest.mark.parametrize("victim", ["rank 0", "rank 1", "torchrun"])
def test_killed_at_a_random_moment(corpus: Path, whole: dict[int, float], tmp_path: Path, victim: str) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, str(corpus), "-o", str(run)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    at = random.randint(1, N_STEPS * 3 // 4)
    while len(read_log(run)) < at:
        assert process.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = [int(pid) for pid in children if b"pretrain" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(ranks) == 2
    os.kill({"rank 0": ranks[0], "rank 1": ranks[1], "torchrun": process.pid}[victim], signal.SIGKILL)
    assert process.wait(120) != 0
    _wait_until_ended(ranks)
    if victim != "torchrun":  # processes that only torchrun has left may finish the run
        assert not json.loads((run / "run.json").read_text()).get("finished")
    if not json.loads((run / "run.json").read_text()).get("finished"):
        with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
            polyseme.pretrain(resume=run, device="cpu")
    assert losses(run) == pytest.approx(whole, rel=1e-4), f"killed after {at} steps"


def _wait_until_ended(ranks: Sequence[int]) -> None:
    for _ in range(1200):
        if not any(Path(f"/proc/{pid}").exists() for pid in ranks):
            return
        time.sleep(0.1)
    raise AssertionError("the processes go on")
