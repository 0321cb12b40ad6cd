"""The one attention class.

    scores = scale · (content(q)·k + relative(q)) + bias

Queries come from one place, keys and values from the same or another: cross-attention, a query stream, a memory, a
cache. Masks (`parts.masks`) and positions (`parts.positions`) are objects, worked out once per call. The eager path is
the specification; `scaled_dot_product_attention` is the fast path and equal to it.

Shapes: R rows, Tq queries, S keys, D width, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.parts.masks import Seen
from polyseme.parts.positions import Terms

KeysAndValues = tuple[Tensor, Tensor]


def attend_eagerly(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, seen: Seen, added: Tensor | None, dropout_rate: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention written out; also returns the weights. A query that sees no key gets zeros."""
    scores = scale * (q @ k.transpose(-1, -2))  # [R, H, Tq, S]
    if added is not None:
        scores = scores + added
    allowed = seen.written_out(q.shape[-2], k.shape[-2], q.device)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout_rate) @ v, weights


def attend_fast(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, seen: Seen, added: Tensor | None, dropout_rate: float = 0.0
) -> Tensor:
    """The same through torch's fused kernels, which do not return the weights."""
    if added is None and seen.allowed is None:
        return F.scaled_dot_product_attention(q, k, v, None, dropout_rate, seen.causal, scale=scale)
    allowed = seen.written_out(q.shape[-2], k.shape[-2], q.device)
    if allowed is None:
        return F.scaled_dot_product_attention(q, k, v, added, dropout_rate, scale=scale)
    # Kernels differ in what they make of a query that sees nothing, so it is shown everything, and then set to zero.
    blind = ~allowed.any(-1, keepdim=True)
    shown = allowed | blind
    mask = shown if added is None else added.masked_fill(~shown, float("-inf"))
    attended = F.scaled_dot_product_attention(q, k, v, mask, dropout_rate, scale=scale)
    return attended.masked_fill(blind, 0.0)


class Attention(nn.Module):
    """Multi-head attention over one fused projection of queries, keys and values, in this order."""

    def __init__(
        self,
        width: int,
        n_heads: int,
        head_width: int,
        *,
        bias: bool,
        output_bias: bool,
        scale: float,
        dropout_rate: float,
        relative: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.inner_width = n_heads * head_width
        self.scale = scale
        self.dropout_rate = dropout_rate
        self.project = nn.Linear(width, 3 * self.inner_width, bias=bias)
        self.output = nn.Linear(self.inner_width, width, bias=output_bias)
        self.relative = relative
        """The layer's own weights of its positions, where the kind has such."""

    def forward(
        self,
        x: Tensor,
        *,
        keys_from: Tensor | KeysAndValues | None = None,
        seen: Seen,
        terms: Terms | None = None,
        hook: Callable[[Tensor, Tensor], KeysAndValues] | None = None,
        eager: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `x` [R, Tq, D]; returns [R, Tq, D] and, on the eager path, the weights [R, H, Tq, S].

        `keys_from` is where keys and values come from, if not from `x`: states [R, S, D], or keys and values projected
        before. `terms` are what positions do to queries, keys and scores. `hook` takes the projected keys and values
        and gives back all there are (a cache).
        """
        if keys_from is None:
            q, k, v = self._project(x, 0, 3)
        elif isinstance(keys_from, Tensor):
            (q,), (k, v) = self._project(x, 0, 1), self._project(keys_from, 1, 3)
        else:
            (q,), (k, v) = self._project(x, 0, 1), keys_from
        added: Tensor | None = None
        if terms is not None:
            q, k, added = terms.apply(q, k, self.scale, self.relative)
        if hook is not None:
            k, v = hook(k, v)

        dropout_rate = self.dropout_rate if self.training else 0.0
        weights: Tensor | None = None
        if eager:
            attended, weights = attend_eagerly(
                q, k, v, scale=self.scale, seen=seen, added=added, dropout_rate=dropout_rate
            )
        else:
            attended = attend_fast(q, k, v, scale=self.scale, seen=seen, added=added, dropout_rate=dropout_rate)
        return self.output(attended.transpose(1, 2).flatten(2)), weights

    def keys_and_values(self, source: Tensor) -> KeysAndValues:
        """Project a source once, for many calls that read it."""
        k, v = self._project(source, 1, 3)
        return k, v

    def _project(self, x: Tensor, first: int, last: int) -> list[Tensor]:
        """Thirds `first` … `last` of the fused projection, each [R, H, T, d]."""
        start, end = first * self.inner_width, last * self.inner_width
        bias = None if self.project.bias is None else self.project.bias[start:end]
        projected = F.linear(x, self.project.weight[start:end], bias)
        thirds = projected.chunk(last - first, dim=-1)
        return [third.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for third in thirds]
