"""The structural probe (Hewitt and Manning 2019): is the dependency tree in the geometry of a layer?

A linear map B is trained so that squared distances, or squared norms, in the space that it maps to are those of the
tree. For words i and j of a sentence of n words with vectors h:

    distance:  d(i, j) = ‖B (h_i − h_j)‖²    against the number of arcs between the two,    Σ_ij |d − gold| / n²
    depth:     ‖B h_i‖²                      against the number of arcs to the root,        Σ_i  |‖B h_i‖² − gold| / n

The losses are means over the sentences of a batch. As in the paper, training is Adam, and where the loss on sentences
that are set aside does not fall, the learning rate is divided by 10 and Adam starts from scratch; as in the authors'
program, it ends after 5 epochs without a lower loss, and the map with the lowest is taken. All layers are trained side
by side, each with a learning rate of its own. Other than there, the vectors of each layer are multiplied by one number
in training, which is then a factor of the map: the equations are the same, and layers with large states (norms before
their parts) are trained as well as others.

Shapes: L layers, R sentences of a batch, T words, D width of a layer, K rank of the map, N words of all sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.analysis.dependency_trees import Tree
from polyseme.errors import InputError, OptionError
from polyseme.parts.device import fits_on
from polyseme.types import Progress

StructuralKind = Literal["distance", "depth"]
STRUCTURAL_KINDS: tuple[StructuralKind, ...] = get_args(StructuralKind)

PATIENCE = 5
"""Epochs without a lower loss after which training ends."""
INITIAL = 0.05
"""Maps begin uniform from −0.05 to 0.05, as in the authors' program."""
HELD_OUT = 10
"""One in so many training sentences is set aside."""

DEVIATION = 0.5
"""The standard deviation of a layer's vectors in training, about that of BERT's, for which the learning rate was."""
_ROWS = 8192
"""Words whose vectors are read at a time where they are only summed."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StructuralSettings:
    """How maps are trained."""

    kind: StructuralKind = "distance"
    rank: int | None = 64
    """Dimensions that the map maps to; None: the width of the layer."""
    epochs: int = 30
    batch_size: int = 20
    learning_rate: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in STRUCTURAL_KINDS:
            raise OptionError(f"A structural probe is of {' or '.join(STRUCTURAL_KINDS)}. Got {self.kind!r} instead.")
        for name in ("rank", "epochs", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"The option {name!r} must be at least 1. Got {value} instead.")


@dataclass(frozen=True)
class ParsedVectors:
    """Sentences with their trees and the vectors of their words."""

    trees: Sequence[Tree]
    vectors: NDArray[np.floating]
    """[N, L, D], the words of all sentences one after another."""

    def __post_init__(self) -> None:
        n_words = sum(map(len, self.trees))
        if self.vectors.ndim != 3 or len(self.vectors) != n_words:
            raise InputError(
                f"The vectors must be one for each of the {n_words:,} words and each layer. Got an array of the shape "
                f"{self.vectors.shape} instead."
            )

    def starts(self) -> NDArray[np.int64]:
        """Where each sentence begins in `vectors`."""
        return np.cumsum([0, *map(len, self.trees)])[:-1]

    def deviations(self) -> Floats:
        """[L]: the standard deviation of each layer's vectors around their mean, over all dimensions; never 0."""
        n, n_layers, width = self.vectors.shape
        sums, squares = np.zeros((n_layers, width)), np.zeros((n_layers, width))
        for first in range(0, n, _ROWS):
            part = np.asarray(self.vectors[first : first + _ROWS], np.float64)
            sums += part.sum(0)
            squares += np.square(part).sum(0)
        variances = (squares / n - np.square(sums / n)).clip(min=0.0).mean(-1)
        return np.where(variances > 0, np.sqrt(variances), 1.0)


# --- the equations ----------------------------------------------------------------------------------------------------


def squared_distances(maps: Tensor, vectors: Tensor) -> Tensor:
    """‖B (h_i − h_j)‖² of all pairs: maps [L, D, K] and vectors [L, R, T, D] → [L, R, T, T].

    By the norms of the mapped vectors and their products, which needs no difference of every pair.
    """
    mapped = vectors @ maps[:, None]  # [L, R, T, K]
    norms = mapped.square().sum(-1)
    distances: Tensor = norms[..., :, None] + norms[..., None, :] - 2 * (mapped @ mapped.transpose(-1, -2))
    return distances.clamp(min=0.0)


def squared_norms(maps: Tensor, vectors: Tensor) -> Tensor:
    """‖B h_i‖²: [L, R, T]."""
    norms: Tensor = (vectors @ maps[:, None]).square().sum(-1)
    return norms


PREDICTIONS: dict[StructuralKind, Callable[[Tensor, Tensor], Tensor]] = {
    "distance": squared_distances,
    "depth": squared_norms,
}


def structural_loss(predicted: Tensor, gold: Tensor, lengths: Tensor) -> Tensor:
    """[L]: the mean over sentences of Σ |predicted − gold| / n², or / n of depths; places beyond a sentence are −1."""
    pairs = predicted.dim() == 4
    errors = ((predicted - gold).abs() * (gold >= 0)).flatten(2).sum(-1)  # [L, R]
    counts = lengths.square() if pairs else lengths
    return (errors / counts).mean(-1)


def gold_of(kind: StructuralKind, tree: Tree) -> NDArray[np.int64]:
    """[T, T] arcs between each two words, or [T] arcs from each to the root."""
    return tree_distances(tree) if kind == "distance" else tree_depths(tree)


def tree_depths(tree: Tree) -> NDArray[np.int64]:
    """How many arcs lie between each word and the root.

    >>> tree_depths(Tree(("a", "dull", "film"), (3, 3, 0), ("det", "amod", "root"), ("X",) * 3)).tolist()
    [1, 1, 0]
    """
    depths = np.zeros(len(tree), np.int64)
    for word, head in enumerate(tree.heads):
        while head:
            depths[word] += 1
            head = tree.heads[head - 1]
    return depths


def tree_distances(tree: Tree) -> NDArray[np.int64]:
    """How many arcs lie between each two words.

    >>> tree_distances(Tree(("a", "dull", "film"), (3, 3, 0), ("det", "amod", "root"), ("X",) * 3)).tolist()
    [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    """
    n = len(tree)
    above = np.zeros((n, n), np.int64)  # [word, other]: whether the other is the word itself or above it
    for word in range(n):
        place = word + 1
        while place:
            above[word, place - 1] = 1
            place = tree.heads[place - 1]
    shared = above @ above.T  # words above both, which are one more than the depth of the lowest of them
    depths = above.sum(1)
    distances: NDArray[np.int64] = depths[:, None] + depths[None] - 2 * shared
    return distances


# --- training ---------------------------------------------------------------------------------------------------------


@dataclass
class _Batch:
    vectors: Tensor
    """[L, R, T, D]"""
    gold: Tensor
    """[R, T, T] or [R, T]; −1 beyond a sentence."""
    lengths: Tensor


class _Batches:
    """Sentences of similar length together, in the same batches in every epoch."""

    def __init__(
        self, data: ParsedVectors, vectors: Tensor, numbers: Sequence[int], settings: StructuralSettings,
        factors: Floats, device: str,
    ) -> None:  # fmt: skip
        self.vectors, self.device = vectors, device
        self.dtype = vectors.dtype if vectors.dtype == torch.float64 else torch.float32
        self.factors = torch.from_numpy(factors).to(device, self.dtype)[:, None, None, None]
        ordered = sorted(numbers, key=lambda number: len(data.trees[number]))
        groups = [ordered[first : first + settings.batch_size] for first in range(0, len(ordered), settings.batch_size)]
        starts = data.starts()
        self.parts = [
            self._part([data.trees[number] for number in group], starts[group], settings.kind) for group in groups
        ]

    def _part(
        self, trees: Sequence[Tree], starts: NDArray[np.int64], kind: StructuralKind
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Where the words of a batch are in `vectors`, [R, T], −1 beyond a sentence; gold, and lengths."""
        lengths = [len(tree) for tree in trees]
        longest = max(lengths)
        places = np.full((len(trees), longest), -1, np.int64)
        gold = np.full((len(trees), *([longest] * (2 if kind == "distance" else 1))), -1, np.int64)
        for row, (tree, start, length) in enumerate(zip(trees, starts, lengths, strict=True)):
            places[row, :length] = np.arange(start, start + length)
            gold[(row, slice(length), slice(length))[: gold.ndim]] = gold_of(kind, tree)
        to = self.device
        return torch.from_numpy(places).to(to), torch.from_numpy(gold).to(to), torch.tensor(lengths, device=to)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: int) -> _Batch:
        places, gold, lengths = self.parts[place]
        vectors = self.vectors[places.clamp(min=0).to(self.vectors.device)].to(self.device, self.dtype)  # [R, T, L, D]
        vectors = vectors.masked_fill_((places < 0)[:, :, None, None], 0.0).permute(2, 0, 1, 3)
        return _Batch(vectors * self.factors, gold, lengths)


class _Adam:
    """Adam over the maps of all layers, each with its own learning rate and number of steps."""

    def __init__(self, maps: Tensor, rate: float) -> None:
        self.maps = maps
        self.rates = torch.full((len(maps), 1, 1), rate, dtype=maps.dtype, device=maps.device)
        self.steps = torch.zeros_like(self.rates)
        self.mean, self.square = torch.zeros_like(maps), torch.zeros_like(maps)

    def step(self, gradients: Tensor) -> None:
        self.steps += 1
        self.mean.lerp_(gradients, 0.1)
        self.square.lerp_(gradients.square(), 0.001)
        mean, square = self.mean / (1 - 0.9**self.steps), self.square / (1 - 0.999**self.steps)
        self.maps -= self.rates * mean / (square.sqrt() + 1e-8)

    def restart(self, layers: Tensor) -> None:
        """Divide the learning rate of these layers [L] by 10, and forget their gradients."""
        self.rates[layers] *= 0.1
        for each in (self.steps, self.mean, self.square):
            each[layers] = 0.0


@dataclass(frozen=True)
class TrainedMaps:
    """The map of each layer."""

    maps: Tensor
    """[L, D, K]"""
    losses: Sequence[float]
    """The lowest loss of each layer on the sentences that were set aside."""
    epochs: Sequence[int]
    """Of each layer the epoch, counted from 1, that had it."""


def train_maps(
    data: ParsedVectors, settings: StructuralSettings, *, device: str = "cpu", progress: Progress | None = None
) -> TrainedMaps:
    """Train a map for each layer, on nine of ten sentences; by the tenth is decided when to stop."""
    if len(data.trees) < HELD_OUT:
        raise InputError(
            f"A structural probe is trained on at least {HELD_OUT} sentences, one of which is set aside. There are "
            f"{len(data.trees)}."
        )
    numbers = range(len(data.trees))
    others = [number for number in numbers if number % HELD_OUT != HELD_OUT - 1]
    factors = DEVIATION / data.deviations()
    vectors = _on_device(data.vectors, device)
    train = _Batches(data, vectors, others, settings, factors, device)
    held_out = _Batches(data, vectors, [*numbers[HELD_OUT - 1 :: HELD_OUT]], settings, factors, device)
    _, n_layers, width = data.vectors.shape
    rank = width if settings.rank is None else min(settings.rank, width)
    generator = torch.Generator().manual_seed(settings.seed)
    dtype = train.dtype
    maps = (torch.rand(n_layers, width, rank, generator=generator, dtype=dtype) * 2 - 1) * INITIAL
    maps = maps.to(device)
    adam = _Adam(maps, settings.learning_rate)
    best, lowest = maps.clone(), torch.full((n_layers,), torch.inf, dtype=dtype, device=device)
    best_epoch = torch.zeros(n_layers, dtype=torch.long, device=device)
    predict = PREDICTIONS[settings.kind]
    for epoch in range(1, settings.epochs + 1):
        for place in torch.randperm(len(train), generator=generator).tolist():
            batch = train[place]
            with torch.enable_grad():
                leaf = maps.detach().requires_grad_()
                loss = structural_loss(predict(leaf, batch.vectors), batch.gold, batch.lengths).sum()
                [gradients] = torch.autograd.grad(loss, leaf)
            adam.step(gradients)
        losses = _mean_loss(maps, held_out, predict)
        lower = losses < lowest
        best[lower], lowest[lower], best_epoch[lower] = maps[lower], losses[lower], epoch
        adam.restart(~lower)
        if progress is not None:
            progress(epoch, settings.epochs)
        if bool((epoch - best_epoch >= PATIENCE).all()):
            break
    best *= torch.from_numpy(factors).to(best)[:, None, None]
    return TrainedMaps(best, lowest.tolist(), best_epoch.tolist())


def _on_device(vectors: NDArray[np.floating], device: str) -> Tensor:
    """In a GPU's memory, where a fourth of what is free there holds them: batches are then put together there."""
    there = torch.from_numpy(vectors)
    return there.to(device) if fits_on(torch.device(device), vectors.nbytes) else there


@torch.no_grad()
def _mean_loss(maps: Tensor, batches: _Batches, predict: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    total = torch.zeros(len(maps), dtype=maps.dtype, device=maps.device)
    n = 0
    for place in range(len(batches)):
        batch = batches[place]
        total += structural_loss(predict(maps, batch.vectors), batch.gold, batch.lengths) * len(batch.lengths)
        n += len(batch.lengths)
    return total / n


@torch.no_grad()
def predictions_of(maps: Tensor, data: ParsedVectors, kind: StructuralKind) -> list[Floats]:
    """Of each sentence [L, T, T] squared distances, or [L, T] squared norms."""
    starts, predictions = data.starts(), []
    for start, tree in zip(starts, data.trees, strict=True):
        vectors = torch.from_numpy(data.vectors[start : start + len(tree)]).to(maps).permute(1, 0, 2)[:, None]
        predictions.append(PREDICTIONS[kind](maps, vectors)[:, 0].double().cpu().numpy())
    return predictions
