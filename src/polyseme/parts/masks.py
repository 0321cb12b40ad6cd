"""Masks: which keys a query may see.

What a query sees is the encoder's own mask (one per layer) ∧ the batch's mask ∧ the keys that exist. All of it is
worked out from places: indices in the row, negative for the pieces of a memory; in a cache, slots. A mask that a config
names (`LAYER_MASKS`) also gives its `window`, how far a query sees to the left and to the right (-1: without bound),
by which packed inference runs it.

Shapes: R rows, T pieces, Tq queries, S keys; a 1 broadcasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.types import Mask, Stream


@dataclass(frozen=True)
class AllKeys:
    """Every key."""

    window = (-1, -1)

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        return None


@dataclass(frozen=True)
class Causal:
    """The query itself and the pieces before it; in a query stream, only those before it."""

    window = (-1, 0)

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        distance = q[:, :, None] - k[:, None, :]
        return distance >= 0 if stream == "self" else distance > 0


@dataclass(frozen=True)
class Band:
    """Causal, and no farther back than `width` pieces, the query itself counted."""

    width: int

    @property
    def window(self) -> tuple[int, int]:
        return self.width - 1, 0

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        distance = q[:, :, None] - k[:, None, :]
        return (distance >= (0 if stream == "self" else 1)) & (distance < self.width)


@dataclass(frozen=True)
class Local:
    """No farther than `width` pieces away, on either side (ModernBERT's sliding window)."""

    width: int

    @property
    def window(self) -> tuple[int, int]:
        return self.width, self.width

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        return (q[:, :, None] - k[:, None, :]).abs() <= self.width


@dataclass(frozen=True)
class FactorizationOrder:
    """What comes earlier in an order of factorization, and all of the memory (XLNet).

    `rank` [R, T] is each piece's turn. The content stream also sees the piece itself, the query stream does not.
    """

    rank: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        rank_q, rank_k = _numbers_at(self.rank, q)[:, :, None], _numbers_at(self.rank, k)[:, None, :]
        earlier = rank_k <= rank_q if stream == "self" else rank_k < rank_q
        return earlier | (k < 0)[:, None, :]


@dataclass(frozen=True)
class SameDocument:
    """Only pieces of the query's own document; `documents` [R, T] numbers them. A memory is another document."""

    documents: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        same = _numbers_at(self.documents, q)[:, :, None] == _numbers_at(self.documents, k)[:, None, :]
        return same & (k >= 0)[:, None, :]


@dataclass(frozen=True)
class OwnSource:
    """Only those pieces of a source that are of the query's own document: several pairs may share a row.

    `documents` [R, T] and `source_documents` [R, S] number them alike.
    """

    documents: Tensor
    source_documents: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        return _numbers_at(self.documents, q)[:, :, None] == _numbers_at(self.source_documents, k)[:, None, :]


@dataclass(frozen=True)
class MatrixMask:
    """A mask written out: `matrix` [R or 1, T, T], true where a query (row) sees a key (column); memory is seen."""

    matrix: Tensor

    def allowed(self, q: Tensor, k: Tensor, stream: Stream) -> Tensor | None:
        rows = max(self.matrix.shape[0], q.shape[0], k.shape[0])
        matrix = self.matrix.expand(rows, -1, -1)
        row_of = torch.arange(rows, device=q.device)[:, None, None]
        visible = matrix[row_of, q.clamp(min=0)[:, :, None], k.clamp(min=0)[:, None, :]]
        return visible | (k < 0)[:, None, :]


def _numbers_at(numbers: Tensor, places: Tensor) -> Tensor:
    """What `numbers` [R, T] are at `places` [R or 1, n]: [R, n]; a memory's places have those of the first piece."""
    return numbers.gather(1, places.clamp(min=0).expand(numbers.shape[0], -1))


LayerMask = AllKeys | Causal | Band | Local
WHOLE: Mapping[str, LayerMask] = {"all": AllKeys(), "causal": Causal()}
WITH_WIDTH: Mapping[str, type[Band] | type[Local]] = {"band": Band, "local": Local}
"""The masks a config may name, without and with a width."""


def get_mask(name: str) -> LayerMask:
    """The mask a config names: `all`, `causal`, `band:WIDTH` or `local:WIDTH`."""
    kind, _, width = name.partition(":")
    if name in WHOLE:
        return WHOLE[name]
    if kind in WITH_WIDTH and width.isdigit() and int(width) > 0:
        return WITH_WIDTH[kind](int(width))
    raise ModelError(f"A layer's mask must be local:WIDTH, all, causal or band:WIDTH. Got {name!r} instead.")


def masks_by_layer(names: Sequence[str], n_layers: int) -> tuple[str, ...]:
    """The name of each layer's mask, from one for all layers, one per layer, or several that repeat.

    >>> masks_by_layer(["causal", "band:16"], 4)
    ('causal', 'band:16', 'causal', 'band:16')

    One that ends in `:EVERY` leaves the first and each EVERY-th layer after it without bound (ModernBERT).

    >>> masks_by_layer(["local:64:3"], 5)
    ('all', 'local:64', 'local:64', 'all', 'local:64')
    """
    if len(names) != 1:
        return tuple(names) * max(n_layers // len(names), 1)
    kind, *settings = names[0].split(":")
    if kind != "local" or len(settings) != 2 or not settings[1].isdigit() or int(settings[1]) < 1:
        return (names[0],) * n_layers
    every = int(settings[1])
    return tuple(f"local:{settings[0]}" if number % every else "all" for number in range(n_layers))


def named_together(by_layer: Sequence[str], every: int = 0) -> tuple[str, ...]:
    """The names of all layers' masks as a config has them: one for all layers, one that ends in `:EVERY`, or one each.

    `every` is for layers of which only the first is without bound, where any EVERY from their number on says the same.

    >>> named_together(["all", "local:2", "all", "local:2"]), named_together(["all", "all", "local:2"])
    (('local:2:2',), ('all', 'all', 'local:2'))
    >>> named_together(["causal", "causal"]), named_together(["all", "local:2"], 3)
    (('causal',), ('local:2:3',))
    """
    if len(set(by_layer)) == 1:
        return (by_layer[0],)
    n_layers = len(by_layer)
    every = next((number for number in range(1, n_layers) if by_layer[number] == "all"), max(every, n_layers))
    pattern = f"{next((name for name in by_layer if name != 'all'), 'all')}:{every}"
    return (pattern,) if masks_by_layer([pattern], n_layers) == tuple(by_layer) else tuple(by_layer)


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
    projected: Tensor | None = None
    """[R or 1, ·]: where the keys stand that this call projects, if those at `k` are slots of a cache."""


@dataclass
class VisibleKeys:
    """What attention sees: a mask that broadcasts to [R, H, Tq, S], or none, or plainly `causal`."""

    allowed: Tensor | None
    causal: bool = False

    def written_out(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """The mask as a tensor, also where it was only called causal; None: everything is seen."""
        if not self.causal:
            return self.allowed
        return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril()[None, None]


def visible_keys(
    own: Mask, of_batch: Mask | None, places: Places, stream: Stream = "self", *, itself: bool = False
) -> VisibleKeys:
    """Put the encoder's `own` mask, the batch's and the keys' existence together.

    With `itself` a query of the content stream sees its own piece whatever the masks say (XLNet).
    """
    if isinstance(own, Causal) and of_batch is None and places.counted and stream == "self":
        return VisibleKeys(None, causal=True)
    if isinstance(own, Local) and places.counted and places.k.shape[1] <= own.width + 1:
        own = AllKeys()
    masks = [own.allowed(places.q, places.k, stream)]
    if of_batch is not None:
        masks.append(of_batch.allowed(places.q, places.k, stream))
    if places.exists is not None:
        masks.append(places.exists[:, None, :])
    allowed: Tensor | None = None
    for mask in masks:
        if mask is not None:
            allowed = mask if allowed is None else allowed & mask
    if allowed is not None and itself and stream == "self":
        allowed = allowed | (places.q[:, :, None] == places.k[:, None, :])
    return VisibleKeys(None if allowed is None else allowed[:, None])
