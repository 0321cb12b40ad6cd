"""Masks: which keys a query may see.

What a query sees is the encoder's own mask (one a layer) ∧ the batch's mask ∧ the keys that exist. All of it is worked
out from places: indices in the row, negative for the pieces of a memory; in a cache, slots.

Shapes: R rows, T pieces, Tq queries, S keys; a 1 broadcasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.types import Mask, Stream


@dataclass(frozen=True)
class Everything:
    """Every key."""

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        return None


@dataclass(frozen=True)
class Causal:
    """The query itself and what stands before it; in a query stream, only what stands before it."""

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        distance = q[:, :, None] - k[:, None, :]
        return distance >= 0 if stream == "self" else distance > 0


@dataclass(frozen=True)
class Band:
    """Causal, and no farther back than `width` pieces, the query itself counted."""

    width: int

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        distance = q[:, :, None] - k[:, None, :]
        return (distance >= (0 if stream == "self" else 1)) & (distance < self.width)


@dataclass(frozen=True)
class Order:
    """What comes earlier in an order of factorization, and all of the memory (XLNet).

    `rank` [R, T] is each piece's turn. The content stream also sees the piece itself, the query stream does not.
    """

    rank: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        rows = self.rank.shape[0]
        rank_q = self.rank.gather(1, q.clamp(min=0).expand(rows, -1))[:, :, None]
        rank_k = self.rank.gather(1, k.clamp(min=0).expand(rows, -1))[:, None, :]
        earlier = rank_k <= rank_q if stream == "self" else rank_k < rank_q
        return earlier | (k < 0)[:, None, :]


@dataclass(frozen=True)
class SameDocument:
    """Only pieces of the query's own document; `documents` [R, T] numbers them. A memory is another document."""

    documents: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        rows = self.documents.shape[0]
        of_q = self.documents.gather(1, q.clamp(min=0).expand(rows, -1))[:, :, None]
        of_k = self.documents.gather(1, k.clamp(min=0).expand(rows, -1))[:, None, :]
        return (of_q == of_k) & (k >= 0)[:, None, :]


@dataclass(frozen=True)
class OwnSource:
    """Only those pieces of a source that are of the query's own document: several pairs may share a row.

    `documents` [R, T] and `source_documents` [R, S] number them alike.
    """

    documents: Tensor
    source_documents: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        rows = self.documents.shape[0]
        of_q = self.documents.gather(1, q.clamp(min=0).expand(rows, -1))[:, :, None]
        of_k = self.source_documents.gather(1, k.clamp(min=0).expand(rows, -1))[:, None, :]
        return of_q == of_k


@dataclass(frozen=True)
class Given:
    """A mask written out: `matrix` [R or 1, T, T], true where a query (row) sees a key (column); memory is seen."""

    matrix: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        rows = max(self.matrix.shape[0], q.shape[0], k.shape[0])
        matrix = self.matrix.expand(rows, -1, -1)
        row_of = torch.arange(rows, device=q.device)[:, None, None]
        seen = matrix[row_of, q.clamp(min=0)[:, :, None], k.clamp(min=0)[:, None, :]]
        return seen | (k < 0)[:, None, :]


def mask_named(name: str) -> Mask:
    """The mask a config names: `all`, `causal`, or `band:WIDTH`."""
    if name == "all":
        return Everything()
    if name == "causal":
        return Causal()
    kind, _, width = name.partition(":")
    if kind == "band" and width.isdigit() and int(width) > 0:
        return Band(int(width))
    raise ModelError(f"A layer's mask must be all, causal or band:WIDTH. Got {name!r} instead.")


@dataclass
class Places:
    """Where the queries and keys of one call stand, and which keys exist."""

    q: Tensor
    """[R or 1, Tq]"""
    k: Tensor
    """[R or 1, S]"""
    exists: Tensor | None
    """[R, S]; None: all of them."""
    counted: bool
    """Whether queries and keys are the same pieces 0 … T-1, so that a causal mask alone hides the padding."""


@dataclass
class Seen:
    """What attention is told: a mask that broadcasts to [R, H, Tq, S], or none, or plainly `causal`."""

    allowed: Tensor | None
    causal: bool = False

    def written_out(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """The mask as a tensor, also where it was only called causal; None: everything is seen."""
        if not self.causal:
            return self.allowed
        return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril()[None, None]


def seen(own: Mask, given: Mask | None, places: Places, stream: Stream = "self", *, itself: bool = False) -> Seen:
    """Put the encoder's `own` mask, the batch's (`given`) and the keys' existence together.

    With `itself` a query of the content stream sees its own piece whatever the masks say (XLNet).
    """
    if isinstance(own, Causal) and given is None and places.counted and stream == "self":
        return Seen(None, causal=True)
    masks = [own.allowed(places.q, places.k, stream)]
    if given is not None:
        masks.append(given.allowed(places.q, places.k, stream))
    if places.exists is not None:
        masks.append(places.exists[:, None, :])
    allowed: Tensor | None = None
    for mask in masks:
        if mask is not None:
            allowed = mask if allowed is None else allowed & mask
    if allowed is not None and itself and stream == "self":
        allowed = allowed | (places.q[:, :, None] == places.k[:, None, :])
    return Seen(None if allowed is None else allowed[:, None])
