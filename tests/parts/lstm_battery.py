"""Kernels for a step of an LSTM beside the loop, as a program: on a GPU, or in Triton's interpreter on a CPU.

It prints one line of JSON for each comparison, and ends with exit code 1 if one failed. States may be off from the loop
in float64 by `FACTOR` times what the loop in the same precision is off.

    TRITON_INTERPRET=1 python tests/parts/lstm_battery.py --device cpu [--dtypes fp32]
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.api import DTYPES
from polyseme.extras import require
from polyseme.parts.recurrence import Reader

SETTINGS: dict[str, dict[str, Any]] = {
    "as published": {"inner_width": 40, "cell_clip": 0.2, "projection_clip": 0.1, "forget_bias": 1.0},
    "cells clipped": {"inner_width": 40, "cell_clip": 0.2},
    "states clipped": {"inner_width": 40, "projection_clip": 0.1},
    "no projection": {"cell_clip": 0.2},
    "no clips": {"inner_width": 1100},
}
ROWS, TIMES, BELOW, WIDTH = 5, 6, 12, 24
FACTOR = 4
FLOOR = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Of the largest value: what may be off where the loop is exact by luck."""


def reader_of(name: str, device: str, dtype: torch.dtype) -> Reader:
    made = Reader(BELOW, WIDTH, **SETTINGS[name]).double().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=1.5 / parameter.shape[-1] ** 0.5, generator=generator)
    return made.to(device, dtype)


@torch.no_grad()
def compare(name: str, stops: bool, device: str, dtype: torch.dtype) -> dict[str, Any]:
    kernels = require("polyseme.parts.lstm_kernels", extra="dev")
    generator = torch.Generator().manual_seed(2)
    readers = {kind: reader_of(name, device, kind) for kind in (torch.float64, dtype)}
    shapes = [(ROWS, TIMES, BELOW), (ROWS, WIDTH), (ROWS, readers[dtype].n_cells)]
    drawn = [torch.randn(shape, generator=generator).mul(0.5).to(device, dtype) for shape in shapes]
    ends = torch.tensor([6, 0, 3, 1, 5], device=device) if stops else None

    def given(kind: torch.dtype) -> tuple[Any, ...]:
        x, h, c = (each.to(kind) for each in drawn)
        return x, ends, h, c, readers[kind].recurrent

    exact = readers[torch.float64]._step_by_step(*given(torch.float64))
    plain = readers[dtype]._step_by_step(*given(dtype))
    found = readers[dtype].by_kernels(kernels, *given(dtype))

    def off(results: tuple[Tensor, ...]) -> float:
        return max(
            ((one.double() - other).abs().max() / other.abs().max()).nan_to_num(float("inf")).item()
            for one, other in zip(results, exact, strict=True)
        )

    allowed = max(FACTOR * off(plain), FLOOR[dtype])
    return {"off": off(found), "allowed": allowed, "right": off(found) <= allowed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16", "fp16"], choices=["fp32", "bf16", "fp16"])
    options = parser.parse_args()
    failed = False
    for name in SETTINGS:
        for dtype in options.dtypes:
            for stops in (False, True):
                result = compare(name, stops, options.device, DTYPES[dtype])
                failed |= not result["right"]
                sys.stdout.write(json.dumps({"settings": name, "dtype": dtype, "stops": stops, **result}) + "\n")
                sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
