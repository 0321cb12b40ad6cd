"""Kernels for few rows: equal to the plain step, in Triton's interpreter and on a GPU; and choosing within the step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from generating.kernel_battery import KINDS, ROWS, random_bundle, texts, writer_of
from parts.triton_battery import has_gpu, has_triton, run_battery
from polyseme.errors import ModelError
from polyseme.generating.kernel_steps import kernels_fit
from polyseme.parts.memory_and_cache import Memory

BATTERY = Path(__file__).with_name("kernel_battery.py")


@has_triton
def test_kernels_equal_the_plain_step_in_the_interpreter() -> None:
    options = ("--device", "cpu", "--kinds", "norms before", "t5", "--rows", "1", "6")
    run_battery(BATTERY, *options, TRITON_INTERPRET="1")


@has_triton
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_the_interpreter(kind: str) -> None:
    run_battery(BATTERY, "--device", "cpu", "--kinds", kind, TRITON_INTERPRET="1")


@has_triton
@has_gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_a_gpu(kind: str, dtype: str) -> None:
    run_battery(BATTERY, "--kinds", kind, "--dtype", dtype)


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
