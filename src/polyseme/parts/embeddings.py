"""The token layer: pieces, positions and segments added up, normed, and brought to the stack's width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.parts.norms import norm


def cluster_bounds(n_pieces: int, cutoffs: Sequence[int]) -> list[tuple[int, int]]:
    """First and last piece, not counted, of each cluster of pieces that are numbered by frequency.

    >>> cluster_bounds(100, (20, 60))
    [(0, 20), (20, 60), (60, 100)]
    """
    return list(pairwise((0, *cutoffs, n_pieces)))


class Clusters(nn.Module):
    """Pieces in clusters by frequency, each in a table of its own, narrower by `narrowing` from one to the next.

    A map brings each to the stack's width (Transformer-XL's adaptive input). Where tables do not grow narrower there is
    but one, and a map only where its width is not the stack's.
    """

    def __init__(
        self, n_pieces: int, embedding_width: int, width: int, *, cutoffs: Sequence[int], narrowing: int
    ) -> None:
        super().__init__()
        self.bounds = cluster_bounds(n_pieces, cutoffs if narrowing > 1 else ())
        widths = [embedding_width // narrowing**number for number in range(len(self.bounds))]
        sizes = [high - low for low, high in self.bounds]
        self.tables = nn.ModuleList(nn.Embedding(*shape) for shape in zip(sizes, widths, strict=True))
        mapped = narrowing > 1 or embedding_width != width
        self.maps = nn.ModuleList(nn.Linear(each, width, bias=False) if mapped else nn.Identity() for each in widths)

    def forward(self, pieces: Tensor) -> Tensor:
        """Every cluster looks every piece up, so that shapes are known beforehand; each piece takes its own's."""
        embedded: Tensor | None = None
        for (low, high), table, mapped in zip(self.bounds, self.tables, self.maps, strict=True):
            looked_up: Tensor = mapped(table((pieces - low).clamp(0, high - low - 1)))
            embedded = looked_up if embedded is None else torch.where((pieces >= low)[..., None], looked_up, embedded)
        assert embedded is not None
        return embedded


class Embeddings(nn.Module):
    """Layer 0. The norm has the embedding width; a map to the stack's width follows where there is one."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.width_of_embeddings
        below = config.position_kind.below
        n_segments = 0 if config.relative_segments else config.n_segments
        mapped = config.embedding_width is not None and not config.adaptive
        self.pieces = (
            Clusters(config.n_pieces, width, config.width, cutoffs=config.cutoffs, narrowing=config.narrowing)
            if config.adaptive
            else nn.Embedding(config.n_pieces, width)
        )
        self.positions = None if below is None else below(config)
        self.segments = nn.Embedding(n_segments, width) if n_segments else None
        self.scale: float = config.embedding_scale
        self.norm = norm(config.norm_kind if config.embedding_norm else "none", width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.embedding_dropout_rate)
        self.map = nn.Linear(width, config.width) if mapped else nn.Identity()

    def forward(self, pieces: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        """[R, T] each to [R, T, width]; without segments every piece is of segment 0."""
        x: Tensor = self.pieces(pieces)
        if self.scale != 1.0:
            x = x * self.scale
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)
        mapped: Tensor = self.map(self.dropout(self.norm(x)))
        return mapped
