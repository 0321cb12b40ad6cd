"""Transformers as inference runs them: rows packed, one after another, equal lengths together.

Linear layers run over all pieces at once, and attention over groups of rows: on a CPU rows of one length, on a GPU rows
of like lengths, padded within attention only. The encoder says what a piece sees and what positions do
(`Transformer.view`), so that every kind of mask and of positions runs packed as it runs padded. In half precision on a
GPU, all rows run in one call where masks are windows and positions leave the scores alone, and after `prepare` some of
it runs by kernels of ours (`packed_on_gpu.py`).

Shapes: N pieces of all rows, R rows of a group, T its longest, D width, H heads, d head width.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.encoders.encoder import Encoder, Layers, wanted_layers
from polyseme.encoders.inference import PackedPlaces, PackedRows, Precision
from polyseme.encoders.packed_on_gpu import PackedKernels, kernels_for
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.extras import optional
from polyseme.parts.attention import Attention
from polyseme.parts.inference_linear import LinearProduct, Product
from polyseme.parts.masks import Places, get_mask
from polyseme.parts.norms import Norm
from polyseme.parts.quantized_linear import HalfProduct, Int8Product
from polyseme.types import Batch

PRODUCTS: Mapping[Precision, type[LinearProduct]] = {"own": Product, "bf16": HalfProduct, "int8": Int8Product}

PACKED_FOR = 2048
"""Pieces in a product that packed weights are laid out for."""
LIKE_LENGTHS = {"cpu": 1, "cuda": 16}
"""Rows whose lengths are the same multiple of this, rounded up, form a group."""

Attend = Callable[[Tensor, Attention, str], Tensor]
"""Fused queries, keys and values [N, 3·H·d], the layer's attention and the name of its mask → [N, H·d]."""


def build(encoder: Encoder, precision: Precision) -> PackedTransformer | None:
    """Any Transformer that reads no source; else None."""
    if not isinstance(encoder, Transformer) or encoder.config.cross:
        return None
    return PackedTransformer(encoder, precision)


ROUNDED = ("attention.project", "attention.output", "feed_forward.up", "feed_forward.down")
"""The linear layers of a Transformer layer, which run in another precision where one is chosen."""


def rounded_layers(encoder: Encoder) -> list[str]:
    """The names of all linear layers that run in another precision, where one is chosen."""
    if not isinstance(encoder, Transformer) or encoder.config.cross:
        return []
    names = [f"layers.{number}.{name}" for number in range(len(encoder.layers)) for name in ROUNDED]
    return [name for name in names if encoder.get_parameter(f"{name}.weight").numel()]  # all heads may be pruned


class PackedTransformer:
    """A Transformer over packed rows (`InferenceEncoder`)."""

    def __init__(self, encoder: Transformer, precision: Precision = "own") -> None:
        self.encoder = encoder
        self.layers = [PackedLayer(layer, PRODUCTS[precision]) for layer in encoder.layers]  # type: ignore[arg-type]
        self.prepared = False
        self.kernels: PackedKernels | None = None
        if precision != "own":  # rounded results must not depend on how much work there is
            self.prepare()

    def prepare(self) -> None:
        if not self.prepared:
            self.kernels = kernels_for(self.encoder)
            for layer in self.layers:
                layer.pack()
                if self.kernels is not None:
                    layer.fuse_norms(self.kernels)
            self.prepared = True

    def warm_up(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Nothing to learn from them."""

    @torch.inference_mode()
    def __call__(self, rows: PackedRows, layers: Layers) -> dict[int, Tensor]:
        encoder, config = self.encoder, self.encoder.config
        numbers = wanted_layers(layers, config.n_layers)
        places = rows.places()
        x: Tensor = encoder.embeddings(rows.pieces, places.positions, rows.segments)  # [N, D]
        states = {0: x} if 0 in numbers else {}
        attend = attention_over(rows, places, encoder, x, self.kernels) if max(numbers, default=0) else None
        for index in range(max(numbers, default=0)):
            assert attend is not None
            x = self.layers[config.weight_sets[index]](x, attend, config.layer_masks[index])
            if index == config.n_layers - 1:
                x = encoder.norm(x)
            if index + 1 in numbers:
                states[index + 1] = x
        return states


class PackedLayer:
    """A Transformer layer over packed rows."""

    def __init__(self, layer: TransformerLayer, product: type[LinearProduct]) -> None:
        feed_forward = layer.feed_forward
        self.norm_first = layer.norm_first
        self.attention_norm = layer.attention_norm
        self.feed_forward_norm = layer.feed_forward_norm
        self.attention = layer.attention
        attention = layer.attention
        self.of_heads = [product(attention.project), product(attention.output)] if attention.n_heads else []
        """Products around attention; none where all heads are pruned."""
        self.gate = feed_forward.activation if feed_forward.gated else None
        self.up = product(feed_forward.up, None if feed_forward.gated else feed_forward.activation)
        self.down = product(feed_forward.down)
        self.kernels: PackedKernels | None = None
        self.fused_norms: dict[nn.Module, Norm] = {}
        """Norms that the kernels compute together with the residual sum before them."""

    def pack(self) -> None:
        """Lay the weights out for this machine."""
        for product in (*self.of_heads, self.up, self.down):
            product.pack(PACKED_FOR)

    def fuse_norms(self, kernels: PackedKernels) -> None:
        """Compute each residual sum and the norm after it in one kernel from here on."""
        self.kernels = kernels
        norms = {norm: Norm.of(norm) for norm in (self.attention_norm, self.feed_forward_norm)}
        self.fused_norms = {module: norm for module, norm in norms.items() if norm.weight is not None}

    def __call__(self, x: Tensor, attend: Attend, mask: str) -> Tensor:
        if self.norm_first:
            read = self._attention_output(self.attention_norm(x), attend, mask)
            x, normed = self._add_and_norm(read, x, self.feed_forward_norm, summed=True)
            return self.down(self._inner(normed), x)
        x = self._add_and_norm(self._attention_output(x, attend, mask), x, self.attention_norm)[1]
        return self._add_and_norm((self.down, self._inner(x)), x, self.feed_forward_norm)[1]

    def _attention_output(self, x: Tensor, attend: Attend, mask: str) -> tuple[LinearProduct, Tensor] | Tensor | None:
        """What attention adds: a product and what it reads; without heads its bias."""
        if not self.of_heads:
            bias: Tensor | None = self.attention.output.bias
            return bias
        project, output = self.of_heads
        return output, attend(project(x), self.attention, mask)

    def _add_and_norm(
        self,
        added: tuple[LinearProduct, Tensor] | Tensor | None,
        residual: Tensor,
        norm: nn.Module,
        *,
        summed: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The sum of the residual and what is added, and its norm. The sum is only valid with `summed`."""
        if not isinstance(added, tuple):
            total = residual if added is None else residual + added
            return total, norm(total)
        product, x = added
        if self.kernels is not None and norm in self.fused_norms:
            return self.kernels.add_and_norm(product(x), residual, self.fused_norms[norm], summed=summed)
        total = product(x, residual)
        return total, norm(total)

    def _inner(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.gate is None:
            return inner
        gate, inner = inner.chunk(2, dim=-1)
        return self.gate(gate).mul_(inner)


def attention_over(
    rows: PackedRows, places: PackedPlaces, encoder: Transformer, like: Tensor, kernels: PackedKernels | None = None
) -> Attend:
    """Attention within each of these rows, by the path that suits where `like` is."""
    if like.is_cuda and like.dtype in (torch.bfloat16, torch.float16):
        varlen = optional("torch.nn.attention.varlen")  # from torch 2.10 on
        if varlen is not None and runs_in_one_call(encoder, varlen.varlen_attn):
            return _in_one_call(rows, places, encoder, varlen.varlen_attn, kernels)
    return _by_group(rows, encoder, like)


def _by_group(rows: PackedRows, encoder: Transformer, like: Tensor) -> Attend:
    """One call for each group of rows."""
    groups = []
    start = 0
    step = LIKE_LENGTHS.get(like.device.type, 1)
    for _, group in itertools.groupby(rows.lengths, key=lambda length: -(-length // step)):
        lengths = list(group)
        groups.append(_Group(rows, start, lengths, encoder, like))
        start += sum(lengths)

    def attend(fused: Tensor, attention: Attention, mask: str) -> Tensor:
        attended = fused.new_empty(fused.shape[0], fused.shape[1] // 3)
        for group in groups:
            group.attend(fused, attention, mask, attended)
        return attended

    return attend


class _Group:
    """Rows that stand side by side among the packed pieces and run attention together."""

    def __init__(self, rows: PackedRows, start: int, lengths: list[int], encoder: Transformer, like: Tensor) -> None:
        device = rows.pieces.device
        longest = max(lengths)
        self.shape = (len(lengths), longest)
        self.run = slice(start, start + sum(lengths))
        self.from_packed: Tensor | None = None
        """[R, T]: which packed piece stands where; a padded place has the row's first. None: no row is padded."""
        self.to_packed: Tensor | None = None
        """[n]: where among [R · T] each packed piece of the group stands."""
        real: Tensor | None = None
        if min(lengths) < longest:
            of_rows = torch.tensor(lengths)
            starts = start + of_rows.cumsum(0) - of_rows
            places = torch.arange(longest)
            there = places < of_rows[:, None]
            self.from_packed = torch.where(there, starts[:, None] + places, starts[:, None]).to(device)
            self.to_packed = there.flatten().nonzero().flatten().to(device)
            real = of_rows.to(device)
        pieces = self._pad(rows.pieces)
        segments = None if rows.segments is None else self._pad(rows.segments)
        view = encoder.view(Batch(pieces, real, segments))
        self.terms = view.terms
        self.causal = {name: seen.causal and self.terms[name] is None for name, seen in view.seen.items()}
        self.hidden: dict[str, Tensor | None] = {}
        """Minus infinity where a key is not seen, [R or 1, 1, 1 or T, T]; None: everything is, or causally."""
        for name, seen in view.seen.items():
            allowed = None if self.causal[name] else seen.written_out(longest, longest, device)
            zeros = None if allowed is None else torch.zeros(allowed.shape, dtype=like.dtype, device=device)
            self.hidden[name] = None if zeros is None else zeros.masked_fill_(~allowed, float("-inf"))  # type: ignore[operator]

    def _pad(self, packed: Tensor) -> Tensor:
        """[N, …] → [R, T, …]"""
        if self.from_packed is not None:
            return packed[self.from_packed]
        return torch.unflatten(packed[self.run], 0, self.shape)

    def attend(self, fused: Tensor, attention: Attention, mask: str, attended: Tensor) -> None:
        """Write what the group's pieces attend to into `attended` [N, H·d]."""
        parts = self._pad(fused).unflatten(-1, (3, attention.n_heads, -1)).permute(2, 0, 3, 1, 4)  # [3, R, H, T, d]
        if attention.relative is not None:  # its weights are not rounded with the products'
            parts = parts.to(next(attention.relative.parameters()).dtype)
        q, k, v = parts.unbind(0)
        bias, terms = self.hidden[mask], self.terms[mask]
        if terms is not None:
            q, k, added = terms.apply(q, k, attention.scale, attention.relative, attention.heads)
            bias = added if bias is None else bias if added is None else added + bias
        out = F.scaled_dot_product_attention(q, k, v, bias, 0.0, self.causal[mask], scale=attention.scale)
        out = out.transpose(1, 2).flatten(2)  # [R, T, H·d]
        if self.to_packed is None:
            attended[self.run].unflatten(0, self.shape).copy_(out)
        else:
            torch.index_select(out.flatten(0, 1), 0, self.to_packed, out=attended[self.run])


def runs_in_one_call(encoder: Transformer, flash: Callable[..., Any]) -> bool:
    """Whether masks are windows that `flash` knows, and positions, if any, only turn queries and keys."""
    windows = {get_mask(name).window for name in encoder.config.layer_masks}
    knows_windows = "window_size" in inspect.signature(flash).parameters
    return (encoder.positions is None or encoder.positions.runs_flat) and (knows_windows or windows == {(-1, -1)})


def _in_one_call(
    rows: PackedRows,
    places: PackedPlaces,
    encoder: Transformer,
    flash: Callable[..., Any],
    kernels: PackedKernels | None = None,
) -> Attend:
    """One call for rows of any lengths, in half precision on a GPU: flash attention, or a kernel for short rows."""
    longest = max(rows.lengths)
    positions = places.positions[None]
    all_terms = encoder.terms(Batch(rows.pieces[None], positions=positions), Places(positions, positions, None, False))
    windows = {name: get_mask(name).window for name in all_terms}
    if kernels is not None and not kernels.suits(rows.lengths, len(rows.pieces)):
        kernels = None

    def attend(fused: Tensor, attention: Attention, mask: str) -> Tensor:
        q, k, v = fused.unflatten(1, (3, attention.n_heads, -1)).unbind(1)  # [N, H, d]
        terms, window = all_terms[mask], windows[mask]
        if terms is not None:
            turned = terms.apply(q.transpose(0, 1)[None], k.transpose(0, 1)[None], attention.scale, None)[:2]
            q, k = (each[0].transpose(0, 1) for each in turned)
        if kernels is not None:
            return kernels.attend(q, k, v, places.row_of, places.bounds, attention.scale, window)
        more = {} if window == (-1, -1) else {"window_size": window}
        bounds = places.bounds
        attended: Tensor = flash(q, k, v, bounds, bounds, longest, longest, scale=attention.scale, **more)
        return attended.flatten(1)

    return attend
