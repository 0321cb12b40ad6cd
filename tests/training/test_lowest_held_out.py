"""A run that memorizes its text: the model is that of the checkpoint that was best on held-out text."""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import polyseme
from polyseme.errors import PolysemeWarning
from polyseme.training.checkpoint import has_checkpoint, read_step
from polyseme.training.effects import CHECKPOINTS, read_log
from polyseme.training.run_folder import Run
from polyseme.training.run_job import PausedRun
from polyseme.training.trainer import WEIGHTS, named_under
from polyseme.training.watching import StopAfter

SETTINGS: dict[str, Any] = {
    "recipe": "gpt-tiny",
    "budget": "120steps",
    "batch_size": 16,
    "length": 16,
    "shape": {"n_layers": 1, "width": 64, "n_heads": 2, "inner_width": 64, "dropout_rate": 0.0},
    "learning_rate": 0.02,
    "device": "cpu",
    "workers": 0,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of words drawn by chance: whatever is learned beyond their frequencies is memorized."""
    folder = tmp_path_factory.mktemp("memorized")
    rng = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    documents = [" ".join(rng.choice(words) for _ in range(40)) for _ in range(24)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(
            folder / "text.txt", output=folder / "corpus", tokenizer="blanks", frame="lm", vocab_size=100, held_out=0.3
        )
    return folder / "corpus"


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "whole"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolysemeWarning)
        polyseme.pretrain(corpus, output=output, **SETTINGS)
    last = str(caught[-1].message)
    assert re.search(
        r"held-out loss was lowest after step 12 of 120, .*memorized.* step 12\..* 10% of the budget", last
    )
    return output


def lowest_step(run: Path) -> int:
    evaluated = {line["step"]: line["held_out"]["loss"] for line in read_log(run) if "held_out" in line}
    return min(evaluated, key=evaluated.__getitem__)


def test_the_model_is_that_of_the_lowest_held_out_loss(run: Path) -> None:
    step = lowest_step(run)
    assert step == 12, "the loss rises from then on"
    assert Run.open(run).model_step == step
    kept = named_under(WEIGHTS, read_step(run / CHECKPOINTS, step).tensors)
    weights = dict(polyseme.load(run, device="cpu").bundle.encoder.named_parameters())
    shared = {name: each for name, each in weights.items() if f"encoder.{name}" in kept}
    assert shared
    assert all(torch.equal(each, kept[f"encoder.{name}"]) for name, each in shared.items())
    assert json.loads((run / "model" / "seen.json").read_text())["step"] == step
    ledger = json.loads((run / "ledger.json").read_text())
    assert ledger["held_out"] == pytest.approx(
        min(each["held_out"]["loss"] for each in read_log(run) if "held_out" in each)
    )
    assert f"The model is that of step {step}" in (run / "model" / "README.md").read_text()
    assert [has_checkpoint(run / CHECKPOINTS, each) for each in (12, 24, 108, 120)] == [True, False, True, True]


def test_a_run_in_slices_ends_with_the_same_model(
    corpus: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slices end after steps 50 and 100, whatever the clock says."""
    monkeypatch.setattr(StopAfter, "_look", lambda self, moment: (moment.done % 50 == 0, moment.done + 1))
    output, paused = tmp_path / "slices", []
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        part = polyseme.pretrain(corpus, output=output, **SETTINGS, stop_after="1h")
        while isinstance(part, PausedRun):
            paused.append(part.done)
            part = polyseme.pretrain(resume=output, device="cpu", stop_after="1h")
    assert paused == [50, 100]
    assert Run.open(output).model_step == Run.open(run).model_step
    assert (output / "model" / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()


def test_published_training_keeps_the_last_weights(corpus: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(corpus, output=tmp_path / "run", as_published=True, **{**SETTINGS, "budget": "4steps"})
    assert Run.open(tmp_path / "run").model_step is None
