"""The fast step in fewer and larger kernels, on a GPU: five for each layer, and two for the vocabulary.

A norm belongs to the product that reads it, and bias, activation, residual and the writing of the cache to the product
before them. Where norms come after, states are passed on as they are before their norm, and both who multiplies them
and who adds to them norm them anew. `FastSteps.run` is the specification.

Shapes: R rows, D width, H heads, d head width, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.generating.fast_decoder import scores_of
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput, TableOutput
from polyseme.parts.attention import Attention
from polyseme.parts.feed_forward import ACTIVATIONS, Activation
from polyseme.parts.masks import mask_named
from polyseme.parts.memory_and_cache import Cache

FEW = 4
"""Rows for which a product holds its weights in registers."""
MOST_ROWS = 64
"""Rows beyond which a matrix product of torch is as good."""
WIDEST = 8192
"""Inputs of a product beyond which its weights do not fit into registers."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
NAMES: Mapping[Activation, str] = {function: name for name, function in ACTIVATIONS.items()}


def power_of_two(number: int) -> int:
    """The next power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()


@dataclass
class Norm:
    """A norm as kernels read it."""

    kind: str = "none"
    weight: Tensor | None = None
    bias: Tensor | None = None
    epsilon: float = 0.0

    @classmethod
    def of(cls, module: nn.Module) -> Norm:
        if isinstance(module, nn.LayerNorm):
            return cls("layer", module.weight.detach(), _detached(module.bias), module.eps)
        if isinstance(module, nn.RMSNorm):
            epsilon = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
            return cls("rms", module.weight.detach(), None, epsilon)
        return cls()


@dataclass
class State:
    """States [R, D] that a norm is still to be applied to."""

    raw: Tensor
    norm: Norm = field(default_factory=Norm)


@dataclass
class Choosing:
    """What the vocabulary's blocks find, and where the choice is written."""

    never: Tensor
    """[V]: 1 for pieces that are forbidden."""
    best: Tensor
    piece: Tensor
    top: Tensor
    total: Tensor


class Launcher:
    """Starts the kernels; `early`: each while the one before it still runs."""

    def __init__(self, kernels: ModuleType, *, early: bool) -> None:
        self.kernels = kernels
        self.early = early
        self.more: dict[str, Any] = {"launch_pdl": True} if early else {}

    def __call__(self, kernel: Any, grid: tuple[int, ...], *given: Any, warps: int, stages: int = 3, **sizes: Any) -> None:
        kernel[grid](*given, **sizes, EARLY=self.early, num_warps=warps, num_stages=stages, **self.more)


class RowsProduct:
    """act(norm(x)·Wᵀ + b) + residual for a few rows, in one kernel."""

    def __init__(
        self,
        launch: Launcher,
        weight: Tensor,
        bias: Tensor | None,
        activation: str = "none",
        *,
        gated: bool = False,
        head: int = 1,
        scale: float = 1.0,
    ) -> None:
        self.launch = launch
        self.weight = weight
        self.bias = bias
        self.activation = activation
        self.gated = gated
        self.head = head
        self.scale = scale
        self.n_results, self.n_inputs = weight.shape[0] // (2 if gated else 1), weight.shape[1]

    def blocks(self, n_rows: int) -> dict[str, int]:
        """How the product is cut, and how many warps and stages a block has."""
        whole = power_of_two(self.n_inputs)
        if n_rows <= FEW:
            most = 16384 if self.n_results > 16384 else 8192
            block = max(power_of_two(self.n_results // 256 + 1), 4096 // whole)
            block = max(min(block, most // whole // (2 if self.gated else 1), max(16, 4096 // whole)), 1)
            return {"WHOLE": whole, "BLOCK_N": block, "BLOCK_K": 1, "warps": 4 if block * whole <= 4096 else 8, "stages": 1}
        rows = max(power_of_two(n_rows), 16)
        block = 64 if self.n_results > 16384 or self.n_inputs <= 64 else 16
        inputs = 128 if self.n_inputs % 128 == 0 else 64
        return {"WHOLE": rows, "BLOCK_N": block, "BLOCK_K": inputs, "warps": 4, "stages": 4}

    def __call__(
        self,
        x: State,
        residual: State | None = None,
        *,
        cache: tuple[Tensor, Tensor, Tensor] | None = None,
        scores: Tensor | None = None,
        choosing: Choosing | None = None,
    ) -> Tensor:
        """[R, N]; with a `cache` of keys, values and lengths, queries alone are returned."""
        raw, norm = x.raw, x.norm
        n_rows = len(raw)
        blocks = self.blocks(n_rows)
        kernels = self.launch.kernels
        end = "write" if cache is None else "cache"
        keys, values, lengths = cache or (raw, raw, raw)
        if scores is not None or choosing is not None:
            end = "scores" if choosing is None else "choose" if scores is None else "choose and scores"
            values = raw if scores is None else scores
        found = Choosing(raw, raw, raw, raw, raw) if choosing is None else choosing
        n_written = self.n_results // 3 if end == "cache" else 0 if end not in ("write", "cache") else self.n_results
        out = raw.new_empty(n_rows, n_written)
        added = Norm() if residual is None else residual.norm
        n_read = max(self.n_inputs if norm.kind != "none" else 1, self.n_results if added.kind != "none" else 1)
        statistics = min(power_of_two(n_read), max(16384 // blocks["WHOLE"], 64)) if n_rows > FEW else power_of_two(n_read)
        warps, stages = blocks.pop("warps"), blocks.pop("stages")
        self.launch(
            kernels.few_rows if n_rows <= FEW else kernels.many_rows,
            (-(-self.n_results // blocks["BLOCK_N"]),),
            raw,
            _or(norm.weight, raw),
            _or(norm.bias, raw),
            self.weight,
            _or(self.bias, raw),
            raw if residual is None else residual.raw,
            _or(added.weight, raw),
            _or(added.bias, raw),
            out,
            keys,
            values,
            lengths,
            found.never,
            found.best,
            found.piece,
            found.top,
            found.total,
            norm.epsilon if norm.kind != "none" else added.epsilon,
            self.scale,
            0 if cache is None else keys.stride(0),
            0 if cache is None else keys.stride(1),
            0 if cache is None else keys.stride(2),
            R=n_rows,
            N=self.n_results,
            K=self.n_inputs,
            NORM=norm.kind,
            NORM_BIAS=norm.bias is not None,
            SCALED=self.scale != 1.0,
            BIAS=self.bias is not None,
            ACTIVATION=self.activation,
            GATED=self.gated,
            RESIDUAL="" if residual is None else "plain" if added.kind == "none" else "normed",
            RESIDUAL_NORM=added.kind,
            RESIDUAL_NORM_BIAS=added.bias is not None,
            STATISTICS=statistics,
            END=end,
            HEAD=self.head,
            **blocks,
            warps=warps,
            stages=stages,
        )
        return out


@dataclass
class LayerProducts:
    """The products of one set of weights."""

    project: RowsProduct
    attended: RowsProduct
    up: RowsProduct
    down: RowsProduct
    query: RowsProduct | None
    answered: RowsProduct | None
    norms: dict[str, Norm]


class KernelSteps:
    """The step of `FastSteps` for few rows on a GPU; only for what `kernels_fit`."""

    def __init__(
        self,
        encoder: Transformer,
        output: Output,
        bias_of: Callable[[int], Tensor],
        kernels: ModuleType,
        *,
        early: bool,
    ) -> None:
        self.encoder = encoder
        self.output = output
        self.bias_of = bias_of
        """How many distances → the bias of each, [H, distances]."""
        self.launch = Launcher(kernels, early=early)
        self.layers = [self._products(cast(TransformerLayer, layer)) for layer in encoder.layers]
        self.final = Norm.of(encoder.norm)
        self.vocabulary: RowsProduct | None = None
        if isinstance(output, (CausalOutput, TableOutput)):
            bias = output.bias if isinstance(output, TableOutput) else None
            scale = output.scale if isinstance(output, TableOutput) else 1.0
            self.vocabulary = RowsProduct(self.launch, output.table.detach(), _detached(bias), scale=scale)

    def _products(self, layer: TransformerLayer) -> LayerProducts:
        def product(linear: nn.Linear, **more: Any) -> RowsProduct:
            return RowsProduct(self.launch, linear.weight.detach(), _detached(linear.bias), **more)

        attention, cross, feed_forward = layer.attention, layer.cross, layer.feed_forward
        query = None
        if cross is not None:
            bias = cross.project.bias
            rows = slice(0, cross.inner_width)
            query = RowsProduct(
                self.launch, cross.project.weight.detach()[rows], None if bias is None else bias.detach()[rows]
            )
        norms = {"attention": layer.attention_norm, "feed_forward": layer.feed_forward_norm}
        if layer.cross_norm is not None:
            norms["cross"] = layer.cross_norm
        return LayerProducts(
            project=product(attention.project, head=attention.head_width),
            attended=product(attention.output),
            up=product(feed_forward.up, activation=NAMES[feed_forward.activation], gated=feed_forward.gated),
            down=product(feed_forward.down),
            query=query,
            answered=None if cross is None else product(cross.output),
            norms={name: Norm.of(module) for name, module in norms.items()},
        )

    def states(self, pieces: Tensor, memory: Cache) -> State:
        """The top layer after `pieces` [R], which are written into slots `memory.lengths`; final norm pending."""
        encoder, config = self.encoder, self.encoder.config
        lengths = memory.lengths
        x = State(encoder.embeddings(pieces[:, None], lengths[:, None], None)[:, 0].contiguous())  # [R, D]
        for index, number in enumerate(config.weight_sets):
            layer, products = cast(TransformerLayer, encoder.layers[number]), self.layers[number]
            first = layer.norm_first
            keys, values = memory.keys[index], memory.values[index]
            queries = products.project(
                State(x.raw, products.norms["attention"]) if first else x, cache=(keys, values, lengths)
            )
            width = mask_named(config.layer_masks[index]).window[0] + 1
            answer = self._attend(layer.attention, queries, keys, values, lengths, own=True, width=width)
            x = State(products.attended(State(answer), x), Norm() if first else products.norms["attention"])
            if layer.cross is not None and products.query is not None and products.answered is not None:
                queries = products.query(State(x.raw, products.norms["cross"]) if first else x)
                keys, values = memory.source_keys[index], memory.source_values[index]
                answer = self._attend(layer.cross, queries, keys, values, memory.source_lengths, own=False)
                x = State(products.answered(State(answer), x), Norm() if first else products.norms["cross"])
            inner = products.up(State(x.raw, products.norms["feed_forward"]) if first else x)
            x = State(products.down(State(inner), x), Norm() if first else products.norms["feed_forward"])
        return x

    def _top(self, pieces: Tensor, memory: Cache) -> State:
        """The top layer, with at most one norm still to be applied."""
        x = self.states(pieces, memory)
        if x.norm.kind == "none":
            return State(x.raw, self.final)
        if self.final.kind == "none":
            return x
        return State(applied(x), self.final)

    def scores(self, pieces: Tensor, memory: Cache) -> Tensor:
        """The scores [R, V] of what follows `pieces` [R]."""
        x = self._top(pieces, memory)
        if self.vocabulary is None:
            return scores_of(self.output, applied(x))
        scores = x.raw.new_empty(len(pieces), self.vocabulary.n_results, dtype=torch.float32)
        self.vocabulary(x, scores=scores)
        return scores

    def choose(self, pieces: Tensor, memory: Cache, never: Tensor, chosen: Tensor, likelihoods: Tensor) -> None:
        """Read `pieces` [R], and put the likeliest of what follows in their place; lengths are one more then.

        It is written to `chosen` [R], too, with its log-probability to `likelihoods` [R]. `never` [V] is 1 for pieces
        that are forbidden.
        """
        assert self.vocabulary is not None
        x = self._top(pieces, memory)
        n_rows, vocabulary = len(pieces), self.vocabulary
        n_blocks = -(-vocabulary.n_results // vocabulary.blocks(n_rows)["BLOCK_N"])
        best, top, total = (x.raw.new_empty(n_rows, n_blocks, dtype=torch.float32) for _ in range(3))
        piece = torch.empty_like(best, dtype=torch.int32)
        vocabulary(x, choosing=Choosing(never, best, piece, top, total))
        self.launch(
            self.launch.kernels.choose,
            (n_rows,),
            best,
            piece,
            top,
            total,
            pieces,
            chosen,
            likelihoods,
            memory.lengths,
            n_blocks,
            BLOCKS=power_of_two(n_blocks),
            warps=8,
        )

    def _attend(
        self,
        attention: Attention,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        lengths: Tensor | None,
        *,
        own: bool,
        width: int = 0,
    ) -> Tensor:
        n_rows, n_heads, n_slots, head_width = keys.shape
        biases = queries
        is_biased = own and self.encoder.positions is not None
        if is_biased:
            biases = self.bias_of(n_slots)
            if attention.heads is not None:
                biases = torch.cat([biases[head : head + 1] for head in attention.heads])
        out = torch.empty_like(queries)
        self.launch(
            self.launch.kernels.attend,
            (n_rows, n_heads),
            queries,
            keys,
            values,
            queries if lengths is None else lengths,
            biases,
            out,
            attention.scale,
            width or n_slots + 1,
            n_slots,
            queries.stride(0),
            keys.stride(0),
            keys.stride(1),
            keys.stride(2),
            biases.shape[-1],
            HEADS=n_heads,
            HEAD=head_width,
            HEAD_BLOCK=power_of_two(head_width),
            BLOCK=max(min(8192 // power_of_two(head_width), power_of_two(n_slots)), 16),
            OWN=own,
            ALL=lengths is None,
            BIASED=is_biased,
            warps=4,
        )
        return out


def applied(x: State) -> Tensor:
    """States with their norm applied."""
    norm, width = x.norm, x.raw.shape[1:]
    if norm.kind == "layer":
        return F.layer_norm(x.raw, width, norm.weight, norm.bias, norm.epsilon)
    return F.rms_norm(x.raw, width, norm.weight, norm.epsilon) if norm.kind == "rms" else x.raw


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()
