"""Kernels for few rows: equal to the plain step, in Triton's interpreter and on a GPU; and choosing within the step."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from generating.kernel_battery import KINDS, ROWS, random_bundle, texts, writer_of
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.generating import kernel_steps
from polyseme.generating.kernel_steps import kernels_fit
from polyseme.parts.memory_and_cache import Memory

BATTERY = Path(__file__).with_name("kernel_battery.py")
has_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
has_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def run_battery(*options: str, **environment: str) -> None:
    """In a process of its own: whether Triton interprets is settled when it is loaded."""
    run = subprocess.run(
        [sys.executable, str(BATTERY), *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert lines, run.stderr
    assert not [line for line in lines if not line["right"]]
    assert run.returncode == 0, run.stderr


@has_triton
def test_kernels_equal_the_plain_step_in_the_interpreter() -> None:
    options = ("--device", "cpu", "--kinds", "norms before", "t5", "--rows", "1", "6")
    run_battery(*options, TRITON_INTERPRET="1")


@has_triton
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_the_interpreter(kind: str) -> None:
    run_battery("--device", "cpu", "--kinds", kind, TRITON_INTERPRET="1")


@has_triton
@has_gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_a_gpu(kind: str, dtype: str) -> None:
    run_battery("--kinds", kind, "--dtype", dtype)


@pytest.mark.parametrize("kind", ["norms before", "t5"])
def test_texts_are_the_same_with_the_choice_in_the_step(kind: str) -> None:
    result = texts(kind, len(ROWS), torch.float32, "cpu")
    assert result["right"], result


def test_only_who_asks_for_it_chooses_ahead() -> None:
    model = writer_of(random_bundle("norms before"))
    memory = model.encoder.new_memory(1, 16)
    model.prepare()
    assert not model.chooses(memory)
    model.prepare(kernels=True)
    assert model.chooses(memory)
    assert not model.chooses(Memory(memory.lengths))
    with pytest.raises(ModelError, match="chooses pieces ahead"):
        model.chosen(torch.zeros(1, dtype=torch.long), Memory(memory.lengths), torch.zeros(99, dtype=torch.int8), 4)


def test_what_kernels_do_not_compute_goes_the_plain_way() -> None:
    for kind in KINDS:
        encoder = writer_of(random_bundle(kind).float()).encoder
        assert kernels_fit(encoder)  # type: ignore[arg-type]
        assert not kernels_fit(encoder.double())  # type: ignore[arg-type]
    encoder = writer_of(random_bundle("norms before").float()).encoder
    encoder.layers[0].attention.keep([])  # type: ignore[union-attr,index]
    assert not kernels_fit(encoder)  # type: ignore[arg-type]


def test_why_kernels_do_not_run_is_reported_once() -> None:
    kernel_steps._report.cache_clear()
    with pytest.warns(PolysemeWarning, match=r"since they do not run here: no compiler\."):
        kernel_steps._report("no compiler")
    kernel_steps._report("no compiler")  # warnings are errors in tests
