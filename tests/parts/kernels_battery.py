"""Kernels for packed rows and for CRFs beside plain torch, as a program: on a GPU, or in Triton's interpreter on a CPU.

TRITON_INTERPRET=1 python tests/parts/kernels_battery.py --device cpu
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

LENGTHS = (1, 2, 2, 3, 20, 21, 64, 65, 130)
WINDOWS = ((-1, -1), (-1, 0), (5, 5), (7, 0))
MOST = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
"""The largest difference, as a share of the largest value; flash attention's own errors are as large."""


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float, window: tuple[int, int]) -> Tensor:
    """The same in float64, a row at a time."""
    rows = []
    for a, b, c in zip(*(each.double().transpose(0, 1).split(LENGTHS, dim=1) for each in (q, k, v)), strict=True):
        places = torch.arange(a.shape[1], device=q.device)
        back = places[:, None] - places
        left, right = (len(places) if side < 0 else side for side in window)
        scores = (scale * (a @ b.transpose(1, 2))).masked_fill((back > left) | (-back > right), float("-inf"))
        rows.append((scores.softmax(-1) @ c).transpose(0, 1).flatten(1))
    return torch.cat(rows)


def main() -> None:
    """Print a line of JSON for each comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="+")
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from triton.runtime import interpreter

        plain = interpreter._patch_lang_tensor

        def patched(tensor: object, scope: object) -> None:
            """Bounds of loops are arrays of one number, which newer versions of NumPy do not take for numbers."""
            plain(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))  # type: ignore[attr-defined]

        interpreter._patch_lang_tensor = patched
    from polyseme.parts import crf, crf_kernels, packed_kernels

    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(options.device, dtype)

    def report(name: str, found: Tensor, expected: Tensor) -> None:
        apart = float((found.double() - expected.double()).abs().max() / expected.double().abs().max())
        line = {"name": name, "dtype": str(dtype), "apart": apart, "right": apart <= MOST[dtype]}
        sys.stdout.write(f"{json.dumps(line)}\n")

    bounds = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32, device=options.device)
    row_of = torch.repeat_interleave(bounds.diff())
    for dtype_name in options.dtypes or ["float32", "float16", "bfloat16"]:
        dtype = getattr(torch, dtype_name)
        for width in (64, 32, 24):
            q, k, v = drawn(sum(LENGTHS), 3, 2, width).unbind(1)
            for window in WINDOWS:
                found = packed_kernels.attend(q, k, v, row_of, bounds, scale=0.2, window=window)
                report(f"attend, heads of {width}, window {window}", found, attended(q, k, v, 0.2, window))
        for width in (96, 768):
            x, residual, weight, bias = drawn(7, width), drawn(7, width), drawn(width), drawn(width)
            total = x + residual
            found, normed = packed_kernels.add_and_norm(x.clone(), residual, weight, bias, 1e-5, rms=False, summed=True)
            report(f"sum of {width}", found, total)
            report(f"layer norm of {width}", normed, F.layer_norm(total, (width,), weight, bias, 1e-5))
            kept, normed = packed_kernels.add_and_norm(x, residual, weight, None, 1e-5, rms=True, summed=False)
            report(f"RMS norm of {width}", normed, F.rms_norm(total, (width,), weight, 1e-5))
            report(f"what is not wanted, {width}", kept + residual, total)
    dtype = torch.float32
    for n_tags, n_words in ((13, 9), (40, 2), (5, 1)):
        mask = torch.arange(n_words) < torch.tensor([n_words, max(1, n_words - 2), 1, 0])[:, None]
        mask, scores = mask.to(options.device), 3 * drawn(4, n_words, n_tags)
        first, last, between = drawn(n_tags), drawn(n_tags), drawn(n_tags, n_tags)
        between[0, 1:] = crf.FORBIDDEN
        name = f"{n_tags} tags, {n_words} words"
        found, expected = (each(scores, mask, first, between) for each in (crf_kernels.forwards, crf._forwards_by_word))
        report(f"forwards, {name}", found, expected)
        found, expected = (
            each(scores, mask, between, last) for each in (crf_kernels.backwards, crf._backwards_by_word)
        )
        report(f"backwards, {name}", found, expected)


if __name__ == "__main__":
    main()
