"""A recorded step is the plain step over tensors that stay where they are.

Without a GPU nothing can be recorded. What a recording needs is tested all the same, with a recorder that runs the step
again (`run_again.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyseme.errors import PolysemeWarning
from polyseme.training.device_group import Devices
from polyseme.training.optimizers import (
    OptimizerKind,
    OptimizerSettings,
    build_optimizer,
    can_be_recorded,
    prepare_for_recording,
    set_rate,
)
from polyseme.training.recorded_step import CudaRecorder
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Plan, TrainingSettings
from training import small
from training.run_again import RunAgain

NAMES = ("masked", "causal", "replaced")
N_STEPS = 12
DROPOUT = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "embedding_dropout_rate": 0.1}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def plain_trainer(name: str, training: TrainingSettings) -> Trainer:
    """One whose rates are tensors too, so that numbers are rounded alike."""
    trainer = small.trainer_for(name, training, **DROPOUT)
    prepare_for_recording(trainer.optimizer, torch.device("cpu"))
    return trainer


def recorded_trainer(name: str, training: TrainingSettings, recorder: Any) -> Trainer:
    trainer = small.trainer_for(name, training, **DROPOUT)
    trainer.record_steps(recorder)
    return trainer


@contextmanager
def warned(match: str) -> Iterator[None]:
    """Exactly once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    told = [str(each.message) for each in caught if issubclass(each.category, PolysemeWarning)]
    assert len(told) == 1
    assert match in told[0]


def means_of(trainer: Trainer, plan: Plan, first: int, last: int) -> list[dict[str, float]]:
    """What each step lost, looked at after the last one."""
    steps = small.loader_for(trainer, plan).steps(first, last, workers=0)
    means = [trainer.step(rows, plan) for rows in steps]
    return [{name: float(mean) for name, mean in each.items()} for each in means]


@pytest.mark.parametrize(
    ("name", "kind"), [("masked", "adamw"), ("replaced", "adamw"), ("masked", "adamw-uncorrected")]
)
def test_recorded_steps_are_the_plain_ones_in_every_phase(name: str, kind: OptimizerKind) -> None:
    training = small.settings(optimizer=OptimizerSettings(kind=kind, lr=1e-2))
    plan, recorder = Plan(training, N_STEPS), RunAgain()
    plain, recorded = plain_trainer(name, training), recorded_trainer(name, training, recorder)
    assert means_of(recorded, plan, 0, N_STEPS) == means_of(plain, plan, 0, N_STEPS)
    assert recorder.n_recorded == len(training.phases)
    for key, each in plain.tensors().items():
        assert torch.equal(each, recorded.tensors()[key]), key


def test_what_is_restored_is_recorded_anew() -> None:
    training = small.settings()
    plan, recorder = Plan(training, N_STEPS), RunAgain()
    expected = means_of(plain_trainer("masked", training), plan, 0, N_STEPS)
    trainer = recorded_trainer("masked", training, recorder)
    fresh = {key: each.clone() for key, each in trainer.tensors().items()}
    begun = means_of(trainer, plan, 0, 5)
    kept = {key: each.clone() for key, each in trainer.tensors().items()}
    means_of(trainer, plan, 5, 8)
    trainer.put(kept)
    assert begun + means_of(trainer, plan, 5, N_STEPS) == expected
    trainer.put(fresh)
    assert means_of(trainer, plan, 0, N_STEPS) == expected
    assert recorder.n_forgotten == 2


def test_evaluating_between_recorded_steps_changes_nothing() -> None:
    training = small.settings()
    plan = Plan(training, N_STEPS)
    trainer = recorded_trainer("masked", training, RunAgain())
    losses = []
    for step in range(N_STEPS):
        losses += means_of(trainer, plan, step, step + 1)
        trainer.evaluate([small.loader_for(trainer, plan).make(0)])
    assert losses == means_of(plain_trainer("masked", training), plan, 0, N_STEPS)


@pytest.mark.parametrize("trouble", ["fails", "waits"])
def test_what_cannot_be_recorded_is_told_once_and_goes_on_plainly(trouble: str) -> None:
    training = small.settings()
    plan, recorder = Plan(training, N_STEPS), RunAgain(**{trouble: "softmaxes.py, line 7"})  # type: ignore[arg-type]
    trainer = recorded_trainer("masked", training, recorder)
    with warned("softmaxes.py, line 7"):
        losses = means_of(trainer, plan, 0, N_STEPS)
    assert losses == means_of(plain_trainer("masked", training), plan, 0, N_STEPS)
    assert recorder.n_recorded == (trouble == "fails")


def test_recording_is_for_one_gpu_and_optimizers_that_stay_there() -> None:
    assert small.trainer_for("masked", small.settings(record=True)).recorded is None
    alone = small.trainer_for("masked", small.settings())
    assert alone.can_record()
    alone.devices = Devices(torch.device("cpu"), 0, 2)
    assert not alone.can_record()
    for kind in ("adagrad", "sgd"):
        optimizer = build_optimizer(nn.Linear(3, 3), OptimizerSettings(kind=kind), device="cpu")  # type: ignore[arg-type]
        assert not can_be_recorded(optimizer)


@pytest.mark.parametrize("kind", ["adamw", "adamw-uncorrected"])
def test_a_rate_on_the_device_is_the_same_rate(kind: OptimizerKind) -> None:
    nets = [nn.Linear(5, 4).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [
        build_optimizer(each, OptimizerSettings(kind=kind, lr=0.25, weight_decay=0.5), device="cpu") for each in nets
    ]
    prepare_for_recording(optimizers[1], torch.device("cpu"))
    for step in range(4):
        for net, optimizer in zip(nets, optimizers, strict=True):
            for parameter in net.parameters():
                parameter.grad = torch.sin(torch.arange(parameter.numel()) + step).double().view_as(parameter)
            set_rate(optimizer, 1 / (1 + step % 2))  # rates that single precision has
            optimizer.step()
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("micro_batch_size", [8, 4])
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_replays_the_plain_steps(name: str, micro_batch_size: int) -> None:
    training = small.settings(record=True)
    devices, plan = Devices(torch.device("cuda", 0)), Plan(training, N_STEPS)
    found = []
    for record in (True, False):
        trainer = small.trainer_for(name, training, devices, **DROPOUT)
        if not record:
            trainer.recorded = None
        steps = small.loader_for(trainer, plan, micro_batch_size).steps(0, N_STEPS, workers=2)
        found.append(([trainer.step(rows, plan) for rows in steps], trainer))
    recorded = found[0][1].recorded
    assert recorded is not None
    assert len(recorded.recorded) == len(training.phases)
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for part, mean in one.items():
            torch.testing.assert_close(mean, other[part], rtol=1e-4, atol=1e-5)
    for key, each in found[1][1].tensors().items():
        torch.testing.assert_close(found[0][1].tensors()[key], each, rtol=1e-3, atol=1e-4, msg=key)


@needs_gpu
def test_a_gpu_goes_on_after_a_recording_that_fails() -> None:
    recorder = CudaRecorder(torch.device("cuda", 0))
    weights = torch.ones(8, device="cuda")

    def run() -> Tensor:
        dropped = nn.functional.dropout(weights, 0.5)
        if float(dropped.sum()) < 0:  # waits
            raise AssertionError
        return dropped

    torch.manual_seed(1)
    expected, where = recorder.waits(run)
    assert where is not None
    assert "test_recorded_step.py" in where
    torch.manual_seed(1)
    with pytest.raises(RuntimeError):
        recorder.record(run)
    assert torch.equal(recorder.plain(run), expected)
    torch.manual_seed(1)
    assert torch.equal(run(), expected)
