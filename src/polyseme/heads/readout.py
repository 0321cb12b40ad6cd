"""Words into one vector: mean, max, last, first, or [last; max; mean].

Shapes: R rows, W words, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyseme.heads.config import WordReadout

N_VECTORS: dict[WordReadout, int] = {"mean": 1, "max": 1, "last": 1, "first": 1, "concat": 3}
"""How many times as wide the result is."""


def read_out(words: Tensor, mask: Tensor, how: WordReadout, *, two_way: bool = False) -> Tensor:
    """[R, W, D], [R, W] → [R, D], or [R, 3 D] for `concat`; zeros for a row of no words.

    Of states that are [forward; backward] (`two_way`), the last of the backward half is that of the first word: where
    each half has read everything; and the first likewise.
    """
    if how == "concat":
        parts: tuple[WordReadout, ...] = ("last", "max", "mean")
        return torch.cat([read_out(words, mask, part, two_way=two_way) for part in parts], dim=-1)
    real = mask[:, :, None]
    if not words.shape[1]:
        return words.new_zeros(words.shape[0], words.shape[2])
    if how == "mean":
        return (words * real).sum(1) / real.sum(1).clamp(min=1)
    if how == "max":
        return words.masked_fill(~real, torch.finfo(words.dtype).min).amax(1) * mask.any(1)[:, None]
    some = mask.any(1)[:, None]
    first, last = words[:, 0] * some, _at_end(words, mask) * some
    here, there = (last, first) if how == "last" else (first, last)
    if not two_way:
        return here
    half = words.shape[-1] // 2
    return torch.cat([here[:, :half], there[:, half:]], dim=-1)


def _at_end(words: Tensor, mask: Tensor) -> Tensor:
    place = (mask.sum(1) - 1).clamp(min=0)[:, None, None].expand(-1, -1, words.shape[-1])
    return words.gather(1, place).squeeze(1)
