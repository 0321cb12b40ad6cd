"""Seeds side by side: each gives what it gives alone, whatever goes beside it."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest
import torch

from polyseme.errors import PolysemeWarning
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneResult, FinetuneRun, finetune_task
from polyseme.transfer.seeds_abreast import take_turns
from tiny_models import tiny_model
from transfer.small_tasks import small_task


def counted(name: str, n_steps: int, log: list[str]) -> Generator[None, None, str]:
    for step in range(n_steps):
        log.append(f"{name}{step}")
        yield
    return name.upper()


def test_runs_take_a_step_each_in_turn_and_results_keep_their_order() -> None:
    log: list[str] = []
    runs = [partial(counted, name, n_steps, log) for name, n_steps in (("a", 3), ("b", 1), ("c", 2), ("d", 0))]
    assert take_turns(runs, abreast=2, device=torch.device("cpu")) == ["A", "B", "C", "D"]
    assert log == ["a0", "b0", "a1", "a2", "c0", "c1"]


def test_one_abreast_is_one_after_the_other() -> None:
    log: list[str] = []
    runs = [partial(counted, name, 2, log) for name in "ab"]
    take_turns(runs, abreast=1, device=torch.device("cpu"))
    assert log == ["a0", "a1", "b0", "b1"]


@pytest.fixture(scope="module")
def one_by_one() -> FinetuneResult:
    return tuned(abreast=1)


def tuned(abreast: int, folder: Path | None = None) -> FinetuneResult:
    settings = FinetuneSettings(epochs=2, learning_rate=1e-3, seeds=(3, 1, 2))
    data = small_task("classify", n_train=48, n_dev=16)
    return finetune_task(data, tiny_model("bert").bundle, settings, FinetuneRun(abreast=abreast, folder=folder))


@pytest.mark.parametrize("abreast", [2, 3, 8])
def test_seeds_side_by_side_are_to_the_last_bit_what_they_are_alone(one_by_one: FinetuneResult, abreast: int) -> None:
    together = tuned(abreast)
    assert [figures(each) for each in together.report.seeds] == [figures(each) for each in one_by_one.report.seeds]
    assert together.report.best_seed == one_by_one.report.best_seed
    for name, weight in one_by_one.model.state_dict().items():
        assert torch.equal(together.model.state_dict()[name], weight), name


def test_what_was_done_side_by_side_is_gone_on_with(one_by_one: FinetuneResult, tmp_path: Path) -> None:
    tuned(2, tmp_path)
    again = tuned(1, tmp_path)
    assert [figures(each) for each in again.report.seeds] == [figures(each) for each in one_by_one.report.seeds]


def figures(seed: object) -> dict[str, object]:
    return {name: value for name, value in vars(seed).items() if name != "seconds"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["classify", "tag"])
@pytest.mark.parametrize("abreast", [1, 3])
def test_a_gpu_replays_the_plain_steps(kind: str, abreast: int) -> None:
    without = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
    curves = []
    for recorded in (True, False):
        settings = FinetuneSettings(
            epochs=6, learning_rate=1e-4, seeds=(3, 1, 2), dropout=0.0, dtype="fp32", compile=recorded, pool="first"
        )
        data = small_task(kind, n_train=48, n_dev=16)
        bundle = tiny_model("bert", **without).bundle
        with warnings.catch_warnings(action="error", category=PolysemeWarning):
            run = FinetuneRun(device="cuda:0", abreast=abreast if recorded else 1)
            tuned = finetune_task(data, bundle, settings, run)
        curves.append([point["loss"] for seed in tuned.report.seeds for point in seed.curve])
    assert len(set(curves[0])) > 3
    assert curves[0] == pytest.approx(curves[1], rel=1e-3)
