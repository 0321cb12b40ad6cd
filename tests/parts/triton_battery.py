"""Runs a battery of kernels in a process of its own: whether Triton interprets is decided when it is loaded."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

has_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
has_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def run_battery(battery: Path, *options: str, **environment: str) -> None:
    """A battery prints one line of JSON for each comparison; all must be right."""
    run = subprocess.run(
        [sys.executable, str(battery), *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert lines, run.stderr
    assert not [line for line in lines if not line["right"]]
    assert run.returncode == 0, run.stderr
