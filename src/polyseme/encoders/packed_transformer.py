"""Transformers as inference runs them: rows flat, one after another, equal lengths together.

Linear layers run over all pieces at once, and attention over the rows of one length together.

Shapes: N pieces of all rows, R rows of one length T, D width, H heads, d head width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyseme.encoders.encoder import Encoder, Layers, wanted_layers
from polyseme.encoders.inference import PackedRows, Precision
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.extras import optional
from polyseme.parts.inference_linear import Product
from polyseme.parts.quantized_linear import HalfProduct, Int8Product

AnyProduct = Product | HalfProduct | Int8Product
PRODUCTS: Mapping[Precision, Callable[..., AnyProduct]] = {"own": Product, "bf16": HalfProduct, "int8": Int8Product}

PACKED_FOR = 2048
"""Pieces in a product that packed weights are laid out for."""


def build(encoder: Encoder, precision: Precision) -> PackedTransformer | None:
    """A Transformer in which every piece sees its whole row, or all that stands before it; else None."""
    if not isinstance(encoder, Transformer):
        return None
    config = encoder.config
    alike = config.layer_masks in (("all",) * config.n_layers, ("causal",) * config.n_layers)
    runs_flat = (
        alike
        and not config.query_stream
        and config.positions in ("learned", "sinusoidal", "none")
        and not (config.cross or config.gated)
    )
    return PackedTransformer(encoder, precision) if runs_flat else None


class PackedTransformer:
    """The Transformer in which every piece sees its whole row, or all that stands before it, flat."""

    def __init__(self, encoder: Transformer, precision: Precision = "own") -> None:
        self.encoder = encoder
        self.layers = [PackedLayer(layer, PRODUCTS[precision]) for layer in encoder.layers]  # type: ignore[arg-type]
        self.prepared = False
        if precision != "own":  # rounded results must not depend on how much work there is
            self.prepare()

    def prepare(self) -> None:
        if not self.prepared:
            for layer in self.layers:
                layer.pack()
            self.prepared = True

    def warm_up(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Nothing to learn from them."""

    @torch.inference_mode()
    def __call__(self, rows: PackedRows, layers: Layers) -> dict[int, Tensor]:
        encoder, config = self.encoder, self.encoder.config
        wanted = wanted_layers(layers, config.n_layers)
        x: Tensor = encoder.embeddings(rows.pieces, rows.positions(), rows.segments)  # [N, D]
        found = {0: x} if 0 in wanted else {}
        attend = attention_over(rows, x, causal=config.direction == "causal")
        for index in range(max(wanted, default=0)):
            x = self.layers[config.weight_sets[index]](x, attend)
            if index == config.n_layers - 1:
                x = encoder.norm(x)
            if index + 1 in wanted:
                found[index + 1] = x
        return found


class PackedLayer:
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


def attention_over(rows: PackedRows, like: Tensor, *, causal: bool = False) -> Attend:
    """Attention within each of these rows, in the way that suits where `like` lives."""
    if like.is_cuda and like.dtype in (torch.bfloat16, torch.float16) and not causal:
        varlen = optional("torch.nn.attention.varlen")  # from torch 2.10 on
        if varlen is not None:
            return _in_one_call(rows, varlen.varlen_attn)
    return _by_length(rows, causal)


def _by_length(rows: PackedRows, causal: bool) -> Attend:
    """One call for the rows of each length."""

    def attend(fused: Tensor, n_heads: int, scale: float) -> Tensor:
        attended = fused.new_empty(fused.shape[0], fused.shape[1] // 3)
        for start, n_rows, length in rows.runs:
            run = slice(start, start + n_rows * length)
            parts = fused[run].view(n_rows, length, 3, n_heads, -1).permute(2, 0, 3, 1, 4)  # [3, R, H, T, d]
            out = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=causal, scale=scale)
            attended[run].view(n_rows, length, n_heads, -1).copy_(out.transpose(1, 2))
        return attended

    return attend


def _in_one_call(rows: PackedRows, flash: Callable[..., Any]) -> Attend:
    """One call for rows of any lengths: flash attention, in half precision on a GPU."""
    device = rows.pieces.device
    longest = max(rows.lengths)
    ends = torch.tensor([0, *itertools.accumulate(rows.lengths)], dtype=torch.int32).to(device, non_blocking=True)

    def attend(fused: Tensor, n_heads: int, scale: float) -> Tensor:
        q, k, v = fused.view(fused.shape[0], 3, n_heads, -1).unbind(1)  # [N, H, d]
        attended: Tensor = flash(q, k, v, ends, ends, longest, longest, scale=scale)
        return attended.flatten(1)

    return attend
