"""The token layer: pieces, positions and segments added up, normed, and brought to the stack's width."""

from __future__ import annotations

from torch import Tensor, nn

from polyseme.parts.norms import NormKind, norm


class Embeddings(nn.Module):
    """Layer 0. The norm stands at the embedding width; a map to the stack's width follows where there is one."""

    def __init__(
        self,
        n_pieces: int,
        embedding_width: int,
        *,
        map_to: int | None,
        positions: nn.Module | None,
        n_segments: int,
        scale: float,
        norm_kind: NormKind,
        norm_epsilon: float,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        self.pieces = nn.Embedding(n_pieces, embedding_width)
        self.positions = positions
        self.segments = nn.Embedding(n_segments, embedding_width) if n_segments else None
        self.scale = scale
        self.norm = norm(norm_kind, embedding_width, norm_epsilon)
        self.dropout = nn.Dropout(dropout_rate)
        self.map = nn.Identity() if map_to is None else nn.Linear(embedding_width, map_to)

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
