"""A step is a function of the weights, the optimizer's state and the step's number."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compilers import nop
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polyseme.errors import PolysemeWarning
from polyseme.training.device_group import Devices, report_damaged_cache
from polyseme.training.pretraining import fitting_micro_batch
from polyseme.training.training_settings import Plan
from training import small

NAMES = ("masked", "causal", "replaced")
N_STEPS = 8


@pytest.mark.parametrize("name", NAMES)
def test_going_on_from_what_was_kept_takes_the_very_steps(name: str) -> None:
    training = small.settings()
    plan = Plan(training, N_STEPS)
    shape = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "embedding_dropout_rate": 0.1}
    whole = small.trainer_for(name, training, **shape)
    losses = small.losses_of(whole, plan, 0, N_STEPS)

    first = small.trainer_for(name, training, **shape)
    begun = small.losses_of(first, plan, 0, 3)
    kept = {key: each.clone() for key, each in first.tensors().items()}
    second = small.trainer_for(name, training.replace(seed=0), **shape)
    small.losses_of(second, plan, 0, 1)
    second.put(kept)
    assert begun + small.losses_of(second, plan, 3, N_STEPS) == losses
    for key, each in whole.tensors().items():
        assert torch.equal(each, second.tensors()[key]), key


@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_workers_gives_the_same_steps(workers: int) -> None:
    training = small.settings()
    plan = Plan(training, N_STEPS)
    alone = small.losses_of(small.trainer_for("masked", training), plan, 0, N_STEPS)
    assert small.losses_of(small.trainer_for("masked", training), plan, 0, N_STEPS, workers=workers) == alone


@pytest.mark.parametrize("name", NAMES)
def test_passes_add_up_to_the_step(name: str) -> None:
    training = small.settings(dtype="fp64")
    plan = Plan(training, 4)
    found = []
    for micro_batch_size in (8, 2):
        trainer = small.trainer_for(name, training)
        steps = small.loader_for(trainer, plan, micro_batch_size).steps(0, 4, workers=0)
        losses = [{part: float(mean) for part, mean in trainer.step(rows, plan).items()} for rows in steps]
        found.append((losses, trainer.tensors()))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    for key, each in found[0][1].items():
        torch.testing.assert_close(found[1][1][key], each, rtol=1e-8, atol=1e-10, msg=key)


def test_compiled_steps_equal_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_plainly = torch.compile
    monkeypatch.setattr(torch, "compile", lambda nets, **options: compile_plainly(nets, backend="aot_eager", **options))
    plan = Plan(small.settings(), 3)
    plain = small.losses_of(small.trainer_for("masked", small.settings(), n_layers=1), plan, 0, 3)
    compiled = small.losses_of(small.trainer_for("masked", small.settings(compile=True), n_layers=1), plan, 0, 3)
    for one, other in zip(plain, compiled, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("half", ["forward", "backward"])
def test_steps_that_cannot_be_compiled_are_taken_plainly(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("no compiler")

    of_half = aot_autograd(**{"fw_compiler": nop, "bw_compiler": nop, f"{half[0]}w_compiler": broken})
    compile_plainly = torch.compile
    monkeypatch.setattr(torch, "compile", lambda nets, **options: compile_plainly(nets, backend=of_half, **options))
    plan, shape = Plan(small.settings(), 3), {"n_layers": 1, "dropout_rate": 0.1}
    plain = small.losses_of(small.trainer_for("masked", small.settings(), **shape), plan, 0, 3)
    trainer = small.trainer_for("masked", small.settings(compile=True), **shape)
    with pytest.warns(PolysemeWarning, match="without being compiled, more slowly: .*no compiler") as warned:
        losses = small.losses_of(trainer, plan, 0, 3)
    assert losses == plain
    assert len(warned) == 1


def test_a_damaged_cache_of_the_compiler_is_reported_once_without_a_traceback() -> None:
    """torch logs it, and compiles again."""
    usual = logging.makeLogRecord({"msg": "compiled"})
    fault = logging.makeLogRecord({"exc_info": (EOFError, EOFError("truncated"), None)})
    with pytest.warns(PolysemeWarning, match=r"cache is damaged \(EOFError\)") as warned:
        assert [report_damaged_cache(each) for each in (usual, fault, fault)] == [True, False, False]
    assert len(warned) == 1


def test_bf16_steps_are_near_fp32_ones() -> None:
    plan = Plan(small.settings(), 4)
    exact = small.losses_of(small.trainer_for("masked", small.settings()), plan, 0, 4)
    near = small.losses_of(small.trainer_for("masked", small.settings(dtype="bf16")), plan, 0, 4)
    assert near != exact
    for one, other in zip(exact, near, strict=True):
        assert one["masked"] == pytest.approx(other["masked"], rel=2e-2)


def test_gradients_are_clipped_together() -> None:
    training = small.settings(
        max_grad_norm=1e-6, optimizer=small.settings().optimizer.replace(kind="sgd", momentum=0.0)
    )
    trainer = small.trainer_for("masked", training)
    before = {name: each.detach().clone() for name, each in trainer.inner.named_parameters()}
    small.losses_of(trainer, Plan(training, 2), 0, 1)
    decay = training.optimizer.lr * training.optimizer.weight_decay
    moved = sum(float((each.detach() - before[name]).square().sum()) for name, each in trainer.inner.named_parameters())
    assert 0 < moved**0.5 <= training.optimizer.lr * 1e-6 * 1.01 + decay * 50


def test_phases_change_the_rows_and_count_the_pieces() -> None:
    training = small.settings()
    plan = Plan(training, 5)
    assert [plan.at(step) for step in range(5)] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert plan.pieces_until(0) == 0
    assert plan.pieces_until(3) == 8 * (16 + 16 + 24)
    assert plan.pieces_until(5) == 8 * (16 + 16 + 24 * 3)


def test_evaluating_changes_nothing() -> None:
    training = small.settings()
    plan = Plan(training, 4)
    trainer = small.trainer_for("masked", training)
    loader = small.loader_for(trainer, plan)
    first = trainer.evaluate([loader.make(0)])
    assert trainer.evaluate([loader.make(0)]) == first
    assert trainer.inner.training
    expected = small.losses_of(small.trainer_for("masked", training), plan, 0, 4)
    assert small.losses_of(trainer, plan, 0, 4) == expected


# --- MPS, by what it lacks --------------------------------------------------------------------------------------------

MPS = Devices(torch.device("mps"))


class WithoutFloat64(TorchDispatchMode):
    """Refuses what MPS refuses."""

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = operator(*arguments, **(options or {}))
        if any(isinstance(each, torch.Tensor) and each.dtype == torch.float64 for each in tree_leaves(result)):
            raise TypeError(f"{operator}: the MPS framework doesn't support float64")
        return result


def test_an_mps_device_runs_as_many_rows_at_once_as_a_cpu() -> None:
    [phase, _] = small.settings().phases
    assert fitting_micro_batch(phase, 2**16, None, MPS) == 2
    assert fitting_micro_batch(phase, 2**16, None, Devices(torch.device("cpu"))) == 2


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_evaluations_need_no_float64_on_mps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(small.settings(), 2)
    trainer = small.trainer_for(name, small.settings(), n_layers=1)
    expected = trainer.evaluate(small.loader_for(trainer, plan).steps(0, 2, workers=0))
    with WithoutFloat64(), pytest.raises(TypeError, match="float64"):
        trainer.evaluate(small.loader_for(trainer, plan).steps(0, 1, workers=0))
    monkeypatch.setattr(Devices, "sum_dtype", MPS.sum_dtype)
    with WithoutFloat64():
        assert trainer.evaluate(small.loader_for(trainer, plan).steps(0, 2, workers=0)) == pytest.approx(
            expected, rel=1e-5
        )
        small.losses_of(trainer, plan, 0, 2)
