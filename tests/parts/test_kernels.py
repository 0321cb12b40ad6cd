"""Kernels for packed rows and for CRFs equal plain torch, in Triton's interpreter and on a GPU."""

from __future__ import annotations

from pathlib import Path

from parts.triton_battery import has_gpu, has_triton, run_battery

BATTERY = Path(__file__).with_name("kernels_battery.py")


@has_triton
def test_kernels_equal_torch_in_the_interpreter() -> None:
    """Which multiplies no bf16."""
    run_battery(BATTERY, "--device", "cpu", "--dtypes", "float32", "float16", TRITON_INTERPRET="1")


@has_triton
@has_gpu
def test_kernels_equal_torch_on_a_gpu() -> None:
    run_battery(BATTERY, "--dtypes", "float16", "bfloat16")
