"""What a stream of the Transformer reads in a call, and two streams that read the same keys as one.

Shapes: R rows, Tq queries, S keys, H heads; a 1 broadcasts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from polyseme.parts.masks import Places, Seen
from polyseme.parts.relative import Distances


@dataclass
class View:
    """What one stream reads in a call, the same for all layers but for their masks."""

    places: Places
    seen: dict[str, Seen]
    """By the name of the layer's mask."""
    bias: Tensor | None
    """[R or 1, H, Tq, S]"""
    distances: Distances | None

    def before(self, other: View) -> View:
        """Both streams as one: the queries of this one, then those of the other, which meet the same keys."""
        distances = self.distances
        if distances is not None and other.distances is not None:
            distances = dataclasses.replace(
                distances,
                first=_joined(distances.first, other.distances.first, dim=1),
                other_segment=_joined_if_there(distances.other_segment, other.distances.other_segment, dim=1),
            )
        return View(
            Places(_joined(self.places.q, other.places.q, dim=1), self.places.k, self.places.exists, counted=False),
            {name: Seen(_joined(self._mask(name), other._mask(name), dim=2)) for name in self.seen},
            _joined_if_there(self.bias, other.bias, dim=2),
            distances,
        )

    def _mask(self, name: str) -> Tensor:
        """What is seen under a mask, written out for all queries and keys: [R or 1, 1, Tq, S]."""
        n_queries, n_keys, device = self.places.q.shape[1], self.places.k.shape[1], self.places.q.device
        allowed = self.seen[name].written_out(n_queries, n_keys, device)
        if allowed is None:
            allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
        return allowed.expand(-1, -1, n_queries, n_keys)


def _joined(one: Tensor, other: Tensor, *, dim: int) -> Tensor:
    """Side by side along `dim`; one that is the same for all rows is repeated."""
    rows = max(one.shape[0], other.shape[0])
    return torch.cat([each.expand(rows, *[-1] * (each.dim() - 1)) for each in (one, other)], dim=dim)


def _joined_if_there(one: Tensor | None, other: Tensor | None, *, dim: int) -> Tensor | None:
    return None if one is None or other is None else _joined(one, other, dim=dim)
