"""Relative positions as terms of the attention scores, with weights a layer (Transformer-XL, XLNet).

The table of distances is made once a call; each layer projects it with its own weights. Picking a table row by the
distance of query and key is the same as the "shift" of the original programs, and works for any places: a query
stream that stands at chosen positions, rows whose memories differ in length.

Shapes: R rows, H heads, Tq queries, S keys, d head width, n distances, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Distances:
    """How far apart queries and keys stand, for all layers of a call."""

    table: Tensor
    """[n, D]: one row a distance."""
    index: Tensor
    """[R or 1, Tq, S]: which row of the table is each pair's."""
    other_segment: Tensor | None = None
    """[R, Tq, S]: 1 where query and key are of different segments, else 0."""
    biases: RelativeBiases | None = None
    """Where the layers share theirs."""


class RelativeBiases(nn.Module):
    """What joins the query where it meets keys and where it meets distances: a vector a head each."""

    def __init__(self, n_heads: int, head_width: int) -> None:
        super().__init__()
        self.content_bias = nn.Parameter(torch.zeros(n_heads, head_width))
        self.position_bias = nn.Parameter(torch.zeros(n_heads, head_width))


class RelativeTerms(nn.Module):
    """(q + position bias)·(W table[q − k]) + (q + segment bias)·segment[same or other]; q + content bias meets keys.

    Where layers share their biases, these come with the distances.
    """

    def __init__(
        self, width: int, n_heads: int, head_width: int, *, segments: bool, shared_biases: bool = False
    ) -> None:
        super().__init__()
        self.content_bias = None if shared_biases else nn.Parameter(torch.zeros(n_heads, head_width))
        self.position_bias = None if shared_biases else nn.Parameter(torch.zeros(n_heads, head_width))
        self.project = nn.Linear(width, n_heads * head_width, bias=False)
        self.segment_bias = nn.Parameter(torch.zeros(n_heads, head_width)) if segments else None
        self.segments = nn.Parameter(torch.zeros(2, n_heads, head_width)) if segments else None

    def content(self, q: Tensor, distances: Distances) -> Tensor:
        """The query as it meets the keys' content: [R, H, Tq, d]."""
        bias = self.content_bias if distances.biases is None else distances.biases.content_bias
        return q if bias is None else q + bias[:, None]

    def forward(self, q: Tensor, distances: Distances) -> Tensor:
        """The terms, unscaled: [R, H, Tq, S]."""
        rows, heads, n_queries, _ = q.shape
        table = self.project(distances.table.to(q.dtype)).unflatten(-1, (heads, -1))  # [n, H, d]
        bias = self.position_bias if distances.biases is None else distances.biases.position_bias
        by_distance = torch.einsum("rhqd,nhd->rhqn", q if bias is None else q + bias[:, None], table)
        index = distances.index[:, None].expand(rows, heads, n_queries, -1)
        terms = by_distance.gather(-1, index)
        if self.segments is not None and self.segment_bias is not None and distances.other_segment is not None:
            by_segment = torch.einsum("rhqd,shd->rhqs", q + self.segment_bias[:, None], self.segments)
            segment_index = distances.other_segment[:, None].expand(rows, heads, n_queries, -1)
            terms = terms + by_segment.gather(-1, segment_index)
        return terms
