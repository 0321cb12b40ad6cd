"""One layer of the Transformer, and what it reads.

A layer is self-attention, cross-attention where there is a source, and feed-forward. A `View` is what one stream of the
encoder reads in a call, a `Reading` what one layer does.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyseme.encoders.transformer_config import KeptHeads, TransformerConfig
from polyseme.parts.attention import Attention, KeysAndValues
from polyseme.parts.feed_forward import FeedForward
from polyseme.parts.masks import Places, VisibleKeys
from polyseme.parts.memory_and_cache import write_slots
from polyseme.parts.norms import norm
from polyseme.parts.positions import Terms, joined


@dataclass
class Reading:
    """What a layer may read besides its input."""

    seen: VisibleKeys
    terms: Terms | None = None
    """What positions do to queries, keys and scores."""
    earlier: Tensor | None = None
    """Segment memory [R, M, D]: read ahead of projection."""
    held: KeysAndValues | None = None
    """A cache's keys and values [R, H, S, d]: read, and written at `slots` [R, T], after projection."""
    slots: Tensor | None = None
    source: KeysAndValues | None = None
    """The source's keys and values, projected."""
    source_seen: VisibleKeys | None = None
    eager: bool = False

    def beside(self, view: View, mask: str) -> Reading:
        """The same for a second stream, which stands elsewhere."""
        return dataclasses.replace(self, seen=view.seen[mask], terms=view.terms[mask])

    def cached(self, k: Tensor, v: Tensor) -> KeysAndValues:
        """Write new keys and values into their slots; give back all there are."""
        if self.held is None or self.slots is None:
            return k, v
        return write_slots(self.held[0], k, self.slots), write_slots(self.held[1], v, self.slots)


class TransformerLayer(nn.Module):
    """Residual parts, each with its norm after, before, or absent."""

    def __init__(self, config: TransformerConfig, number: int) -> None:
        super().__init__()
        self.norm_first = config.norm == "before"
        self.dropout = nn.Dropout(config.dropout_rate)
        rate = config.attention_output_dropout_rate
        self.attention_dropout = nn.Dropout(config.dropout_rate if rate is None else rate)
        in_layer = config.position_kind.in_layer
        self.attention = _attention(config, number, config.heads_left, None if in_layer is None else in_layer(config))
        self.attention_norm = _norm(config) if number > 1 or config.first_norm else nn.Identity()
        self.cross = _attention(config, number, config.cross_heads_left) if config.cross else None
        self.cross_norm = _norm(config) if config.cross else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = _norm(config)

    def forward(
        self, x: Tensor, reading: Reading, *, keys_from: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """States, and the weights of self- and cross-attention on the eager path.

        A second stream gives the first one's states in `keys_from`: both read the same keys.
        """
        keys = self._keys(x, keys_from, reading.earlier)
        attended, self_weights = self.attention(
            self._before(self.attention_norm, x),
            keys_from=None if keys is None else self._before(self.attention_norm, keys),
            seen=reading.seen,
            terms=reading.terms,
            hook=None if reading.held is None else reading.cached,
            eager=reading.eager,
        )
        x = self._after(self.attention_norm, x + self.attention_dropout(attended))

        cross_weights: Tensor | None = None
        if self.cross is not None and self.cross_norm is not None and reading.source_seen is not None:
            attended, cross_weights = self.cross(
                self._before(self.cross_norm, x),
                keys_from=reading.source,
                seen=reading.source_seen,
                eager=reading.eager,
            )
            x = self._after(self.cross_norm, x + self.attention_dropout(attended))

        inner = self.feed_forward(self._before(self.feed_forward_norm, x))
        x = self._after(self.feed_forward_norm, x + self.dropout(inner))
        return x, self_weights, cross_weights

    def queries_keys_values(self, x: Tensor) -> list[Tensor]:
        """What self-attention projects of the layer's input [R, T, D]: three of [R, T, H·d], before any positions."""
        projected = self.attention.projected(self._before(self.attention_norm, x))
        return [each.transpose(1, 2).flatten(2) for each in projected]

    def added(self) -> list[nn.Linear]:
        """The products whose results are added to the residual stream."""
        parts: list[nn.Linear] = [self.attention.output, self.feed_forward.down]
        return parts if self.cross is None else [*parts, self.cross.output]

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        normed: Tensor = norm(x) if self.norm_first else x
        return normed

    def _after(self, norm: nn.Module, x: Tensor) -> Tensor:
        normed: Tensor = x if self.norm_first else norm(x)
        return normed

    @staticmethod
    def _keys(x: Tensor, keys_from: Tensor | None, earlier: Tensor | None) -> Tensor | None:
        """Where keys and values are read: None means the queries' own states."""
        if earlier is None:
            return keys_from
        return torch.cat([earlier, x if keys_from is None else keys_from], dim=1)


def _norm(config: TransformerConfig) -> nn.Module:
    return norm("none" if config.norm == "none" else config.norm_kind, config.width, config.norm_epsilon)


def _attention(
    config: TransformerConfig, number: int, heads_left: KeptHeads | None, relative: nn.Module | None = None
) -> Attention:
    head_width = config.width_of_heads
    scale = head_width**-0.5 if config.scale is None else config.scale
    attention = Attention(
        config.width,
        config.n_heads,
        head_width,
        bias=config.attention_bias,
        output_bias=config.attention_output_bias,
        scale=scale / number if config.scale_by_layer else scale,
        dropout_rate=config.attention_dropout_rate,
        relative=relative,
    )
    if heads_left is not None:
        attention.keep(heads_left[number - 1])
    return attention


@dataclass
class View:
    """What one stream reads in a call, the same for all layers but for their masks."""

    places: Places
    seen: dict[str, VisibleKeys]
    """By the name of the layer's mask."""
    terms: dict[str, Terms | None]
    """The same."""

    def before(self, other: View) -> View:
        """Both streams as one: the queries of this one, then those of the other, which meet the same keys."""
        return View(
            Places(joined(self.places.q, other.places.q, dim=1), self.places.k, self.places.exists, counted=False),
            {name: VisibleKeys(joined(self._mask(name), other._mask(name), dim=2)) for name in self.seen},
            {name: None if each is None else each.before(other.terms[name]) for name, each in self.terms.items()},
        )

    def _mask(self, name: str) -> Tensor:
        """What is seen under a mask, written out for all queries and keys: [R or 1, 1, Tq, S]."""
        n_queries, n_keys, device = self.places.q.shape[1], self.places.k.shape[1], self.places.q.device
        allowed = self.seen[name].written_out(n_queries, n_keys, device)
        if allowed is None:
            allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
        return allowed.expand(-1, -1, n_queries, n_keys)
