"""Positions: how an encoder knows where a piece stands.

A position kind hands itself to the encoder in up to three slots (`PositionKind`): a module that is added below the
stack (learned, sinusoidal), one that all layers share (T5's buckets, rotary), and weights of each layer (XLNet). What
the layers read in a call is made once, as `Terms`, which each layer's queries and keys meet. Nothing else in an encoder
knows of kinds, whether it runs padded or packed; the table of them is beside the config that names one
(`encoders.transformer_config`). Relative positions are in `parts.relative_positions`, rotary ones in
`parts.rotary_positions`, T5's buckets in `parts.bucketed_positions`.

Shapes: R rows, Tq queries, S keys, H heads, d head width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from polyseme.parts.masks import Places
from polyseme.types import Batch, Stream

Heads = tuple[int, ...]
"""Heads of a layer, by their numbers among all that it was made with."""


class Terms(Protocol):
    """What queries and keys meet in every layer of a call."""

    def apply(
        self, q: Tensor, k: Tensor, scale: float, weights: nn.Module | None, heads: Heads | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries [R, H, Tq, d], keys [R, H, S, d], and what is added to the scores: [·, H, Tq, S], or None.

        `weights` are the layer's own, where the kind has such; `heads` are those that the layer has left, where
        others are pruned.
        """

    def before(self, other: Any) -> Terms:
        """Those of two streams as one: the queries of this one, then those of the other, which meet the same keys."""


PositionRows = Literal["position", "distance"]
PositionColumns = Literal["dimension", "pair of dimensions", "head"]


class PositionTable(NamedTuple):
    """What is known of positions as numbers: a row per position, or per distance of a key from its query."""

    values: Tensor
    """[n, columns]"""
    first: int
    """The position or distance of the first row; each row is one further."""
    rows: PositionRows
    columns: PositionColumns


class SharedPositions(nn.Module, ABC):
    """The part of a position kind that all layers share; its terms are made once per call."""

    by_mask = False
    """Whether layers with other masks have other terms."""
    runs_flat = False
    """Whether rows that stand one after another, with their positions given, meet their terms as one row does."""

    @abstractmethod
    def terms(self, places: Places, batch: Batch, stream: Stream, mask: str) -> Terms:
        """The terms for layers with this mask."""

    @abstractmethod
    def as_table(self, n: int) -> PositionTable:
        """What it knows of n positions, or of distances below n."""


@dataclass(frozen=True)
class PositionKind:
    """What a kind puts into the slots of an encoder; each function takes the encoder's config."""

    below: Callable[[Any], nn.Module] | None = None
    """Added to the token layer."""
    shared: Callable[[Any], SharedPositions] | None = None
    in_layer: Callable[[Any], nn.Module] | None = None
    """Weights of each layer's attention, which its terms read."""
    refusal: Callable[[Any], str | None] = lambda config: None
    """Why a config cannot have this kind; None: it can."""


def of_heads(shared: Tensor, heads: Heads | None, *, dim: int) -> Tensor:
    """What all layers share, [.., H, ..] at `dim`, for a layer with these heads.

    Heads are taken one by one: an index would have to be brought to the device, which a recorded step cannot.
    """
    if heads is None:
        return shared
    return torch.cat([shared.narrow(dim, 0, 0), *(shared.narrow(dim, head, 1) for head in heads)], dim=dim)


def joined(one: Tensor, other: Tensor, *, dim: int) -> Tensor:
    """Side by side along `dim`; one that is the same for all rows is repeated."""
    rows = max(one.shape[0], other.shape[0])
    return torch.cat([each.expand(rows, *[-1] * (each.dim() - 1)) for each in (one, other)], dim=dim)


# --- added below -----------------------------------------------------------------------------------------------------


class LearnedPositions(nn.Module):
    """A table with one row per position; `offset` rows at its start belong to no position (RoBERTa 2, BART 2)."""

    def __init__(self, n_positions: int, width: int, *, offset: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_positions + offset, width)
        self.offset = offset

    def forward(self, positions: Tensor) -> Tensor:
        rows: Tensor = self.table(positions + self.offset)
        return rows

    def as_table(self, n: int) -> PositionTable:
        """The vectors of the first n positions, or of all where there are fewer."""
        n = min(n, self.table.num_embeddings - self.offset)
        return PositionTable(self(torch.arange(n, device=self.table.weight.device)), 0, "position", "dimension")


class SinusoidalPositions(nn.Module):
    """Sines and cosines of every position, computed in float32; no parameters, no bound."""

    def __init__(self, width: int, *, layout: Literal["halves", "interleaved"]) -> None:
        super().__init__()
        self.width = width
        self.layout = layout

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.width, self.layout)

    def as_table(self, n: int) -> PositionTable:
        """The vectors of the first n positions."""
        return PositionTable(self(torch.arange(n)), 0, "position", "dimension")


def sinusoids(positions: Tensor, width: int, layout: Literal["halves", "interleaved"]) -> Tensor:
    """[..., width] in float32: sines then cosines in halves, or taking turns."""
    steps = torch.arange(0, width, 2, device=positions.device).float()
    angles = positions[..., None].float() * (1 / torch.pow(10000, steps / width))
    if layout == "halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


LEARNED = PositionKind(
    below=lambda config: LearnedPositions(
        config.max_positions, config.width_of_embeddings, offset=config.position_offset
    ),
    refusal=lambda config: "Learned positions need 'max_positions'." if config.max_positions is None else None,
)
SINUSOIDAL = PositionKind(below=lambda config: SinusoidalPositions(config.width_of_embeddings, layout=config.sinusoids))
NO_POSITIONS = PositionKind()
