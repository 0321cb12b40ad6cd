"""Rotary positions (Su et al. 2021): queries and keys are turned by angles that grow with their position.

A config names them `rotary` (base 10000), `rotary:BASE`, or `rotary:BASE:LOCAL`, where layers with a local window have
a base of their own (ModernBERT). Angles are computed in float32, as in the reference; queries and keys are turned in
float32 at least.

Shapes: R rows, T pieces, S keys, H heads, d head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.parts.masks import Local, Places, get_mask
from polyseme.parts.positions import Heads, PositionKind, PositionTable, SharedPositions, joined
from polyseme.types import Batch, Stream

BASE = 10_000.0


@dataclass
class Angles:
    """Cosines and sines of positions, [R or 1, 1, T, d / 2] each, in float32."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, positions: Tensor, head_width: int, base: float) -> Angles:
        """Those of positions [R or 1, T]."""
        steps = torch.arange(0, head_width, 2, device=positions.device).float()
        angles = positions[:, None, :, None].float() * (1.0 / torch.pow(base, steps / head_width))
        return cls(angles.cos(), angles.sin())

    def turn(self, x: Tensor) -> Tensor:
        """The two halves of each head of `x` [R, H, T, d] as the coordinates of points, turned."""
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = self.cos.to(wide), self.sin.to(wide)
        one, other = x.to(wide).chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1).to(x.dtype)

    def before(self, other: Angles) -> Angles:
        return Angles(joined(self.cos, other.cos, dim=2), joined(self.sin, other.sin, dim=2))


@dataclass
class Rotation:
    """The angles of queries and of keys (`parts.positions.Terms`)."""

    q: Angles
    k: Angles

    def apply(
        self, q: Tensor, k: Tensor, scale: float, weights: nn.Module | None, heads: Heads | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.q.turn(q), self.k.turn(k), None

    def before(self, other: Rotation) -> Rotation:
        return Rotation(self.q.before(other.q), self.k)


class RotaryPositions(SharedPositions):
    """No parameters, no bound; layers with a local window may have a base of their own."""

    by_mask = True
    runs_flat = True

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.head_width: int = config.width_of_heads
        self.base, self.local_base = bases(config.positions) or (BASE, BASE)

    def terms(self, places: Places, batch: Batch, stream: Stream, mask: str) -> Rotation:
        base = self.local_base if isinstance(get_mask(mask), Local) else self.base
        at_q, at_k = places.q, places.k if places.projected is None else places.projected
        if batch.positions is not None and stream == "self" and at_k.shape[1] == batch.positions.shape[1]:
            at_q = at_k = batch.positions
        q = Angles.of(at_q, self.head_width, base)
        return Rotation(q, q if at_k is at_q else Angles.of(at_k, self.head_width, base))

    def as_table(self, n: int) -> PositionTable:
        """The cosines of the angles of the first n positions, in layers without a local window."""
        cosines = Angles.of(torch.arange(n)[None], self.head_width, self.base).cos[0, 0]
        return PositionTable(cosines, 0, "position", "pair of dimensions")


def bases(name: str) -> tuple[float, float] | None:
    """The base of all layers and that of local ones, as a config's `positions` gives them; None: it does not.

    >>> bases("rotary"), bases("rotary:500000"), bases("rotary:160000:10000"), bases("rotary:fast")
    ((10000.0, 10000.0), (500000.0, 500000.0), (160000.0, 10000.0), None)
    """
    try:
        numbers = [float(each) for each in name.split(":")[1:]] or [BASE]
    except ValueError:
        return None
    return (numbers[0], numbers[-1]) if len(numbers) <= 2 and min(numbers) > 0 else None


def in_full(base: float) -> str:
    """A base as a config's `positions` names it, with all its digits.

    >>> in_full(160000.0), in_full(1234567.0), in_full(98765.4321)
    ('160000', '1234567', '98765.4321')
    """
    return repr(base).removesuffix(".0")


def _refusal(config: Any) -> str | None:
    if config.width_of_heads % 2:
        return f"Rotary positions need heads of an even width. Got {config.width_of_heads} instead."
    if bases(config.positions) is None:
        return f"Rotary positions are named rotary, rotary:BASE or rotary:BASE:LOCAL. Got {config.positions!r} instead."
    return None


ROTARY = PositionKind(shared=RotaryPositions, refusal=_refusal)
