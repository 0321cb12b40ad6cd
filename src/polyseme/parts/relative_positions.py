"""Relative positions as terms of the attention scores, with weights of each layer (Transformer-XL, XLNet).

The table of distances is made once per call; each layer projects it with its own weights. Keys stand side by side, so
that the distances of a query to all of them are a run of neighboring rows of the table. Where queries stand side by
side too, the runs are read by the "shift" of the original programs, without a copy; elsewhere (a query stream, which
has chosen positions) each query's run is picked.

Shapes: R rows, H heads, Tq queries, S keys, d head width, n distances, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from polyseme.parts.initialization import set_weight
from polyseme.parts.masks import Places
from polyseme.parts.positions import (
    Heads,
    PositionKind,
    PositionTable,
    SharedPositions,
    joined,
    of_heads,
    sinusoids,
)
from polyseme.types import Batch, Stream


@dataclass
class Distances:
    """How far apart queries and keys stand, for all layers of a call (`parts.positions.Terms`)."""

    table: Tensor
    """[n, D]: one row per distance, a query farthest behind its key last; n is at least Tq + S - 1."""
    first: Tensor
    """[R or 1, Tq]: which row of the table is each query's with the first key; those with the other keys follow it."""
    n_keys: int
    in_turn: int = 0
    """How many queries, before any others, stand side by side: the last one's run begins with row 0, the one before
    it with row 1, …"""
    other_segment: Tensor | None = None
    """[R, Tq, S]: whether query and key are of different segments."""
    biases: RelativePositions | None = None
    """Where the layers share theirs."""

    def apply(
        self, q: Tensor, k: Tensor, scale: float, weights: nn.Module | None, heads: Heads | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        assert isinstance(weights, RelativeTerms)
        return weights.content(q, self, heads), k, weights(q, self, scale, heads)

    def before(self, other: Distances) -> Distances:
        segments = self.other_segment
        if segments is not None and other.other_segment is not None:
            segments = joined(segments, other.other_segment, dim=1)
        return dataclasses.replace(self, first=joined(self.first, other.first, dim=1), other_segment=segments)

    def runs(self, by_distance: Tensor) -> Tensor:
        """Of each query's [R, H, Tq, n] the run that is of its keys: [R, H, Tq, S]."""
        sizes = [self.in_turn, by_distance.shape[2] - self.in_turn]
        shifted, others = by_distance.split(sizes, dim=2)
        if not sizes[1]:
            return self._shift(shifted)
        if not sizes[0]:
            return self._pick(others)
        return torch.cat([self._shift(shifted), self._pick(others)], dim=2)

    def _shift(self, by_distance: Tensor) -> Tensor:
        """Runs of queries in turn, each of which begins n - 1 numbers after the one before: no number is moved."""
        n_queries, n = by_distance.shape[2:]
        begin = n_queries - 1
        from_first = by_distance.flatten(2)[..., begin : begin + n_queries * (n - 1)]
        runs: Tensor = from_first.unflatten(2, (n_queries, n - 1))[..., : self.n_keys]
        return runs

    def _pick(self, by_distance: Tensor) -> Tensor:
        """Runs of queries anywhere."""
        first = self.first[:, None, self.in_turn :, None]
        row = first + torch.arange(self.n_keys, device=first.device)
        return by_distance.gather(3, row.expand(*by_distance.shape[:3], -1))


class RelativePositions(SharedPositions):
    """The table of distances, bounded by shapes; and the biases of the query, where all layers share theirs.

    A bias is one vector per head, which joins the query where it meets keys, or where it meets distances.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.width: int = config.width
        self.clamp: int | None = config.clamp_distance
        self.layout: Literal["halves", "interleaved"] = config.sinusoids
        self.segments: bool = config.relative_segments
        biases = torch.zeros(2, config.n_heads, config.width_of_heads) if config.shared_biases else None
        self.content_bias = None if biases is None else nn.Parameter(biases[0].clone())
        self.position_bias = None if biases is None else nn.Parameter(biases[1].clone())

    def terms(self, places: Places, batch: Batch, stream: Stream, mask: str) -> Distances:
        n_pieces, n_keys = batch.pieces.shape[1], places.k.shape[1]
        numbers = torch.arange(n_keys - 1, -n_pieces - 1, -1, device=places.q.device)
        if self.clamp is not None:
            numbers = numbers.clamp(-self.clamp, self.clamp)
        other: Tensor | None = None
        if self.segments and batch.segments is not None:
            remembered = batch.segments.new_zeros(batch.segments.shape[0], n_keys - n_pieces)
            of_keys = torch.cat([remembered, batch.segments], dim=1)
            of_queries = batch.segments
            if stream == "query":
                of_queries = batch.segments.gather(1, places.q)
            other = of_queries[:, :, None] != of_keys[:, None, :]
        return Distances(
            sinusoids(numbers, self.width, self.layout),
            n_pieces - 1 - places.q,
            n_keys,
            in_turn=n_pieces if stream == "self" else 0,
            other_segment=other,
            biases=None if self.content_bias is None else self,
        )

    def as_table(self, n: int) -> PositionTable:
        """The vectors of the first n distances from a query back to its key, before any layer projects them."""
        numbers = torch.arange(n)
        if self.clamp is not None:
            numbers = numbers.clamp(max=self.clamp)
        return PositionTable(sinusoids(numbers, self.width, self.layout), 0, "distance", "dimension")


class RelativeTerms(nn.Module):
    """(q + position bias)·(W table[q − k]) + (q + segment bias)·segment[same or other]; q + content bias meets keys.

    Where layers share their biases, these come with the distances.
    """

    def __init__(
        self, width: int, n_heads: int, head_width: int, *, segments: bool, shared_biases: bool = False
    ) -> None:
        super().__init__()
        self.head_width = head_width
        self.content_bias = None if shared_biases else nn.Parameter(torch.zeros(n_heads, head_width))
        self.position_bias = None if shared_biases else nn.Parameter(torch.zeros(n_heads, head_width))
        self.project = nn.Linear(width, n_heads * head_width, bias=False)
        self.segment_bias = nn.Parameter(torch.zeros(n_heads, head_width)) if segments else None
        self.segments = nn.Parameter(torch.zeros(2, n_heads, head_width)) if segments else None

    def change_heads(self, change: Callable[[Tensor, int], Tensor], n_heads: int) -> None:
        """Change all weights, of so many heads, given with the dimension that heads are along."""
        by_head = self.project.weight.detach().unflatten(0, (n_heads, self.head_width))
        set_weight(self.project, change(by_head, 0).flatten(0, 1))
        for name in ("content_bias", "position_bias", "segment_bias", "segments"):
            own = getattr(self, name)
            if own is not None:
                changed = change(own.detach(), own.dim() - 2)
                setattr(self, name, nn.Parameter(changed, requires_grad=own.requires_grad))

    def content(self, q: Tensor, distances: Distances, heads: Heads | None = None) -> Tensor:
        """The query as it meets the keys' content: [R, H, Tq, d]."""
        bias = self._bias("content_bias", distances, heads)
        return q if bias is None else q + bias[:, None]

    def _bias(self, name: str, distances: Distances, heads: Heads | None) -> Tensor | None:
        """[H, d]: the layer's own, or of those that all layers share the ones of its heads."""
        if distances.biases is None:
            own: Tensor | None = getattr(self, name)
            return own
        return of_heads(getattr(distances.biases, name), heads, dim=0)

    def forward(self, q: Tensor, distances: Distances, scale: float, heads: Heads | None = None) -> Tensor:
        """The terms, scaled: [R, H, Tq, S]."""
        table = self.project(distances.table.to(q.dtype)).unflatten(-1, q.shape[1::2])  # [n, H, d]
        bias = self._bias("position_bias", distances, heads)
        by_distance = torch.einsum("rhqd,nhd->rhqn", scale * (q if bias is None else q + bias[:, None]), table)
        terms = distances.runs(by_distance)
        if self.segments is not None and self.segment_bias is not None and distances.other_segment is not None:
            q = scale * (q + self.segment_bias[:, None])
            same, other = torch.einsum("rhqd,shd->rhqs", q, self.segments).split(1, dim=-1)  # [R, H, Tq, 1] each
            # Not picked by an index: going back, all keys of a query would have to be added up at two places in turn.
            is_other = distances.other_segment[:, None].to(terms.dtype)
            terms = torch.addcmul(terms + same, is_other, other - same)
        return terms


def _in_layer(config: Any) -> RelativeTerms:
    return RelativeTerms(
        config.width,
        config.n_heads,
        config.width_of_heads,
        segments=config.relative_segments,
        shared_biases=config.shared_biases,
    )


def _refusal(config: Any) -> str | None:
    if config.memory == "cache":
        return "Relative positions go with a memory of segments; a cache does not keep what they need."
    return None


RELATIVE = PositionKind(shared=RelativePositions, in_layer=_in_layer, refusal=_refusal)
