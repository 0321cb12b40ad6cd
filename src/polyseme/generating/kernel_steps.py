"""The fast step in fewer and larger kernels, on a GPU: five for each layer, and two for the vocabulary.

A norm belongs to the product that reads it, and bias, activation, residual and the writing of the cache to the product
before them. Where norms come after, states are passed on as they are before their norm, and both the product that reads
them and the one that adds to them apply it. `FastSteps.run` is the specification.

Shapes: R rows, D width, H heads, d head width, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput, TableOutput, scores_of
from polyseme.parts.attention import Attention
from polyseme.parts.feed_forward import ACTIVATIONS, Activation
from polyseme.parts.kernel_trials import gpu_capability, load_kernels, report_fallback, trial_failure
from polyseme.parts.masks import get_mask
from polyseme.parts.memory_and_cache import Cache
from polyseme.parts.norms import Norm
from polyseme.parts.row_products import (
    FEW,
    Choice,
    Launcher,
    RowsProduct,
    State,
    normalize,
    power_of_two,
    row_bucket,
)

MOST_ROWS = 64
"""Rows beyond which a matrix product of torch is as good."""
WIDEST = 8192
"""Inputs of a product beyond which its weights do not fit into registers."""
EARLY_CAPABILITY = (9, 0)
"""From here on, a kernel may start while the one before it runs."""
TRIAL_SLOTS, TRIAL_STEPS = 16, 4
SUBJECT = "Generation"
MOST_DIFFERENT = {torch.bfloat16: 0.05, torch.float16: 0.01, torch.float32: 1e-3}
"""Of the largest score, on trial; fp32 may be as coarse as what torch's own products are set to."""
NAMES: Mapping[Activation, str] = {function: name for name, function in ACTIVATIONS.items()}


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


Scores = Callable[[Tensor, Cache], Tensor]


def kernel_steps(
    encoder: Transformer, output: Output, bias_of: Callable[[int], Tensor], plain: Scores
) -> KernelSteps | None:
    """Kernels for this encoder, to be tried against the `plain` step; None where they do not fit, or cannot run.

    Why they cannot run is reported once: a GPU without the capability, or no Triton. What else can fail (no compiler, a
    damaged cache of compiled kernels, other results) shows in a trial (`KernelSteps.serves`).
    """
    if not kernels_fit(encoder):
        return None
    device = next(encoder.embeddings.parameters()).device
    kernels = load_kernels(SUBJECT, "polyseme.parts.row_kernels", device)
    if kernels is None:
        return None
    capability = gpu_capability(device)
    early = capability is not None and capability >= EARLY_CAPABILITY
    return KernelSteps(encoder, output, bias_of, kernels, plain, early=early)


def difference(steps: KernelSteps, n_rows: int) -> float:
    """How far the scores are from those of the plain step, as a share of the largest, and so for a greedy step.

    On a GPU the last scores are of a recorded step.
    """
    encoder = steps.encoder
    like = next(encoder.embeddings.parameters())
    memories = [_trial_memory(encoder, n_rows) for _ in range(2)]
    worst = 0.0
    for number in range(TRIAL_STEPS):
        pieces = (torch.arange(n_rows, device=like.device) * 7 + number) % encoder.config.n_pieces
        expected, scores = steps.plain(pieces, memories[0]), steps.scores(pieces, memories[1])
        if number == TRIAL_STEPS - 1 and like.is_cuda:
            torch.cuda.synchronize(like.device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                scores = steps.scores(pieces, memories[1])
            graph.replay()
        worst = max(worst, _relative_error(scores, expected))
        for memory in memories:
            memory.lengths.add_(1)
    if steps.vocabulary is not None:
        worst = max(worst, _greedy_difference(steps, pieces, *memories))
    return worst


def _greedy_difference(steps: KernelSteps, pieces: Tensor, plain_memory: Cache, memory: Cache) -> float:
    """How far a greedy step is from the plain one: the score of the piece that it chooses, and its log-probability."""
    expected = steps.plain(pieces, plain_memory)
    log_probs = expected.log_softmax(dim=-1)
    forbidden = torch.zeros(expected.shape[1], dtype=torch.int8, device=expected.device)
    forbidden[expected[0].argmax()] = 1
    read, chosen, likelihoods = pieces.clone(), torch.zeros_like(pieces), torch.zeros_like(expected[:, 0])
    steps.greedy_step(read, memory, forbidden, chosen, likelihoods)
    if not (torch.equal(read, chosen) and torch.equal(memory.lengths, plain_memory.lengths + 1)):
        return float("inf")
    allowed = expected.masked_fill(forbidden.bool(), float("-inf"))
    score, likelihood = (each.gather(1, chosen[:, None])[:, 0] for each in (allowed, log_probs))
    return max(
        _relative_error(score, allowed.amax(dim=-1), largest=expected),
        _relative_error(likelihoods, likelihood, largest=log_probs),
    )


def _relative_error(result: Tensor, expected: Tensor, largest: Tensor | None = None) -> float:
    """The largest difference, as a share of the largest value of what is expected, or of `largest`."""
    scale = (expected if largest is None else largest).abs().max()
    return ((result - expected).abs().max() / scale).nan_to_num(float("inf")).item()


def _trial_memory(encoder: Transformer, n_rows: int) -> Cache:
    """A small cache, with a source where the encoder reads one."""
    memory = cast(Cache, encoder.new_memory(n_rows, TRIAL_SLOTS))
    if not encoder.config.cross:
        return memory
    like = next(encoder.embeddings.parameters())
    source = torch.arange(1.0, encoder.config.width + 1, device=like.device).cos()
    states = source.to(like.dtype).expand(n_rows, TRIAL_SLOTS, -1)
    layers = [cast(TransformerLayer, encoder.layers[number]) for number in encoder.config.weight_sets]
    pairs = [layer.cross.keys_and_values(states) for layer in layers if layer.cross is not None]
    keys, values = zip(*pairs, strict=True)
    return Cache(memory.lengths, memory.keys, memory.values, keys, values)


def kernels_fit(encoder: Transformer) -> bool:
    """Whether the kernels compute what this encoder does."""
    config = encoder.config
    layers = [cast(TransformerLayer, layer) for layer in encoder.layers]
    attentions = [each for layer in layers for each in (layer.attention, layer.cross) if each is not None]
    widest = max(config.width, config.inner_width, *(each.inner_width for each in attentions))
    dtypes = {each.dtype for each in encoder.parameters()}
    return (
        len(dtypes) == 1
        and dtypes <= MOST_DIFFERENT.keys()
        and widest <= WIDEST
        and all(each.n_heads for each in attentions)
        and all(layer.feed_forward.activation in NAMES for layer in layers)
    )


class KernelSteps:
    """The step of `FastSteps` for few rows on a GPU; only for what `kernels_fit`."""

    def __init__(
        self,
        encoder: Transformer,
        output: Output,
        bias_of: Callable[[int], Tensor],
        kernels: ModuleType,
        plain: Scores,
        *,
        early: bool,
    ) -> None:
        self.encoder = encoder
        self.output = output
        self.bias_of = bias_of
        """How many distances → the bias of each, [H, distances]."""
        self.plain = plain
        """The step that kernels are compared with before they serve."""
        self._starts: dict[int, bool | None] = {}
        """By number of rows that kernels are compiled for: whether they start early; None where they failed a trial."""
        self.may_start_early = early
        self.launch = Launcher(kernels, early=early)
        self.layers = [self._products(cast(TransformerLayer, layer)) for layer in encoder.layers]
        self.final = Norm.of(encoder.norm)
        self.vocabulary: RowsProduct | None = None
        if isinstance(output, (CausalOutput, TableOutput)):
            bias = output.bias if isinstance(output, TableOutput) else None
            scale = output.scale if isinstance(output, TableOutput) else 1.0
            self.vocabulary = RowsProduct(self.launch, output.table.detach(), _detach(bias), scale=scale)

    def _products(self, layer: TransformerLayer) -> LayerProducts:
        def product(linear: nn.Linear, **settings: Any) -> RowsProduct:
            return RowsProduct(self.launch, linear.weight.detach(), _detach(linear.bias), **settings)

        attention, cross, feed_forward = layer.attention, layer.cross, layer.feed_forward
        query = None
        if cross is not None:
            weight, bias = cross.project.weight.detach(), _detach(cross.project.bias)
            rows = slice(0, cross.inner_width)
            query = RowsProduct(self.launch, weight[rows], None if bias is None else bias[rows])
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

    def serves(self, n_rows: int) -> bool:
        """Whether so many rows are few, and their kernels have passed a trial. The first call tries them.

        Kernels that fail when they start early are tried again without that. Why they failed is reported once.
        """
        if n_rows > MOST_ROWS:
            return False
        bucket = row_bucket(n_rows)
        if bucket not in self._starts:
            self._starts[bucket] = self._trial(bucket if bucket <= FEW else bucket // 2 + 1)
        early = self._starts[bucket]
        if early is not None:
            self.launch.start_early(early)
        return early is not None

    def _trial(self, n_rows: int) -> bool | None:
        """Whether kernels start early for so many rows; None where they fail. Beyond `FEW` rows it would be slower."""
        like = next(self.encoder.embeddings.parameters())

        def trial() -> float:
            with torch.cuda.device_of(like):
                return difference(self, n_rows)

        reason = ""
        for early in (True, False) if self.may_start_early and n_rows <= FEW else (False,):
            self.launch.start_early(early)
            failure = trial_failure(trial, MOST_DIFFERENT[like.dtype])
            if failure is None:
                return early
            reason = failure
        report_fallback(SUBJECT, reason)
        return None

    def serves_greedy_step(self, n_rows: int) -> bool:
        """Whether the kernels also choose the likeliest piece."""
        return self.vocabulary is not None and self.serves(n_rows)

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
            width = get_mask(config.layer_masks[index]).window[0] + 1
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
        return State(normalize(x), self.final)

    def scores(self, pieces: Tensor, memory: Cache) -> Tensor:
        """The scores [R, V] of what follows `pieces` [R]."""
        x = self._top(pieces, memory)
        if self.vocabulary is None:
            return scores_of(self.output, normalize(x))
        scores = x.raw.new_empty(len(pieces), self.vocabulary.n_results, dtype=torch.float32)
        self.vocabulary(x, scores=scores)
        return scores

    def greedy_step(
        self, pieces: Tensor, memory: Cache, forbidden: Tensor, chosen: Tensor, likelihoods: Tensor
    ) -> None:
        """Read `pieces` [R], put the likeliest of what follows in their place, and add 1 to the lengths.

        The piece is also written to `chosen` [R], and its log-probability to `likelihoods` [R]. `forbidden` [V] is 1
        for pieces that are forbidden.
        """
        assert self.vocabulary is not None
        x = self._top(pieces, memory)
        n_rows, vocabulary = len(pieces), self.vocabulary
        n_blocks = -(-vocabulary.n_results // vocabulary.blocks(n_rows)["BLOCK_N"])
        best, top, total = (x.raw.new_empty(n_rows, n_blocks, dtype=torch.float32) for _ in range(3))
        piece = torch.empty_like(best, dtype=torch.int32)
        vocabulary(x, choice=Choice(forbidden, best, piece, top, total))
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


def _detach(tensor: Tensor | None) -> Tensor | None:
    """Without a gradient; None stays None."""
    return None if tensor is None else tensor.detach()
