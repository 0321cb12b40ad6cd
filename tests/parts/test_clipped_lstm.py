"""Kernels for a step of an LSTM: equal to the loop, in Triton's interpreter and on a GPU; where they do not serve."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from parts.triton_battery import has_gpu, has_triton, run_battery
from polyseme.parts.clipped_lstm import kernels_for
from polyseme.parts.recurrence import Reader

BATTERY = Path(__file__).with_name("lstm_battery.py")


@has_triton
@pytest.mark.slow
def test_kernels_equal_the_loop_in_the_interpreter() -> None:
    run_battery(BATTERY, "--device", "cpu", TRITON_INTERPRET="1")


@has_triton
@has_gpu
@pytest.mark.slow
def test_kernels_equal_the_loop_on_a_gpu() -> None:
    run_battery(BATTERY)


@has_triton
@has_gpu
def test_what_needs_gradients_or_is_written_out_goes_the_plain_way() -> None:
    made, x = Reader(32, 32, cell_clip=0.5).cuda(), torch.randn(2, 3, 32, device="cuda")
    assert made._kernels_per_step(x) is None
    with torch.no_grad():
        assert made._kernels_per_step(x) is not None
        assert made._kernels_per_step(x.double()) is None
        made.written_out = True
        assert made._kernels_per_step(x) is None


def test_on_a_cpu_nothing_is_tried() -> None:
    def trial(_: object) -> float:
        raise AssertionError("tried")

    assert kernels_for(torch.zeros(1), trial) is None
