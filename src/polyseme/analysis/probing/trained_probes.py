"""Probes that are trained by steps: those with a hidden layer, and those over a learned mix of the layers.

The mix is ELMo's (`parts.scalar_mix`): γ · Σ s_j h_j over standardized layers. As Tenney et al. (2019) have it, there
is one probe for every ℓ, over the layers up to ℓ: the shares of the last one give the center of gravity, Σ j · s_j, and
the scores of all the expected layer, Σ ℓ · (score(ℓ) − score(ℓ − 1)) / Σ (score(ℓ) − score(ℓ − 1)).

All probes take their steps together. Shapes: L layers, K probes, n examples, F features, H hidden, C labels.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.analysis.probing.linear_probes import Design, Standard

BATCH, SMALLEST_BATCH = 512, 16
STEPS = 50
"""Steps of an epoch at least, where the smallest batch allows it."""
EPOCHS = 12
LEARNING_RATE = 2e-3
MIX_LEARNING_RATE = 2e-2
"""Of the layers' weights, which are few and must move far."""
HELD_OUT = 10
"""Of so many texts of train one is set aside: the weights that are best on those are kept."""
JUDGED = 1024


class ProbeNets(nn.Module):
    """Probes over features [L, n, F] → scores [K, n, C]; K = L, of each layer one, or of each mix of layers 0 to ℓ."""

    above: Tensor
    """[K, L]: the layers that a mix lacks."""

    def __init__(self, shape: tuple[int, int, int], n_labels: int, *, hidden: int | None, mix: bool) -> None:
        super().__init__()
        n_layers, _, width = shape
        self.mixing = nn.Parameter(torch.zeros(n_layers, n_layers)) if mix else None
        self.gamma = nn.Parameter(torch.ones(n_layers)) if mix else None
        self.register_buffer("above", torch.ones(n_layers, n_layers).triu(1).bool())
        widths = [width, *([] if hidden is None else [hidden]), n_labels]
        self.weights = nn.ParameterList(
            torch.empty(n_layers, below, above).normal_(std=1 / math.sqrt(below))
            for below, above in itertools.pairwise(widths)
        )
        nn.init.zeros_(self.weights[-1])  # as the linear probes begin: random scores would take long to unlearn
        self.biases = nn.ParameterList(torch.zeros(n_layers, 1, above) for above in widths[1:])

    def shares(self) -> Tensor:
        """[K, L]: what each layer counts in each mix."""
        assert self.mixing is not None
        return torch.softmax(self.mixing.masked_fill(self.above, -math.inf), dim=-1)

    def forward(self, features: Tensor) -> Tensor:
        if self.mixing is not None and self.gamma is not None:
            features = torch.einsum("kl,lnf->knf", self.gamma[:, None] * self.shares(), features)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            features = torch.baddbmm(bias, F.relu(features) if number else features, weight)
        return features


@dataclass
class TrainedProbes:
    """Probes after training."""

    standard: Standard
    nets: ProbeNets
    epochs: Tensor
    """[K]: after how many epochs each was best."""

    def shares(self) -> Tensor:
        """[K, L]"""
        return self.nets.shares().detach()

    @torch.no_grad()
    def log_probs(self, design: Design, numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Examples and what is predicted of them, [K, n, C], part by part."""
        for part in numbers.split(JUDGED):
            yield part, torch.log_softmax(self.nets(_standardized(design, part, self.standard)), dim=-1)


def fit_by_steps(
    design: Design,
    labels: Tensor,
    numbers: Tensor,
    texts: Tensor,
    *,
    n_labels: int,
    l2: float,
    standard: Standard,
    hidden: int | None = None,
    mix: bool = False,
    seed: int = 0,
    epochs: int = EPOCHS,
) -> TrainedProbes:
    """Train probes with Adam, a learning rate that falls to 0, and the penalty of the linear ones.

    `texts` [N] are the texts of the examples, of which one in ten is set aside to choose the epoch.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nets = ProbeNets(design.shape, n_labels, hidden=hidden, mix=mix)
    dtype = design.rows(numbers[:1]).dtype
    nets = nets.to(design.device, dtype)
    different = texts[numbers].unique()
    aside = different[
        torch.randperm(len(different), generator=generator)[: len(different) // HELD_OUT].to(different.device)
    ]
    is_aside = torch.isin(texts[numbers], aside)
    learned, judged = numbers[~is_aside], numbers[is_aside]
    if not len(judged) or not len(learned):
        learned, judged = numbers, numbers
    of_mix = [each for each in (nets.mixing, nets.gamma) if each is not None]
    others = [*nets.weights, *nets.biases]
    optimizer = torch.optim.Adam(
        [{"params": others, "lr": LEARNING_RATE}, *([{"params": of_mix, "lr": MIX_LEARNING_RATE}] if of_mix else [])]
    )
    batch = max(SMALLEST_BATCH, min(BATCH, len(learned) // STEPS))
    n_steps = epochs * -(-len(learned) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / n_steps))
    best = torch.full((design.shape[0],), math.inf, dtype=torch.float64)
    best_epoch, best_weights = torch.zeros(len(best), dtype=torch.long), copy.deepcopy(nets.state_dict())
    for epoch in range(1, epochs + 1):
        order = learned[torch.randperm(len(learned), generator=generator).to(learned.device)]
        for part in order.split(batch):
            scores = nets(_standardized(design, part, standard))
            loss = F.cross_entropy(
                scores.flatten(0, 1), labels[part].repeat(len(scores)), reduction="sum"
            ) / len(part)  # fmt: skip
            loss = loss + l2 / (2 * len(numbers)) * sum(each.square().sum() for each in nets.weights)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        losses = _losses(TrainedProbes(standard, nets, best_epoch), design, labels, judged)
        better = losses < best
        best, best_epoch = torch.where(better, losses, best), torch.where(better, epoch, best_epoch)
        for name, value in nets.state_dict().items():
            if name != "above":
                best_weights[name][better.to(value.device)] = value[better.to(value.device)]
    nets.load_state_dict(best_weights)
    return TrainedProbes(standard, nets, best_epoch)


def _standardized(design: Design, numbers: Tensor, standard: Standard) -> Tensor:
    rows = design.rows(numbers)
    return (rows - standard.center[:, None].to(rows.dtype)) / standard.spread[:, None].to(rows.dtype)


def _losses(probes: TrainedProbes, design: Design, labels: Tensor, numbers: Tensor) -> Tensor:
    """[K]: the mean loss."""
    total = torch.zeros(design.shape[0], dtype=torch.float64)
    for part, scores in probes.log_probs(design, numbers):
        gold = labels[part][None, :, None].expand(len(scores), -1, 1)
        total -= scores.gather(2, gold).sum((1, 2)).double().cpu()
    return total / len(numbers)


def center_of_gravity(shares: Sequence[float]) -> float:
    """The mean layer, by what each counts in the mix.

    >>> center_of_gravity([0.25, 0.25, 0.5])
    1.25
    """
    return sum(layer * share for layer, share in enumerate(shares)) / sum(shares)


def expected_layer(scores: Sequence[float]) -> float | None:
    """At which layer an example is first judged right, in the mean, by the scores of mixes of layers 0 to ℓ.

    None where that is no mean of layers: where the mix of all is no better than layer 0, or where losses at some layers
    outweigh gains at others.

    >>> expected_layer([0.5, 0.7, 0.8])
    1.3333333333333335
    >>> expected_layer([0.5, 0.4, 0.2, 0.55])      # None
    """
    gains = [after - before for before, after in itertools.pairwise(scores)]
    total = sum(gains)
    if total <= 0:
        return None
    mean = sum(layer * gain for layer, gain in enumerate(gains, start=1)) / total
    return mean if 0 <= mean <= len(gains) else None
