"""Softmaxes over large vocabularies, with pieces numbered by frequency, the most frequent first.

| | in training | all log-probabilities |
|---|---|---|
| `SoftmaxOutput` | all pieces | all pieces |
| `SampledOutput` around one that has a table | the target and a few thousand pieces drawn at random | all pieces |
| `AdaptiveOutput` (Grave et al. 2017) | the frequent pieces, and the cluster that the target is in | all pieces |
| `ClusteredOutput` | the same, over the tables of the token layer (Transformer-XL) | all pieces |

Shapes: N positions, D width, V pieces, S samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.errors import ModelError, OptionError
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput, PieceOutput, piece_losses
from polyseme.parts.embeddings import Clusters, cluster_bounds
from polyseme.parts.precision import single_precision

SAMPLES = 8192
"""Pieces that a sampled softmax draws by default: as many as ELMo's."""
AT_ONCE = 2**27
"""Numbers that a loss over all pieces holds at once, if no gradient is needed."""


class SoftmaxOutput(PieceOutput):
    """A table of pieces, its own unless it is tied, and a bias (ELMo's, NNLM's)."""

    def __init__(self, width: int, n_pieces: int, *, tied: bool = False) -> None:
        super().__init__(width, n_pieces, tied=tied)
        self.width = width
        self.bias = nn.Parameter(torch.zeros(n_pieces))
        nn.init.normal_(self.table, std=1 / math.sqrt(width))

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.table, self.bias)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return piece_losses(self.logits(states), targets)
        few = max(AT_ONCE // len(self.table), 1)
        parts = zip(states.split(few), targets.split(few), strict=True)
        return torch.cat([piece_losses(self.logits(rows), gold) for rows, gold in parts])


# --- sampled ----------------------------------------------------------------------------------------------------------


class Candidates(NamedTuple):
    """Pieces drawn at random, all of them different."""

    pieces: Tensor
    """[S]"""
    threshold: Tensor
    """[]: piece i was drawn if a time of its own, exponential with the rate p_i, was below this one."""


def log_uniform(n_pieces: int, device: torch.device | str | None = None) -> Tensor:
    """[V]: Zipf's law, p_i = log((i + 2) / (i + 1)) / log(V + 1), for pieces numbered by frequency."""
    numbers = torch.arange(n_pieces, device=device, dtype=torch.float32)
    return torch.log1p(1 / (numbers + 1)) / math.log(n_pieces + 1)


def draw_candidates(probabilities: Tensor, n_samples: int) -> Candidates:
    """Draw different pieces, one after another, each time by their probabilities among those that are left.

    Every piece waits for an exponential time whose rate is its probability, and the first ones are taken: that is the
    same as drawing again and again and passing over what was drawn before, without a loop of random length. The
    threshold is the time of the first that was not taken. Numbers are those of torch's generator, as dropout's are.
    """
    waits = -torch.log1p(-torch.rand_like(probabilities)) / probabilities
    first = waits.topk(n_samples + 1, largest=False, sorted=True)
    return Candidates(first.indices[:-1], first.values[-1])


def log_expected(probabilities: Tensor, threshold: Tensor) -> Tensor:
    """The logarithm of how likely each piece is to be among candidates with this threshold: 1 - exp(-p · threshold)."""
    return torch.log(-torch.expm1(-probabilities * threshold))


def sampled_losses(
    table: Tensor, bias: Tensor | None, states: Tensor, targets: Tensor, candidates: Candidates, probabilities: Tensor
) -> Tensor:
    """[N]: cross-entropy of the target among the candidates, which are the same for all positions (Jean et al. 2015).

    From every logit the logarithm of the probability that the piece is there is subtracted, so that the sum over
    candidates is right on average; a candidate that is the target itself does not count.
    """
    chosen = log_expected(probabilities[candidates.pieces], candidates.threshold)
    own = log_expected(probabilities[targets], candidates.threshold)
    others = F.linear(states, table[candidates.pieces], None if bias is None else bias[candidates.pieces])  # [N, S]
    true = (states * table[targets]).sum(dim=-1)
    if bias is not None:
        true = true + bias[targets]
    others, true = single_precision(others) - chosen, single_precision(true) - own
    others = others.masked_fill(candidates.pieces[None] == targets[:, None], -torch.inf)
    return torch.logsumexp(torch.cat([true[:, None], others], dim=1), dim=1) - true


class SampledOutput(Output):
    """An output that is trained on a sample of its pieces, and otherwise is what it is."""

    def __init__(self, inner: SoftmaxOutput | CausalOutput, n_samples: int = SAMPLES) -> None:
        super().__init__()
        if n_samples < 1:
            raise OptionError(f"A sampled softmax needs at least 1 sample. Got {n_samples} instead.")
        self.inner = inner
        self.n_samples = n_samples

    @property
    def n_pieces(self) -> int:
        return len(self.inner.table)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        if not self.training or self.n_samples + 1 >= self.n_pieces:
            return self.inner.loss(states, targets)
        probabilities = log_uniform(self.n_pieces, states.device)
        bias = cast("Tensor | None", getattr(self.inner, "bias", None))
        candidates = draw_candidates(probabilities, self.n_samples)
        return sampled_losses(self.inner.table, bias, states, targets, candidates, probabilities)

    def log_probs(self, states: Tensor) -> Tensor:
        return self.inner.log_probs(states)


# --- adaptive ---------------------------------------------------------------------------------------------------------


def clustered_losses(
    first: Tensor, within: Callable[[Tensor, int], Tensor], cutoffs: Sequence[int], targets: Tensor
) -> Tensor:
    """[N]: only the clusters that a target is in are looked into, each for its own targets.

    `first` [N, pieces of the first cluster + other clusters] has the log-probabilities of the first softmax; `within`
    gives those of these rows in the cluster of this number.
    """
    cluster = torch.zeros_like(targets)
    for cutoff in cutoffs:
        cluster = cluster + (targets >= cutoff)
    places = torch.where(cluster > 0, first.shape[1] - len(cutoffs) + cluster - 1, targets)
    losses = -first.gather(1, places[:, None])[:, 0]
    for number, low in enumerate(cutoffs, start=1):
        rows = (cluster == number).nonzero()[:, 0]
        chosen = within(rows, number).gather(1, (targets[rows] - low)[:, None])[:, 0]
        losses = losses.index_add(0, rows, -chosen.to(losses.dtype))
    return losses


class AdaptiveOutput(Output):
    """Frequent pieces and clusters of rare ones in one softmax, the pieces of each cluster in a narrower one below it.

    The layers are torch's own. Its loss leaves out clusters without a target, whose parameters then have no gradient,
    which several processes cannot do with; here every cluster is passed through.
    """

    fixed_shapes = False

    def __init__(self, width: int, n_pieces: int, cutoffs: Sequence[int], *, narrower: float = 4.0) -> None:
        super().__init__()
        if not cutoffs or list(cutoffs) != sorted(set(cutoffs)) or cutoffs[0] < 1 or cutoffs[-1] >= n_pieces:
            raise ModelError(
                f"The cutoffs of an adaptive softmax must rise, from at least 1 to below its {n_pieces:,} pieces. Got "
                f"{list(cutoffs)} instead."
            )
        if width < narrower ** len(cutoffs):
            raise ModelError(
                f"An adaptive softmax with {len(cutoffs)} clusters needs states at least "
                f"{narrower ** len(cutoffs):g} wide, since each is {narrower:g} times narrower. Got {width} instead."
            )
        self.width = width
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(width, n_pieces, list(cutoffs), div_value=narrower)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        softmax = self.softmax

        def within(rows: Tensor, number: int) -> Tensor:
            return single_precision(softmax.tail[number - 1](states[rows])).log_softmax(dim=-1)

        first = single_precision(softmax.head(states)).log_softmax(dim=-1)
        return clustered_losses(first, within, softmax.cutoffs[:-1], targets)

    def log_probs(self, states: Tensor) -> Tensor:
        return self.softmax.log_prob(states)


class ClusteredOutput(Output):
    """Transformer-XL's: an adaptive softmax over the clusters of the token layer.

    Tables may be shared with the token layer, and maps of all clusters but the first, which bring states to the width
    of a cluster's table. Where tables do not grow narrower (`narrowing` 1) there is one for all clusters, and maps only
    where its width is not the stack's.
    """

    fixed_shapes = False

    def __init__(
        self,
        width: int,
        embedding_width: int,
        n_pieces: int,
        *,
        cutoffs: Sequence[int],
        narrowing: int,
        tied: bool = True,
        shared_maps: bool = True,
    ) -> None:
        super().__init__()
        self.bounds = cluster_bounds(n_pieces, cutoffs)
        self.narrowing = narrowing
        self.tied = tied
        self.shared_maps = shared_maps
        bounds = self.bounds if narrowing > 1 else [(0, n_pieces)]
        widths = [embedding_width // narrowing**number for number in range(len(self.bounds))]
        self.tables = nn.ParameterList(
            torch.empty(high - low, widths[number]) for number, (low, high) in enumerate(bounds)
        )
        self.biases = nn.ParameterList(torch.zeros(high - low) for low, high in bounds)
        mapped = narrowing > 1 or embedding_width != width
        self.maps = nn.ParameterList(torch.empty(width, each) for each in widths) if mapped else None
        self.cluster_table = nn.Parameter(torch.empty(len(cutoffs), embedding_width)) if cutoffs else None
        self.cluster_bias = nn.Parameter(torch.zeros(len(cutoffs))) if cutoffs else None

    def tie_clusters(self, clusters: Clusters) -> None:
        if self.tied:
            for number, table in enumerate(clusters.tables):
                self.tables[number] = table.weight
        if self.maps is not None and self.shared_maps:
            for number in range(1, len(self.maps)):
                self.maps[number] = clusters.maps[number if self.narrowing > 1 else 0].weight

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        cutoffs = [low for low, _ in self.bounds[1:]]
        return clustered_losses(
            self._first_log_probs(states), lambda rows, number: self._within(states[rows], number), cutoffs, targets
        )

    def log_probs(self, states: Tensor) -> Tensor:
        first = self._first_log_probs(states)
        end = self.bounds[0][1]
        others = [
            first[:, end + number - 1, None] + self._within(states, number) for number in range(1, len(self.bounds))
        ]
        return torch.cat([first[:, :end], *others], dim=1)

    def _first_log_probs(self, states: Tensor) -> Tensor:
        """[N, pieces of the first cluster + other clusters]"""
        table, bias = self._cluster(0)
        if self.cluster_table is not None and self.cluster_bias is not None:
            table, bias = torch.cat([table, self.cluster_table]), torch.cat([bias, self.cluster_bias])
        return single_precision(F.linear(self._map_states(states, 0), table, bias)).log_softmax(dim=-1)

    def _within(self, states: Tensor, number: int) -> Tensor:
        """[N, pieces of the cluster], given that it is this one."""
        return single_precision(F.linear(self._map_states(states, number), *self._cluster(number))).log_softmax(dim=-1)

    def _map_states(self, states: Tensor, number: int) -> Tensor:
        return states if self.maps is None else states @ self.maps[number]

    def _cluster(self, number: int) -> tuple[Tensor, Tensor]:
        if self.narrowing > 1:
            return self.tables[number], self.biases[number]
        low, high = self.bounds[number]
        return self.tables[0][low:high], self.biases[0][low:high]


# --- both ways --------------------------------------------------------------------------------------------------------


class TwoWayOutput(Output):
    """The softmax of both halves of a two-way encoder: the next word by the forward half, the last by the backward.

    It is one for both (ELMo), or the backward half has its own (Flair).

    Reads the states of one half, by default the forward one. Given both, [N, 2D], they are taken for those of the words
    before and after the one that is predicted, which each half predicts by itself: the losses are averaged, and so are
    the log-probabilities.
    """

    def __init__(self, softmax: SoftmaxOutput | AdaptiveOutput, backwards: SoftmaxOutput | None = None) -> None:
        super().__init__()
        self.softmax = softmax
        self.backwards = backwards

    @property
    def halves(self) -> tuple[SoftmaxOutput | AdaptiveOutput, SoftmaxOutput | AdaptiveOutput]:
        """What the forward half predicts with, and the backward half."""
        return self.softmax, self.softmax if self.backwards is None else self.backwards

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([softmax.loss(half, targets) for softmax, half in self._split(states)]).mean(dim=0)

    def log_probs(self, states: Tensor) -> Tensor:
        each = torch.stack([softmax.log_probs(half) for softmax, half in self._split(states)])
        return each[0] if len(each) == 1 else each.mean(dim=0).log_softmax(dim=-1)

    def _split(self, states: Tensor) -> list[tuple[SoftmaxOutput | AdaptiveOutput, Tensor]]:
        return list(zip(self.halves, states.split(self.softmax.width, dim=-1), strict=False))
