"""Averages of weights: what they are, that training does not notice them, and that they are evaluated and saved."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.training.checkpoint import read_latest, read_regular
from polyseme.training.device_group import Devices
from polyseme.training.effects import read_log
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.run_folder import Run
from polyseme.training.run_job import PausedRun
from polyseme.training.trainer import AVERAGE, WEIGHTS, named_under
from polyseme.training.weight_average import WeightAverage, mean_of
from training.kills import SETTINGS, losses, weights, write_text

SMALL: dict[str, Any] = {**SETTINGS, "vocab_size": None, "budget": "8steps", "evaluate_every": 4, "checkpoint_every": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_text(folder / "text.txt")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(folder / "text.txt", output=folder / "corpus", vocab_size=300)
    return folder / "corpus"


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "plain"
    polyseme.pretrain(corpus, output=run, **SMALL)
    return run


def model_weights(run: Path) -> dict[str, torch.Tensor]:
    bundle = polyseme.load(run, device="cpu").bundle
    return {name: each.detach() for name, each in bundle.encoder.named_parameters()}


# --- an exponential average -------------------------------------------------------------------------------------------


def test_the_average_follows_the_weights_quickly_at_first() -> None:
    layer = nn.Linear(3, 2).double()
    average = WeightAverage(layer, 0.7)
    expected = layer.weight.detach().numpy().copy()
    for done in range(1, 30):
        nn.init.normal_(layer.weight)
        average.update(done)
        decay = min(0.7, (1 + done) / (10 + done))
        expected = decay * expected + (1 - decay) * layer.weight.detach().numpy()
    assert np.allclose(average.averages["weight"], expected, rtol=1e-12)


def test_weights_come_back_to_the_last_bit() -> None:
    layer = nn.Linear(3, 2)
    average = WeightAverage(layer, 0.9)
    nn.init.normal_(layer.weight)
    average.update(5)
    before, place = layer.weight.detach().clone(), layer.weight.data_ptr()
    with average.in_place():
        assert torch.equal(layer.weight, average.averages["weight"])
        assert layer.weight.data_ptr() == place, "a recorded step reads the weights where they are"
    assert torch.equal(layer.weight, before)


def test_the_average_is_evaluated_and_saved_and_training_does_not_notice(
    corpus: Path, plain: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    polyseme.pretrain(corpus, output=run, **SMALL, ema=0.6)
    assert [line["loss"] for line in read_log(run)] == [line["loss"] for line in read_log(plain)]
    last = read_latest(run / "checkpoints")
    assert last is not None
    averages, theirs = named_under(AVERAGE, last.tensors), named_under(WEIGHTS, last.tensors)
    assert theirs.keys() >= averages.keys()
    for name, each in model_weights(run).items():
        assert torch.equal(each, averages[f"encoder.{name}"]), name
        assert not torch.equal(each, theirs[f"encoder.{name}"]) or each.numel() < 64, name

    job = Job.from_json(Run.open(run).settings)
    pretraining = Pretraining.set_up(job, Corpus.open(corpus), Devices(torch.device("cpu")))
    pretraining.trainer.put(last.tensors)
    plainly = pretraining.trainer.evaluate(pretraining.held_rows())
    pretraining.trainer.put_weights({**theirs, **averages})
    averaged = pretraining.trainer.evaluate(pretraining.held_rows())
    held_out = read_log(run)[-1]["held_out"]
    assert held_out["masked"] == averaged["masked"] != plainly["masked"]
    assert read_log(plain)[-1]["held_out"]["masked"] == plainly["masked"]


@pytest.mark.parametrize("averaging", [{"ema": 0.6}, {"average_checkpoints": 3}], ids=["ema", "checkpoints"])
def test_an_averaged_run_in_slices_ends_as_if_it_had_never_stopped(
    averaging: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    polyseme.pretrain(corpus, output=tmp_path / "whole", **SMALL, **averaging)
    result = polyseme.pretrain(corpus, output=tmp_path / "cut", **SMALL, **averaging, stop_after="0.001s")
    while isinstance(result, PausedRun):
        result = polyseme.pretrain(resume=tmp_path / "cut", device="cpu", stop_after="0.001s")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


# --- the mean of checkpoints ------------------------------------------------------------------------------------------


def test_the_model_is_the_mean_of_the_last_checkpoints(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    polyseme.pretrain(corpus, output=run, **SMALL, average_checkpoints=3)
    checkpoints = read_regular(run / "checkpoints")
    assert [each.step for each in checkpoints] == [4, 6, 8]
    for name, each in model_weights(run).items():
        theirs = [checkpoint.tensors[f"{WEIGHTS}encoder.{name}"] for checkpoint in checkpoints]
        assert torch.allclose(each, sum(theirs) / 3, atol=1e-7), name  # type: ignore[arg-type]
        assert not torch.equal(each, theirs[-1]), name


def test_whole_numbers_are_not_averaged() -> None:
    mean = mean_of([{"a": torch.tensor([1.0]), "n": torch.tensor(3)}, {"a": torch.tensor([2.0]), "n": torch.tensor(4)}])
    assert (mean["a"].item(), mean["n"].item(), mean["n"].dtype) == (1.5, 4, torch.int64)


def test_fewer_checkpoints_than_are_averaged_are_warned_of(corpus: Path, plain: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "checkpoint_every": 8}
    with pytest.warns(PolysemeWarning, match=r"the last 5 checkpoints, and there are 1 in 8 steps.*--checkpoint-every"):
        polyseme.pretrain(corpus, output=tmp_path / "run", **settings, average_checkpoints=5)
    assert weights(tmp_path / "run") == weights(plain), "without that of step 0"


def test_a_spoilt_checkpoint_is_not_averaged(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    polyseme.pretrain(corpus, output=run, **SMALL, average_checkpoints=3)
    first = sorted((run / "checkpoints").iterdir())[0] / "model.safetensors"
    first.write_bytes(first.read_bytes()[:-1])
    (run / "run.json").write_text(json.dumps({**json.loads((run / "run.json").read_text()), "finished": False}))
    with pytest.raises(ModelError, match=r"step-00000004.*good copy"):
        polyseme.pretrain(resume=run, device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ema": 1.0}, "between 0 and 1"),
        ({"ema": 0.0}, "between 0 and 1"),
        ({"average_checkpoints": 0}, "'average_checkpoints' must be at least 1"),
        ({"ema": 0.9, "average_checkpoints": 2}, "Choose one"),
    ],
)
def test_averages_that_cannot_be_are_refused(
    changes: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=message):
        polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL, **changes)
    assert not (tmp_path / "run").exists()
