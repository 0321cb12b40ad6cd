"""How AWD-LSTM is trained: rows of drawn lengths, rates in proportion, weights averaged once losses stand still."""

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyseme
from corpus.conftest import stream_rows
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.stream_rows import _normal
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.training.checkpoint import read_latest
from polyseme.training.device_group import Devices
from polyseme.training.effects import read_log
from polyseme.training.optimizers import OptimizerSettings, build_optimizer
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.run_folder import Run
from polyseme.training.run_job import PausedRun
from polyseme.training.trainer import AVERAGE, named_under
from polyseme.training.weight_average import STATE, TriggeredAverage
from training.kills import losses, weights

TEXT = "the dawn broke a vase and news of it came to every house where people sat at bread and beer"
SMALL: dict[str, Any] = {
    "recipe": "awd-lstm-tiny", "batch_size": 4, "length": 12, "device": "cpu", "log_every": 1,
    "shape": {"width": 10, "token_width": 8, "top_width": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = TEXT.split() * 4
    draw = random.Random(3)
    folder = tmp_path_factory.mktemp("text")
    starts = [draw.randrange(20) for _ in range(100)]
    lines = [" ".join(words[start : start + 40]) for start in starts]
    (folder / "text.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        return polyseme.build_corpus(
            folder / "text.txt", output=folder / "corpus", tokenizer="words", frame="lm", vocab_size=100, held_out=0.1
        )


# --- lengths ----------------------------------------------------------------------------------------------------------


def test_lengths_are_drawn_as_in_the_paper() -> None:
    """Normal around 70 with a deviation of 5, one in 20 around 35; all sums of 20 are equal."""
    cycles = np.stack([_normal(70, 3, cycle) for cycle in range(400)])
    assert set(cycles.sum(axis=1)) == {19 * 70 + 35}
    halved = cycles < 50
    assert (halved.sum(axis=1) == 1).mean() > 0.99
    assert abs(cycles[~halved].mean() - 70) < 0.3
    assert 4.5 < cycles[~halved].std() < 5.5
    assert cycles.min() >= 5
    assert len({tuple(cycle) for cycle in cycles.tolist()}) == 400
    assert _normal(8, 0, 0).min() >= 1


def test_rows_of_drawn_lengths_leave_nothing_out(corpus: Corpus) -> None:
    streams = stream_rows(corpus, 2, length=12, ahead=1, varied=True, varied_by="normal")
    rows = [streams.rows(np.arange(2) + 2 * step).pieces for step in range(60)]
    assert len({each.shape[1] for each in rows}) > 4
    assert streams.mean_length == np.mean([each.shape[1] - 1 for each in rows[:20]])
    for before, after in itertools.pairwise(rows):
        assert np.array_equal(before[:, -1], after[:, 0])


# --- averages ---------------------------------------------------------------------------------------------------------


def test_averages_are_the_papers_from_where_losses_stand_still() -> None:
    """1 / (K - T + 1) times the sum of the weights from step T on, where T is the first whose loss is above the best of
    those up to n evaluations before it; until then the weights themselves, which take plain steps throughout.
    """
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).double()
    optimizer = build_optimizer(layer, OptimizerSettings(kind="nt-asgd", lr=0.3, weight_decay=0.0), device="cpu")
    average = TriggeredAverage(layer, patience=2)
    seen: list[torch.Tensor] = []
    for step, loss in enumerate([5, 4, 3, 3.5, 2.9, 3.1, 4.5, 1, 1, 1]):
        before = layer.weight.detach().clone()
        layer(torch.randn(5, 4, dtype=torch.float64)).square().mean().backward()
        moved = before - 0.3 * layer.weight.grad
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(layer.weight.detach(), moved, atol=1e-15, rtol=0)
        seen.append(moved)
        average.update(step + 1)
        average.evaluated(loss)
        assert average.has_begun == (step >= 5), "3.1 is the first that is above the best of [5, 4, 3]"
        expected = torch.stack(seen[5:]).mean(0) if step >= 5 else moved
        torch.testing.assert_close(average.averages["weight"], expected, atol=1e-14, rtol=0)


def test_a_published_run_in_slices_ends_as_if_it_had_never_stopped(corpus: Corpus, tmp_path: Path) -> None:
    """SGD, drawn lengths, rates in proportion to them, and an average whose beginning a checkpoint keeps."""
    options = {**SMALL, "as_published": True, "budget": "9steps", "evaluate_every": 1}
    options |= {"learning_rate": 500.0, "schedule": "linear", "warmup": 0.9}  # so that losses rise
    polyseme.pretrain(corpus.folder, output=tmp_path / "whole", **options)
    result: Any = polyseme.pretrain(corpus.folder, output=tmp_path / "cut", **options, stop_after="0.001s")
    while isinstance(result, PausedRun):
        result = polyseme.pretrain(resume=tmp_path / "cut", device="cpu", stop_after="0.001s")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    last = read_latest(tmp_path / "whole" / "checkpoints")
    assert last is not None
    begun, n_averaged, *seen = named_under(AVERAGE, last.tensors)[STATE].tolist()
    assert seen == [line["held_out"]["loss"] for line in read_log(tmp_path / "whole")]
    begins = [at for at in range(6, 9) if seen[at] > min(seen[: at - 5])]
    assert begun
    assert n_averaged == 9 - begins[0]

    pretraining = Pretraining.set_up(
        Job.from_json(Run.open(tmp_path / "whole").settings), corpus, Devices(torch.device("cpu"))
    )
    plan, rates = pretraining.plan(9), {}
    for rows in pretraining.loader(plan).steps(0, 9, workers=0):
        pretraining.trainer.step(rows, plan)
        rate = pretraining.trainer.optimizer.param_groups[0]["lr"] / plan.settings.schedule.factor(rows.step, 9)
        rates[rows.passes[0]["pieces"].shape[1] - 1] = rate
    assert len(rates) > 3
    assert rates == pytest.approx({length: 500.0 * length / 12 for length in rates}), "in proportion to the length"


def test_averaging_twice_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="averages weights itself"):
        polyseme.pretrain(corpus.folder, output=tmp_path / "x", **SMALL, budget="4steps", optimizer="nt-asgd", ema=0.9)
    with pytest.raises(OptionError, match="patience"):
        OptimizerSettings(kind="nt-asgd", patience=0)


# --- both directions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [pytest.param("forwards", marks=pytest.mark.slow), "backwards"])
def test_it_learns_in_either_direction(reads: str, corpus: Corpus, tmp_path: Path) -> None:
    """The text repeats a sentence, so that either neighbor is nearly certain."""
    options = {
        **SMALL,
        "shape": {**SMALL["shape"], "reads": reads},
        "budget": "100steps",
        "learning_rate": 0.03,
        "log_every": 50,
    }
    polyseme.pretrain(corpus.folder, output=tmp_path / "run", **options)
    log = read_log(tmp_path / "run")
    assert log[-1]["held_out"]["causal"] < 0.75 * log[0]["causal"]
    assert {"activation", "temporal"} <= log[0].keys()
    assert log[-1]["held_out"].keys() == {"loss", "causal"}
    model = polyseme.load(tmp_path / "run", device="cpu")
    on, back = (model.score([text])[0].totals.log_prob for text in ("the dawn broke a vase", "vase a broke dawn the"))
    assert on > back + 3
