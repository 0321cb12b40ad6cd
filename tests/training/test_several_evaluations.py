"""Runs of several processes that evaluate on the way come to their end, with the figures of one process."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.stream_rows import StreamRows
from polyseme.errors import PolysemeWarning
from polyseme.training.checkpoint import read_latest
from polyseme.training.dry_run import DryRun
from polyseme.training.effects import read_log
from polyseme.training.pretraining_job import Job, rows_of
from polyseme.training.run_folder import Run
from training.kills import write_text
from training.processes import on_processes

ROWS: dict[str, Any] = {
    "budget": "4steps", "batch_size": 4, "micro_batch_size": 1, "dtype": "fp64", "device": "cpu", "log_every": 1,
    "evaluate_every": 1, "checkpoint_every": 1,
}  # fmt: skip
PACKED = {"n_layers": 2, "width": 8, "n_heads": 2, "inner_width": 16, "dropout_rate": 0.0}
PACKED |= {"attention_dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
STREAMS = {"width": 8, "token_width": 8, "dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
PIECES = {"tokenizer": "wordpiece", "vocab_size": 320}
WORDS = {"tokenizer": "words", "vocab_size": 100}


@dataclass(frozen=True)
class Case:
    """A run, and how many rows an evaluation of it reads at a time."""

    parallel: str
    n_held: int
    settings: dict[str, Any]
    built: dict[str, Any]
    shape: dict[str, Any]


CASES = {
    "a row more": Case("fsdp", 31, {"recipe": "bert-tiny", "length": 16}, {**PIECES, "held_out": 0.012}, PACKED),
    "one row": Case("fsdp", 1, {"recipe": "bert-tiny", "length": 60}, {**PIECES, "held_out": 1e-4}, PACKED),
    "one stream": Case("ddp", 1, {"recipe": "lstm-tiny", "length": 16}, {**WORDS, "held_out": 1e-4}, STREAMS),
}


def on_two_processes(corpus: Path, output: Path, case: Case) -> None:
    """A run on two processes joined by gloo."""
    given = {**ROWS, **case.settings, "parallel": case.parallel}
    command = ["pretrain", str(corpus), "-o", str(output)]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command += [f"--set={name}={value}" for name, value in case.shape.items()]
    on_processes(2, "polyseme", *command)


@pytest.mark.parametrize(
    "name", ["a row more", *(pytest.param(name, marks=pytest.mark.slow) for name in ("one row", "one stream"))]
)
def test_two_processes_evaluate_as_one(name: str, tmp_path: Path) -> None:
    """After every step, before its checkpoint; one process has a held-out row more than the other."""
    case, alone = CASES[name], tmp_path / "alone"
    write_text(tmp_path / "text.txt")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(
            tmp_path / "text.txt", output=alone, **{**ROWS, **case.settings, **case.built, "shape": case.shape}
        )
    corpus = Corpus.open(alone / "corpus")
    job = Job.from_json(Run.open(alone).settings)
    layout = rows_of(job, corpus, job.training.phases[0], "held")
    assert (layout.n if isinstance(layout, StreamRows) else layout.n_rows) == case.n_held
    on_two_processes(corpus.folder, tmp_path / "both", case)

    mine, theirs = read_log(alone), read_log(tmp_path / "both")
    assert [line["step"] for line in theirs] == [1, 2, 3, 4]
    for one, both in zip(mine, theirs, strict=True):
        assert both["loss"] == pytest.approx(one["loss"], rel=1e-9)
        assert both["held_out"] == pytest.approx(one["held_out"], rel=1e-9)
    kept, expected = read_latest(tmp_path / "both" / "checkpoints"), read_latest(alone / "checkpoints")
    assert kept is not None
    assert expected is not None
    assert kept.tensors.keys() == expected.tensors.keys()
    assert any(key.startswith("optimizer/") for key in kept.tensors)
    for key, tensor in expected.tensors.items():
        torch.testing.assert_close(kept.tensors[key], tensor, rtol=1e-7, atol=1e-9, msg=key)


def test_a_dry_run_counts_the_optimizer_s_state_in_a_checkpoint(tmp_path: Path) -> None:
    """Adam keeps two numbers beside each weight."""
    write_text(tmp_path / "text.txt")
    case = CASES["a row more"]
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        found = polyseme.pretrain(
            tmp_path / "text.txt", **{**ROWS, **case.settings, **case.built, "shape": case.shape, "dry_run": True}
        )
    assert isinstance(found, DryRun)
    assert found.checkpoint_bytes > 3 * 8 * found.parameters
