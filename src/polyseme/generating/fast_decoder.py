"""One more piece per row, as fast as the machine reads the weights.

With one piece per row nearly all time goes into reading weights, so that their layout decides: on a CPU matrices are
packed, which with AVX-512 is also best for one row. With AVX2 one row reads a matrix with more results than inputs by
its inputs (transposed), any other by its results. That takes as long as some dozens of steps and a copy of the weights,
so it waits until `prepare` is called; each layout is then made when it is first needed. Caches are written in place,
and only as much of them is read as is filled.

On a CPU, products may run in bf16 or int8 (`precision`), that of the vocabulary too: fewer bytes to read. They are then
laid out at once, so that results do not depend on how much work there is.

On a GPU the time goes into starting kernels instead. There the step is captured once as a graph for each number of rows
and slots, over buffers of its own, and replayed. What runs is the same function, with all slots read and the empty ones
hidden, so that no shape depends on data. For much work, the choice of the likeliest piece is captured with the step,
and steps of few rows run by `KernelSteps`, which computes the same in fewer and larger kernels.

Shapes: R rows, S slots, D width, H heads, d head width, V pieces in the vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.encoders.encoder import Encoder
from polyseme.encoders.inference import Precision
from polyseme.encoders.packed_transformer import PRODUCTS
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.errors import ModelError
from polyseme.generating.kernel_steps import KernelSteps, kernel_steps
from polyseme.generating.step_graph import Graph
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput, TableOutput, scores_of
from polyseme.parts.attention import Attention
from polyseme.parts.bucketed_positions import BucketBias
from polyseme.parts.feed_forward import Activation, FeedForward
from polyseme.parts.inference_linear import LinearProduct, Product, packing_suits_one_row
from polyseme.parts.masks import Places, get_mask, visible_keys
from polyseme.parts.memory_and_cache import Cache
from polyseme.parts.positions import of_heads
from polyseme.parts.precision import single_precision

PACKED_ROWS = 16
"""Rows that packed weights are laid out for."""
ROUND_DISTANCES = 128
"""Biases of distances are looked up for so many at once, or a multiple."""
MOST_GRAPHS = 4
"""Graphs, each with a cache of its own, that are kept at once."""


def steps_fast(encoder: Encoder) -> bool:
    """Whether `FastSteps` equals this encoder's forward pass."""
    if not isinstance(encoder, Transformer):
        return False
    config = encoder.config
    return (
        config.memory == "cache"
        and config.direction == "causal"
        and config.positions in ("learned", "sinusoidal", "buckets", "none")
    )


MakeProduct = Callable[[Tensor, "Tensor | None", "Activation | None"], LinearProduct]
"""Weight, bias and activation → the product, laid out."""


class RowProduct(LinearProduct):
    """The product of one row: every weight is read once, in the order in which it lies."""

    def _fill(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        n_results, n_inputs = weight.shape
        self.weight = weight.t().contiguous().t() if n_results >= n_inputs else weight
        self.bias = bias
        self.activation = activation

    def pack(self, n_pieces: int) -> None:
        """The weights are laid out for one row."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        if self.activation is not None:
            y = self.activation(y)
        return y if residual is None else y.add_(residual)


class Layout:
    """The products of a whole model, laid out for one row or for many."""

    def __init__(self, encoder: Transformer, output: Output, make: MakeProduct) -> None:
        def product(
            linear: nn.Linear, activation: Activation | None = None, n_first: int | None = None
        ) -> LinearProduct:
            bias = None if linear.bias is None else linear.bias.detach()[:n_first]
            weight = linear.weight.detach()[:n_first]
            laid_out = make if weight.numel() else Product.of  # of a layer without heads, nothing is
            return laid_out(weight, bias, activation)

        def inner(feed_forward: FeedForward) -> Callable[[Tensor], Tensor]:
            if not feed_forward.gated:
                return product(feed_forward.up, feed_forward.activation)
            up = product(feed_forward.up)

            def gated(x: Tensor) -> Tensor:
                gate, inner = up(x).chunk(2, dim=-1)
                return feed_forward.activation(gate) * inner

            return gated

        layers = [cast(TransformerLayer, layer) for layer in encoder.layers]
        crosses = [layer.cross for layer in layers if layer.cross is not None]
        self.project = [product(layer.attention.project) for layer in layers]
        self.attended = [product(layer.attention.output) for layer in layers]
        self.queries = [product(cross.project, n_first=cross.inner_width) for cross in crosses]
        self.answered = [product(cross.output) for cross in crosses]
        self.up = [inner(layer.feed_forward) for layer in layers]
        self.down = [product(layer.feed_forward.down) for layer in layers]
        self.vocabulary: LinearProduct | None = None
        self.scale = 1.0
        if isinstance(output, (CausalOutput, TableOutput)):
            bias = output.bias if isinstance(output, TableOutput) else None
            self.scale = output.scale if isinstance(output, TableOutput) else 1.0
            self.vocabulary = make(output.table.detach(), None if bias is None else bias.detach(), None)


def _packed_product(precision: Precision) -> MakeProduct:
    def make(weight: Tensor, bias: Tensor | None, activation: Activation | None) -> LinearProduct:
        product = PRODUCTS[precision].of(weight, bias, activation)
        product.pack(PACKED_ROWS)
        return product

    return make


LAYOUTS: Mapping[str, MakeProduct] = {
    "plain": Product.of,
    "one row": RowProduct.of,
    **{precision: _packed_product(precision) for precision in PRODUCTS},
}


class FastSteps:
    """A causal Transformer with a cache and its output: `step(pieces [R], cache)` → log-probabilities, cache.

    The keys of a source, where there is one, are in the cache.
    """

    def __init__(self, encoder: Encoder, output: Output, precision: Precision = "own") -> None:
        if not isinstance(encoder, Transformer) or not steps_fast(encoder):
            raise ModelError(f"An encoder of kind {encoder.config.kind!r} with these settings has no fast step.")
        self.encoder = encoder
        self.output = output
        self.precision: Precision = precision
        self.greedy = False
        """Whether greedy decoding chooses pieces within the step (`greedy_steps`)."""
        self._is_prepared = precision != "own"
        self._layouts: dict[str, Layout] = {}
        self._graphs: OrderedDict[tuple[int, ...], Graph] = OrderedDict()
        self._by_distance: dict[int, Tensor] = {}  # all are kept: a graph reads the one that it was captured with
        self._kernels: KernelSteps | None = None

    @torch.no_grad()
    def prepare(self, *, kernels: bool | None = None) -> None:
        """Prepare for much work: lay weights out, each layout once, when it is first needed.

        With `kernels` (None: on a GPU), greedy decoding chooses pieces within the step (`greedy_steps`), and on a GPU
        steps of few rows run by `KernelSteps`, after a trial against the plain step.
        """
        self._is_prepared = True
        if kernels is None:
            kernels = next(self.encoder.embeddings.parameters()).device.type == "cuda"
        if kernels and not self.greedy:
            self.greedy = True
            if self.precision == "own":
                self._kernels = kernel_steps(self.encoder, self.output, self._biases, self._plain_scores)
            self._graphs.clear()

    @torch.no_grad()
    def __call__(self, pieces: Tensor, memory: Cache) -> tuple[Tensor, Cache]:
        """Read one piece per row; the cache is written in place."""
        if pieces.device.type == "cuda":
            return self._graph(memory)(pieces, memory)
        lengths = memory.lengths
        lengths_now = lengths.tolist()
        n_slots = max(lengths_now) + 1
        level = min(lengths_now) + 1 == n_slots
        scores = self.run(pieces, memory, n_slots=n_slots, level=level)
        return scores, dataclasses.replace(memory, lengths=lengths + 1)

    @torch.no_grad()
    def greedy_steps(
        self, pieces: Tensor, memory: Cache, forbidden: Tensor, n_new: int
    ) -> tuple[Tensor, Tensor, Cache]:
        """Read one piece per row, and `n_new` - 1 more, each the likeliest that follows.

        The likeliest pieces [n_new, R], the last of which is not read, and their log-probabilities. `forbidden` [V] is
        1 for pieces that are forbidden.
        """
        return self._graph(memory).greedy_steps(pieces, memory, forbidden, n_new)

    def scores(self, pieces: Tensor, memory: Cache, *, n_slots: int) -> Tensor:
        """`run`, by kernels where these serve so many rows."""
        if self._kernels is not None and self._kernels.serves(len(pieces)):
            return self._kernels.scores(pieces, memory)
        return self.run(pieces, memory, n_slots=n_slots)

    def greedy_step(
        self, pieces: Tensor, memory: Cache, forbidden: Tensor, chosen: Tensor, likelihoods: Tensor, *, n_slots: int
    ) -> None:
        """Read `pieces` [R], put the likeliest of what follows in their place, and add 1 to the lengths.

        The piece is also written to `chosen` [R], and its log-probability to `likelihoods` [R].
        """
        if self._kernels is not None and self._kernels.serves_greedy_step(len(pieces)):
            self._kernels.greedy_step(pieces, memory, forbidden, chosen, likelihoods)
            return
        scores = self.scores(pieces, memory, n_slots=n_slots)
        torch.argmax(scores.masked_fill(forbidden.bool(), float("-inf")), dim=-1, out=chosen)
        likelihoods.copy_(scores.log_softmax(dim=-1).gather(1, chosen[:, None])[:, 0])
        pieces.copy_(chosen)
        memory.lengths.add_(1)

    def _plain_scores(self, pieces: Tensor, memory: Cache) -> Tensor:
        return self.run(pieces, memory, n_slots=memory.keys[0].shape[2])

    def run(self, pieces: Tensor, memory: Cache, *, n_slots: int, level: bool = False) -> Tensor:
        """The step itself: log-probabilities [R, V] after `pieces` [R], written into slots `memory.lengths`.

        The first `n_slots` slots are read. Rows are `level` if they are equally long and fill all of these.
        """
        encoder, config = self.encoder, self.encoder.config
        layout = self._layout(len(pieces))
        lengths = memory.lengths
        rows = torch.arange(len(pieces), device=pieces.device)
        hidden = self._hidden(lengths, n_slots, level)
        beyond = self._hidden_source(memory)
        x: Tensor = encoder.embeddings(pieces[:, None], lengths[:, None], None)[:, 0]  # [R, D]
        for index, number in enumerate(config.weight_sets):
            layer = cast(TransformerLayer, encoder.layers[number])
            attention = layer.attention
            normed = layer.attention_norm(x) if layer.norm_first else x
            if attention.n_heads:
                keys, values = memory.keys[index], memory.values[index]
                projected = layout.project[number](normed).to(keys.dtype)
                q, k, v = projected.view(len(pieces), 3, attention.n_heads, -1).unbind(1)  # [R, H, d]
                if level:
                    keys[:, :, n_slots - 1] = k
                    values[:, :, n_slots - 1] = v
                else:
                    keys[rows, :, lengths] = k
                    values[rows, :, lengths] = v
                attended = F.scaled_dot_product_attention(
                    q[:, :, None],
                    keys[:, :, :n_slots],
                    values[:, :, :n_slots],
                    _of_layer(hidden[config.layer_masks[index]], attention),
                    scale=attention.scale,
                )  # [R, H, 1, d]
                x = layout.attended[number](attended.flatten(1), x)
            else:
                x = _only_bias(attention, x)
            if not layer.norm_first:
                x = layer.attention_norm(x)
            if layer.cross is not None and layer.cross_norm is not None:
                normed = layer.cross_norm(x) if layer.norm_first else x
                if layer.cross.n_heads:
                    queries = layout.queries[number](normed).to(x.dtype).view(len(pieces), layer.cross.n_heads, 1, -1)
                    answered = F.scaled_dot_product_attention(
                        queries, memory.source_keys[index], memory.source_values[index], beyond, scale=layer.cross.scale
                    )  # [R, H, 1, d]
                    x = layout.answered[number](answered.flatten(1), x)
                else:
                    x = _only_bias(layer.cross, x)
                if not layer.norm_first:
                    x = layer.cross_norm(x)
            normed = layer.feed_forward_norm(x) if layer.norm_first else x
            x = layout.down[number](layout.up[number](normed), x)
            if not layer.norm_first:
                x = layer.feed_forward_norm(x)
        x = encoder.norm(x)
        if layout.vocabulary is None:
            return scores_of(self.output, x)
        return single_precision(layout.vocabulary(x if layout.scale == 1.0 else x * layout.scale))

    def _hidden(self, lengths: Tensor, n_slots: int, level: bool) -> dict[str, Tensor | None]:
        """For each mask of the config what is added to the scores, [R, 1 or H, 1, S].

        That is the bias of distances, or 0, and minus infinity for the unseen; None where there is no bias and
        everything is seen.
        """
        slots = torch.arange(n_slots, device=lengths.device)[None]
        places = Places(lengths[:, None], slots, None, counted=False)
        like = next(self.encoder.embeddings.parameters())
        bias = None if self.encoder.positions is None else self._bias(lengths[:1] if level else lengths, slots)
        biases: dict[str, Tensor | None] = {}
        for name in dict.fromkeys(self.encoder.config.layer_masks):
            allowed = None if level and name == "causal" else visible_keys(get_mask(name), None, places).allowed
            if allowed is None:
                biases[name] = bias
                continue
            nothing = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device) if bias is None else bias
            biases[name] = nothing.masked_fill(~allowed, float("-inf"))
        return biases

    def _bias(self, lengths: Tensor, slots: Tensor) -> Tensor:
        """The bias of how far back slots [1, S] are from the pieces to come at `lengths` [R]: [R, H, 1, S]."""
        back = (lengths[:, None] - slots).clamp(min=0)  # [R, S]
        return self._biases(slots.shape[1])[:, back].transpose(0, 1)[:, :, None]

    def _biases(self, n_slots: int) -> Tensor:
        """The bias of each distance up to at least `n_slots`, [H, distances]."""
        farthest = -(-n_slots // ROUND_DISTANCES) * ROUND_DISTANCES
        if farthest not in self._by_distance:
            table = cast(BucketBias, self.encoder.positions)
            places = torch.arange(farthest, device=table.table.weight.device)[None]
            bias = table(places[:, -1:], places)  # [1, H, 1, S]
            self._by_distance[farthest] = bias[0, :, 0].flip(-1).contiguous()
        return self._by_distance[farthest]

    def _hidden_source(self, memory: Cache) -> Tensor | None:
        """What is added to the scores of a source's keys, [R, 1, 1, M]; None where all of them are there."""
        if memory.source_lengths is None:
            return None
        keys = memory.source_keys[0]
        places = torch.arange(keys.shape[2], device=keys.device)
        absent = (places >= memory.source_lengths[:, None])[:, None, None]
        return torch.zeros(absent.shape, dtype=keys.dtype, device=keys.device).masked_fill(absent, float("-inf"))

    def _layout(self, n_rows: int) -> Layout:
        """Weights as they are best read for so many rows; on a GPU, and for little work, as they are."""
        is_prepared = self._is_prepared and next(self.encoder.embeddings.parameters()).device.type == "cpu"
        kind: str = self.precision if is_prepared else "plain"
        if kind == "own" and n_rows == 1 and not packing_suits_one_row():
            kind = "one row"
        if kind not in self._layouts:
            self._layouts[kind] = Layout(self.encoder, self.output, LAYOUTS[kind])
        return self._layouts[kind]

    def _graph(self, memory: Cache) -> Graph:
        sizes = [keys[0].shape[2] for keys in (memory.keys, memory.source_keys) if keys]
        shape = (memory.keys[0].shape[0], *sizes, int(memory.source_lengths is None))
        if shape not in self._graphs:
            while len(self._graphs) >= MOST_GRAPHS:
                self._graphs.popitem(last=False)
            self._graphs[shape] = Graph(self, memory)
        self._graphs.move_to_end(shape)
        return self._graphs[shape]


def _of_layer(hidden: Tensor | None, attention: Attention) -> Tensor | None:
    """What is added to the scores of a layer; a bias of distances is by head, and some heads may be pruned."""
    return hidden if hidden is None or hidden.shape[1] == 1 else of_heads(hidden, attention.heads, dim=1)


def _only_bias(attention: Attention, x: Tensor) -> Tensor:
    """States past attention that has no heads left."""
    return x if attention.output.bias is None else x + attention.output.bias
