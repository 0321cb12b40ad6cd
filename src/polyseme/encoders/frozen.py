"""Encoders as inference runs them: no padding, weights laid out for the machine.

Rows come flat, one after another, equal lengths together. Linear layers then run over all pieces at once, and attention
over the rows of one length together, so that nothing is computed for padding. What comes out equals `Encoder.forward`
on the same rows (tests hold it to that), for a frozen model: no gradients, no dropout.

Shapes: N pieces of all rows, R rows of one length T, D width, H heads, d head width.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyseme.encoders.base import Encoder, Layers, wanted_layers
from polyseme.encoders.recurrent import Recurrent
from polyseme.encoders.stretched import Stretched
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.encoders.two_way import TwoWay
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.extras import optional
from polyseme.parts.product import Product
from polyseme.parts.small_products import HalfProduct, Int8Product, bf16_is_fast, int8_is_fast
from polyseme.types import Batch

Precision = Literal["own", "bf16", "int8"]
"""What products run in: the precision of the weights, or a smaller one with fp32 between them."""
AnyProduct = Product | HalfProduct | Int8Product
PRODUCTS: Mapping[Precision, Callable[..., AnyProduct]] = {"own": Product, "bf16": HalfProduct, "int8": Int8Product}

PACKED_FOR = 2048
"""Pieces in a product that packed weights are laid out for."""


@dataclass
class FlatRows:
    """Rows one after another, none padded; equal lengths stand together."""

    pieces: Tensor
    """[N]"""
    segments: Tensor | None
    """[N]"""
    lengths: Sequence[int]

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """Start among the pieces, number of rows, and length of each run of rows of one length."""
        found = []
        start = 0
        for length, group in itertools.groupby(self.lengths):
            n_rows = sum(1 for _ in group)
            found.append((start, n_rows, length))
            start += n_rows * length
        return found

    def positions(self) -> Tensor:
        """[N]: 0 … T-1 in every row."""
        device = self.pieces.device
        return torch.cat([torch.arange(length, device=device).repeat(n_rows) for _, n_rows, length in self.runs])


class Frozen(Protocol):
    """An encoder ready for inference over flat rows."""

    def __call__(self, rows: FlatRows, layers: Layers) -> dict[int, Tensor]:
        """The layers asked for, by number: [N, D] each."""

    def settle(self) -> None:
        """Prepare for much work: spend a moment on laying weights out, once."""

    def meet(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Told the pieces of all rows of a chunk, before its batches run."""


def freeze(encoder: Encoder, precision: Precision = "own") -> Frozen:
    """The fastest way to run this encoder that equals its forward pass.

    With another precision than the weights' own, products run in it and everything between them in fp32 (on a CPU).
    """
    if (precision == "bf16" and not bf16_is_fast()) or (precision == "int8" and not int8_is_fast()):
        warnings.warn(
            f"This processor has no instructions for {precision}; the vectors are the same, but come no sooner than "
            "in fp32.",
            PolysemeWarning,
            stacklevel=3,
        )
    if isinstance(encoder, Transformer) and _runs_flat(encoder):
        return FlatTransformer(encoder, precision)
    if precision != "own":
        raise OptionError(f"An encoder of kind {encoder.config.kind!r} cannot run in {precision} on a CPU. Use fp32.")
    if isinstance(encoder, (Recurrent, TwoWay)):
        return Stretched(encoder)
    return ByLength(encoder)


def _runs_flat(encoder: Transformer) -> bool:
    config = encoder.config
    return (
        config.direction in ("both", "none")
        and config.positions in ("learned", "sinusoidal", "none")
        and not (config.cross or config.gated)
    )


class ByLength:
    """Any encoder: its own forward pass, over the rows of one length at a time."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def settle(self) -> None:
        """Nothing to prepare."""

    def meet(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Nothing to learn from them."""

    @torch.inference_mode()
    def __call__(self, rows: FlatRows, layers: Layers) -> dict[int, Tensor]:
        found: dict[int, list[Tensor]] = {}
        for start, n_rows, length in rows.runs:
            run = slice(start, start + n_rows * length)
            shape = (n_rows, length, *rows.pieces.shape[1:])
            segments = None if rows.segments is None else rows.segments[run].view(n_rows, length)
            states = self.encoder(Batch(rows.pieces[run].view(shape), segments=segments), layers=layers)
            for number, layer in states.layers.items():
                found.setdefault(number, []).append(layer.flatten(0, 1))
        return {number: torch.cat(parts) for number, parts in found.items()}


class FlatTransformer:
    """The Transformer in which every piece sees its whole row, flat."""

    def __init__(self, encoder: Transformer, precision: Precision = "own") -> None:
        self.encoder = encoder
        self.layers = [FlatLayer(layer, PRODUCTS[precision]) for layer in encoder.layers]  # type: ignore[arg-type]
        self.settled = False
        if precision != "own":  # rounded results must not depend on how much work there is
            self.settle()

    def settle(self) -> None:
        if not self.settled:
            for layer in self.layers:
                layer.pack()
            self.settled = True

    def meet(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Nothing to learn from them."""

    @torch.inference_mode()
    def __call__(self, rows: FlatRows, layers: Layers) -> dict[int, Tensor]:
        encoder, config = self.encoder, self.encoder.config
        wanted = wanted_layers(layers, config.n_layers)
        x: Tensor = encoder.embeddings(rows.pieces, rows.positions(), rows.segments)  # [N, D]
        found = {0: x} if 0 in wanted else {}
        attend = attention_over(rows, x)
        for index in range(max(wanted, default=0)):
            x = self.layers[config.weight_sets[index]](x, attend)
            if index == config.n_layers - 1:
                x = encoder.norm(x)
            if index + 1 in wanted:
                found[index + 1] = x
        return found


class FlatLayer:
    """A Transformer layer over flat rows."""

    def __init__(self, layer: TransformerLayer, product: Callable[..., AnyProduct]) -> None:
        self.norm_first = layer.norm_first
        self.attention_norm = layer.attention_norm
        self.feed_forward_norm = layer.feed_forward_norm
        self.n_heads = layer.attention.n_heads
        self.scale = layer.attention.scale
        self.project = product(layer.attention.project)
        self.output = product(layer.attention.output)
        self.up = product(layer.feed_forward.up, layer.feed_forward.activation)
        self.down = product(layer.feed_forward.down)

    def pack(self) -> None:
        """Lay the weights out for this machine."""
        for product in (self.project, self.output, self.up, self.down):
            product.pack(PACKED_FOR)

    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        if self.norm_first:
            x = self.output(attend(self.project(self.attention_norm(x)), self.n_heads, self.scale), x)
            return self.down(self.up(self.feed_forward_norm(x)), x)
        x = self.attention_norm(self.output(attend(self.project(x), self.n_heads, self.scale), x))
        normed: Tensor = self.feed_forward_norm(self.down(self.up(x), x))
        return normed


Attend = Callable[[Tensor, int, float], Tensor]
"""Fused queries, keys and values [N, 3·H·d], the number of heads and the scale → [N, H·d]."""


def attention_over(rows: FlatRows, like: Tensor) -> Attend:
    """Attention within each of these rows, in the way that suits where `like` lives."""
    if like.is_cuda and like.dtype in (torch.bfloat16, torch.float16):
        varlen = optional("torch.nn.attention.varlen")  # from torch 2.10 on
        if varlen is not None:
            return _in_one_call(rows, varlen.varlen_attn)
    return _by_length(rows)


def _by_length(rows: FlatRows) -> Attend:
    """One call for the rows of each length."""

    def attend(fused: Tensor, n_heads: int, scale: float) -> Tensor:
        attended = fused.new_empty(fused.shape[0], fused.shape[1] // 3)
        for start, n_rows, length in rows.runs:
            run = slice(start, start + n_rows * length)
            parts = fused[run].view(n_rows, length, 3, n_heads, -1).permute(2, 0, 3, 1, 4)  # [3, R, H, T, d]
            out = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], scale=scale)
            attended[run].view(n_rows, length, n_heads, -1).copy_(out.transpose(1, 2))
        return attended

    return attend


def _in_one_call(rows: FlatRows, flash: Callable[..., Any]) -> Attend:
    """One call for rows of any lengths: flash attention, in half precision on a GPU."""
    device = rows.pieces.device
    longest = max(rows.lengths)
    ends = torch.tensor([0, *itertools.accumulate(rows.lengths)], dtype=torch.int32).to(device, non_blocking=True)

    def attend(fused: Tensor, n_heads: int, scale: float) -> Tensor:
        q, k, v = fused.view(fused.shape[0], 3, n_heads, -1).unbind(1)  # [N, H, d]
        attended: Tensor = flash(q, k, v, ends, ends, longest, longest, scale=scale)
        return attended.flatten(1)

    return attend
