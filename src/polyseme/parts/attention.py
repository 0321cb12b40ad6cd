"""The one attention class.

    scores = scale · (content(q)·k + relative(q)) + bias

Queries come from one place, keys and values from the same or another: cross-attention, a query stream, a memory, a
cache. Masks (`parts.masks`) and positions (`parts.positions`) are objects, worked out once per call. The eager path is
the specification; `scaled_dot_product_attention` is the fast path and equal to it.

Shapes: R rows, Tq queries, S keys, D width, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.parts.initialization import set_weight
from polyseme.parts.linear import Linear, linear
from polyseme.parts.masks import VisibleKeys
from polyseme.parts.positions import Heads, Terms
from polyseme.parts.relative_positions import RelativeTerms

KeysAndValues = tuple[Tensor, Tensor]


def attend_eagerly(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, seen: VisibleKeys, added: Tensor | None, dropout_rate: float = 0.0
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
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, seen: VisibleKeys, added: Tensor | None, dropout_rate: float = 0.0
) -> Tensor:
    """The same through torch's fused kernels, which do not return the weights."""
    if not q.shape[1]:  # a layer without heads
        return q
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
        """How many there are now."""
        self.heads: Heads | None = None
        """Which these are among all that the layer was made with; None: all of them."""
        self.head_width = head_width
        self.scale = scale
        self.dropout_rate = dropout_rate
        self.project = Linear(width, 3 * n_heads * head_width, bias=bias)
        self.output = Linear(n_heads * head_width, width, bias=output_bias)
        self.relative = relative
        """The layer's own weights of its positions, where the kind has such."""

    @property
    def inner_width(self) -> int:
        return self.n_heads * self.head_width

    @property
    def head_numbers(self) -> Heads:
        """Which heads there are, by their numbers among those that the layer was made with."""
        return tuple(range(self.n_heads)) if self.heads is None else self.heads

    def keep(self, heads: Sequence[int]) -> None:
        """Remove all heads but these, by their numbers among those that the layer was made with.

        Without any head, attention adds the bias of its output, or nothing.
        """
        places = [self.head_numbers.index(head) for head in heads]
        self._change_heads(lambda weights, dim: weights.index_select(dim, _index(places, weights)))
        self.n_heads, self.heads = len(places), tuple(heads)

    def fill(self, n_heads: int) -> None:
        """Bring the heads that were removed back as zeros, which add nothing: all are there again."""
        if self.heads is None:
            return
        heads = self.heads

        def with_zeros(weights: Tensor, dim: int) -> Tensor:
            whole = weights.new_zeros(*weights.shape[:dim], n_heads, *weights.shape[dim + 1 :])
            return whole.index_copy(dim, _index(heads, weights), weights)

        self._change_heads(with_zeros)
        self.n_heads, self.heads = n_heads, None

    def _change_heads(self, change: Callable[[Tensor, int], Tensor]) -> None:
        """Change all weights that are of heads, given with the dimension that heads are along."""
        by_head = (3, self.n_heads, self.head_width)
        weight = change(self.project.weight.detach().unflatten(0, by_head), 1).flatten(0, 2)
        bias = self.project.bias
        set_weight(
            self.project, weight, None if bias is None else change(bias.detach().unflatten(0, by_head), 1).flatten()
        )
        set_weight(self.output, change(self.output.weight.detach().unflatten(1, by_head[1:]), 1).flatten(1))
        if isinstance(self.relative, RelativeTerms):
            self.relative.change_heads(change, self.n_heads)

    def forward(
        self,
        x: Tensor,
        *,
        keys_from: Tensor | KeysAndValues | None = None,
        seen: VisibleKeys,
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
            q, k, added = terms.apply(q, k, self.scale, self.relative, self.heads)
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

    def projected(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of states [R, T, D], each [R, H, T, d]."""
        return self._project(x, 0, 3)

    def keys_and_values(self, source: Tensor) -> KeysAndValues:
        """Project a source once, for many calls that read it."""
        k, v = self._project(source, 1, 3)
        return k, v

    def _project(self, x: Tensor, first: int, last: int) -> list[Tensor]:
        """Thirds `first` … `last` of the fused projection, each [R, H, T, d]."""
        weight: Tensor = self.project.weight
        bias: Tensor | None = self.project.bias
        if last - first < 3:  # a slice of all would cost a copy of the gradient
            rows = slice(first * self.inner_width, last * self.inner_width)
            weight, bias = weight[rows], None if bias is None else bias[rows]
        projected = linear(x, weight, bias)
        thirds = projected.chunk(last - first, dim=-1)
        return [third.unflatten(-1, (self.n_heads, self.head_width)).transpose(1, 2) for third in thirds]


def _index(places: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(places, dtype=torch.long, device=like.device)
