"""Kernels for packed rows and for CRFs equal plain torch, in Triton's interpreter and on a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BATTERY = Path(__file__).with_name("kernels_battery.py")
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
def test_kernels_equal_torch_in_the_interpreter() -> None:
    """Which multiplies no bf16."""
    run_battery("--device", "cpu", "--dtypes", "float32", "float16", TRITON_INTERPRET="1")


@has_triton
@has_gpu
def test_kernels_equal_torch_on_a_gpu() -> None:
    run_battery("--dtypes", "float16", "bfloat16")
