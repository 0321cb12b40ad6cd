"""Several processes take the steps that one would."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polyseme.training.training_settings import Plan
from training import small
from training.processes import on_processes

RUNS = ("replaced-ddp-fp64", "masked-fsdp-fp64", "causal-ddp-fp32")


@pytest.fixture(scope="module")
def on_two_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes joined by gloo come to, by run; they are started once."""
    folder = tmp_path_factory.mktemp("two")
    on_processes(2, "training.small", str(folder), *RUNS)
    return {run: torch.load(folder / f"{run}.pt") for run in RUNS}


@pytest.mark.parametrize("run", RUNS)
def test_two_processes_equal_one(run: str, on_two_processes: dict[str, Any]) -> None:
    name, _, dtype = run.split("-")
    both = on_two_processes[run]
    training = small.settings(dtype=dtype)
    alone = small.trainer_for(name, training)
    alone.average_weights(small.DECAY)
    losses = small.losses_of(alone, Plan(training, 20), 0, 20)

    bound = 1e-10 if dtype == "fp64" else 1e-5
    for mine, theirs in zip(losses, both["losses"], strict=True):
        assert mine.keys() == theirs.keys()
        assert all(abs(mine[part] - theirs[part]) <= bound * abs(mine[part]) for part in mine)
    if dtype == "fp64":
        tensors = alone.tensors()
        assert tensors.keys() == both["tensors"].keys()
        largest = max(float(each.abs().max()) for each in tensors.values())
        for key, mine in tensors.items():
            torch.testing.assert_close(both["tensors"][key], mine, rtol=0, atol=1e-10 * largest, msg=key)
        with alone.averaged():
            averaged = alone.evaluate([small.loader_for(alone, Plan(training, 20)).make(0)])
        assert both["averaged"] == pytest.approx(averaged, rel=1e-9)
        assert both["averaged"] != pytest.approx(both["held"], rel=1e-6)


def test_a_checkpoint_of_two_processes_is_gone_on_with_by_one(on_two_processes: dict[str, Any]) -> None:
    both = on_two_processes["masked-fsdp-fp64"]
    training = small.settings(dtype="fp64")
    plan = Plan(training, 25)
    alone, whole = (small.trainer_for("masked", training) for _ in range(2))
    for trainer in (alone, whole):
        trainer.average_weights(small.DECAY)
    alone.put(both["tensors"])
    small.losses_of(whole, Plan(training, 20), 0, 20)
    for mine, theirs in zip(small.losses_of(alone, plan, 20, 25), small.losses_of(whole, plan, 20, 25), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)
    for name, mine in alone.saved_weights().items():
        torch.testing.assert_close(mine, whole.saved_weights()[name], rtol=1e-7, atol=1e-9, msg=name)
