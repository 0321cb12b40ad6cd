"""Positions: added below the stack, or a bias on the scores made once a call for the whole stack.

The third kind, terms with weights a layer, is in `parts.relative`.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """A table with a row a position; `offset` rows at its start belong to no position (RoBERTa 2, BART 2)."""

    def __init__(self, n_positions: int, width: int, *, offset: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_positions + offset, width)
        self.offset = offset

    def forward(self, positions: Tensor) -> Tensor:
        found: Tensor = self.table(positions + self.offset)
        return found


class SinusoidalPositions(nn.Module):
    """Sines and cosines of every position, computed in float32; no parameters, no bound."""

    def __init__(self, width: int, *, layout: Literal["halves", "interleaved"]) -> None:
        super().__init__()
        self.width = width
        self.layout = layout

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.width, self.layout)


def sinusoids(positions: Tensor, width: int, layout: Literal["halves", "interleaved"]) -> Tensor:
    """[..., width] in float32: sines then cosines in halves, or taking turns."""
    steps = torch.arange(0, width, 2, device=positions.device).float()
    angles = positions[..., None].float() * (1 / torch.pow(10000, steps / width))
    if layout == "halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


class BucketBias(nn.Module):
    """T5's bias on the scores: distances fall into buckets, near ones apart, far ones by their logarithm."""

    def __init__(self, n_heads: int, *, n_buckets: int, max_distance: int, two_sided: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(n_buckets, n_heads)
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        self.two_sided = two_sided

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias [R or 1, H, Tq, S] of queries at `q` [R or 1, Tq] and keys at `k` [R or 1, S]."""
        found: Tensor = self.table(self.buckets(k[:, None, :] - q[:, :, None]))
        return found.permute(0, 3, 1, 2)

    def buckets(self, ahead: Tensor) -> Tensor:
        """The bucket of a key that stands `ahead` of its query; logarithms in float32, as in the original."""
        n_buckets = self.n_buckets
        first = torch.zeros_like(ahead)
        if self.two_sided:
            n_buckets //= 2
            first = (ahead > 0).long() * n_buckets
            distance = ahead.abs()
        else:
            distance = (-ahead).clamp(min=0)
        n_exact = n_buckets // 2
        far = torch.log(distance.clamp(min=1).float() / n_exact) / math.log(self.max_distance / n_exact)
        far_bucket = (n_exact + (far * (n_buckets - n_exact)).long()).clamp(max=n_buckets - 1)
        return first + torch.where(distance < n_exact, distance, far_bucket)
