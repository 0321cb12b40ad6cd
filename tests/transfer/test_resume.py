"""A killed fine-tuning goes on and ends as if it had never stopped."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import polyseme
from damage import flip_bit
from forked import run_forked
from polyseme.errors import OutputError, PolysemeWarning
from polyseme.transfer.train_seed import StepReport
from tiny_models import tiny_model
from transfer.small_tasks import small_task

SETTINGS: dict[str, Any] = {"seeds": 2, "epochs": 3, "batch_size": 16, "learning_rate": 3e-3, "device": "cpu"}
PARENT = """
import json, os, signal, sys
from polyseme import finetune
from polyseme.transfer import train_seed as learning
from transfer.small_tasks import small_task

def run(output, kill_at, settings):
    steps = 0
    take = learning.PlainSteps.__call__

    def counted(self, *arguments):
        nonlocal steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        take(self, *arguments)

    learning.PlainSteps.__call__ = counted
    finetune(small_task("classify", n_train=48, n_dev=16), model=sys.argv[1], output=output, **settings)

codes = []
for output, kill_at in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        run(output, kill_at, {"checkpoint_seconds": 0.0, **json.loads(sys.argv[3])})
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


@pytest.mark.parametrize(
    "how", ["tuned", *(pytest.param(how, marks=pytest.mark.slow) for how in ("frozen", "written"))]
)
def test_killed_and_gone_on_with(how: str, tmp_path: Path) -> None:
    """Nine steps a seed: killed within the first seed, then, gone on with, within the second."""
    model, whole, killed = tmp_path / "model", tmp_path / "whole", tmp_path / "killed"
    tiny_model("t5" if how == "written" else "bert", dropout_rate=0.1).save(model)
    plan = [[str(whole), 0], [str(killed), 8], [str(killed), 6], [str(killed), 0]]
    settings = {**SETTINGS, "frozen": how == "frozen"}
    ended = run_forked(PARENT, str(model), json.dumps(plan), json.dumps(settings))
    assert json.loads(ended.stdout) == [0, -signal.SIGKILL, -signal.SIGKILL, 0]
    assert not (tmp_path / "killed.unfinished").exists()
    for name in ("model.safetensors", "head.safetensors"):
        one, other = load_file(whole / name), load_file(killed / name)
        assert one.keys() == other.keys()
        assert all((one[key] == other[key]).all() for key in one)
    reports = [json.loads((folder / "report.json").read_text()) for folder in (whole, killed)]
    for mine, theirs in zip(*(report["seeds"] for report in reports), strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
    for name in ("steps", "pieces", "flops"):
        assert reports[1]["ledger"][name] == reports[0]["ledger"][name] > 0


def test_stopped_work_is_only_gone_on_with_as_it_was_begun(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = tmp_path / "model"
    data = small_task("classify", n_train=48, n_dev=16)

    def stop(told: StepReport) -> None:
        if told.seed == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        polyseme.finetune(data, model=tiny_model("bert"), output=output, on_report=stop, **SETTINGS)
    assert "kept in" in stopped.value.__notes__[0]
    assert (tmp_path / "model.unfinished" / "seed-0" / "result.json").is_file()
    assert not output.exists()
    with pytest.raises(OutputError, match=r"rate was 0\.003 and is 1\.0"):
        polyseme.finetune(data, model=tiny_model("bert"), output=output, **{**SETTINGS, "learning_rate": 1.0})
    trained: set[int] = set()
    going_on: dict[str, Any] = {"output": output, "on_report": lambda told: trained.add(told.seed), **SETTINGS}
    shutil.copytree(tmp_path / "model.unfinished", tmp_path / "spoilt.unfinished")
    (tmp_path / "spoilt.unfinished" / "seed-0" / "result.json").write_text("{")
    with pytest.warns(PolysemeWarning, match="seed 0 .* is damaged .* it is trained again"):
        polyseme.finetune(data, model=tiny_model("bert"), **{**going_on, "output": tmp_path / "spoilt"})
    assert trained == {0, 1}
    shutil.copytree(tmp_path / "model.unfinished", tmp_path / "noise.unfinished")
    flip_bit(tmp_path / "noise.unfinished" / "seed-0" / "weights" / "model.safetensors", 0.9)
    with pytest.warns(PolysemeWarning, match=r"seed 0 .* is damaged \(model.safetensors .* it is trained again"):
        polyseme.finetune(data, model=tiny_model("bert"), **{**going_on, "output": tmp_path / "noise"})
    trained.clear()
    with caplog.at_level("INFO"):
        report = polyseme.finetune(data, model=tiny_model("bert"), **going_on)
    assert "Resumed: an earlier run had trained seed 0." in caplog.messages
    assert trained == {1}
    assert report.ledger.steps == 18
    with pytest.raises(OutputError, match="already there"):
        polyseme.finetune(data, model=tiny_model("bert"), output=output, **SETTINGS)
