"""T5's positions (Raffel et al. 2020): a bias on the scores by the bucket that the distance of two pieces falls into.

Shapes: R rows, Tq queries, S keys, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.parts.masks import Places
from polyseme.parts.positions import Heads, PositionKind, PositionTable, SharedPositions, joined, of_heads
from polyseme.types import Batch, Stream


@dataclass
class BiasTerms:
    """A bias that is added to the scores, the same in every layer."""

    bias: Tensor
    """[R or 1, H, Tq, S]"""

    def apply(
        self, q: Tensor, k: Tensor, scale: float, weights: nn.Module | None, heads: Heads | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return q, k, of_heads(self.bias, heads, dim=1)

    def before(self, other: BiasTerms) -> BiasTerms:
        return BiasTerms(joined(self.bias, other.bias, dim=2))


class BucketBias(SharedPositions):
    """T5's bias on the scores: distances fall into buckets, near ones by themselves, far ones by their logarithm."""

    def __init__(self, n_heads: int, *, n_buckets: int, max_distance: int, two_sided: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(n_buckets, n_heads)
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        self.two_sided = two_sided

    def terms(self, places: Places, batch: Batch, stream: Stream, mask: str) -> BiasTerms:
        return BiasTerms(self(places.q, places.k))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias [R or 1, H, Tq, S] of queries at `q` [R or 1, Tq] and keys at `k` [R or 1, S]."""
        bias: Tensor = self.table(self.buckets(k[:, None, :] - q[:, :, None]))
        return bias.permute(0, 3, 1, 2)

    def as_table(self, n: int) -> PositionTable:
        """Each head's bias by how far a key stands ahead of its query; in a decoder none does."""
        first = 1 - n
        keys = torch.arange(first, n if self.two_sided else 1, device=self.table.weight.device)
        bias = self(keys.new_zeros(1, 1), keys[None])[0, :, 0]  # [H, S]
        return PositionTable(bias.T, first, "distance", "head")

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


def _refusal(config: Any) -> str | None:
    """Why there are no such buckets: those of far distances must begin before the farthest."""
    one_sided = config.direction == "causal" or config.decoder_layers is not None  # those of a decoder are
    n_exact = config.n_buckets // (2 if one_sided else 4)
    if n_exact >= 1 and config.max_distance > n_exact:
        return None
    return (
        f"{config.n_buckets} buckets of distances up to {config.max_distance} cannot be: {n_exact} of them are for one "
        "distance each, so that there must be at least one, and the longest distance (max_distance, in T5's files "
        "relative_attention_max_distance) must be over that number."
    )


BUCKETS = PositionKind(
    refusal=_refusal,
    shared=lambda config: BucketBias(
        config.n_heads,
        n_buckets=config.n_buckets,
        max_distance=config.max_distance,
        two_sided=config.direction != "causal",
    ),
)
