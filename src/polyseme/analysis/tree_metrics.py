"""How near predicted distances and depths are to those of dependency trees, as Hewitt and Manning (2019) measure it.

- UUAS: of the arcs of the gold trees, direction aside, the share that is in the minimum spanning trees of the predicted
  distances; of all sentences together, without punctuation.
- Distance Spearman: of each word the rank correlation of its predicted and its gold distances to all words of its
  sentence; the mean over all words of sentences of one length, then over lengths from 5 to 50.
- Root accuracy: how often the word with the lowest predicted depth, punctuation aside, is the root.
- Depth Spearman: the rank correlation of the depths of a sentence's words; the mean over sentences of one length, then
  over lengths from 5 to 50.

Shapes: L layers, T words of a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme.analysis.dependency_trees import PUNCTUATION, Tree
from polyseme.analysis.structural_probe import StructuralKind, tree_depths, tree_distances

SHORTEST, LONGEST = 5, 50
"""Lengths of sentences that count in mean rank correlations."""

Floats = NDArray[np.float64]
Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class StructuralScores:
    """Figures of each layer."""

    share: Floats
    """[L]: UUAS, or of depths the root accuracy."""
    spearman: Floats
    """[L]; NaN where no sentence has from 5 to 50 words."""
    n: int
    """Arcs, or roots, that the share is of."""


def score(kind: StructuralKind, trees: Sequence[Tree], predictions: Sequence[Floats]) -> StructuralScores:
    """Compare predictions [L, T, T] or [L, T] of each sentence with its tree."""
    by_length: dict[int, list[Floats]] = {}
    right, n = np.zeros(len(predictions[0])), 0
    for tree, predicted in zip(trees, predictions, strict=True):
        if kind == "distance":
            gold = tree_distances(tree)
            of_sentence, n_edges = _shared_edges(tree, gold, predicted)
            right, n = right + of_sentence, n + n_edges
            correlations = rank_correlations(predicted, gold[None]).mean(-1)
        else:
            depths = tree_depths(tree)
            words = _spelled_words(tree)
            if len(words):
                right = right + (depths[words][predicted[:, words].argmin(-1)] == 0)
                n += 1
            correlations = rank_correlations(predicted, depths[None])
        if SHORTEST <= len(tree) <= LONGEST:
            by_length.setdefault(len(tree), []).append(correlations)
    return StructuralScores(right / max(n, 1), mean_over_lengths(by_length, len(right)), n)


def mean_over_lengths(by_length: Mapping[int, Sequence[Floats]], n_layers: int) -> Floats:
    """Means over sentences of one length, then over lengths."""
    if not by_length:
        return np.full(n_layers, np.nan)
    mean: Floats = np.mean([np.mean(each, axis=0) for each in by_length.values()], axis=0)
    return mean


def _spelled_words(tree: Tree) -> NDArray[np.int64]:
    """The words that are no punctuation."""
    return np.array([at for at, part in enumerate(tree.parts_of_speech) if part != PUNCTUATION], np.int64)


def _shared_edges(tree: Tree, gold: NDArray[np.int64], predicted: Floats) -> tuple[Floats, int]:
    """[L]: how many edges predicted and gold trees share, punctuation aside; and how many there are."""
    words = _spelled_words(tree)
    if len(words) < 2:
        return np.zeros(len(predicted)), 0
    among = np.ix_(words, words)
    [gold_edges] = spanning_trees(gold[among].astype(np.float64)[None])
    expected = set(gold_edges)
    trees = spanning_trees(predicted[:, among[0], among[1]])
    return np.array([len(expected.intersection(edges)) for edges in trees], np.float64), len(expected)


def tree_edges(tree: Tree, distances: Floats) -> Edges:
    """The edges of the minimum spanning tree over the words that are no punctuation, as places in the sentence."""
    words = _spelled_words(tree)
    if len(words) < 2:
        return []
    [edges] = spanning_trees(distances[np.ix_(words, words)][None])
    return [(int(words[first]), int(words[second])) for first, second in edges]


def spanning_trees(distances: Floats) -> list[Edges]:
    """The minimum spanning tree of each matrix [L, T, T], by Prim's algorithm over all layers at once.

    >>> spanning_trees(np.array([[[0.0, 1.0, 5.0], [1.0, 0.0, 2.0], [5.0, 2.0, 0.0]]]))
    [[(0, 1), (1, 2)]]
    """
    n_layers, n, _ = distances.shape
    layers = np.arange(n_layers)
    outside = np.ones((n_layers, n), np.bool_)
    outside[:, 0] = False
    nearest = distances[:, 0].copy()  # of each word its distance to the tree so far
    parent = np.zeros((n_layers, n), np.int64)
    edges: list[Edges] = [[] for _ in layers]
    for _ in range(n - 1):
        chosen = np.where(outside, nearest, np.inf).argmin(-1)
        for layer, word in enumerate(chosen.tolist()):
            other = int(parent[layer, word])
            edges[layer].append((min(word, other), max(word, other)))
        outside[layers, chosen] = False
        nearer = distances[layers, chosen] < nearest
        nearest = np.where(nearer, distances[layers, chosen], nearest)
        parent = np.where(nearer, chosen[:, None], parent)
    return [sorted(each) for each in edges]


def rank_correlations(one: NDArray[np.floating], other: NDArray[np.number]) -> Floats:
    """Spearman's correlation along the last axis, equal values sharing their rank; 0 where one side is constant.

    >>> rank_correlations(np.array([0.0, 1.0, 8.0]), np.array([1, 2, 3])).item()
    1.0
    """
    first, second = (_centered_ranks(np.asarray(each, np.float64)) for each in (one, other))
    sizes = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    products: Floats = (first * second).sum(-1)
    correlations: Floats = np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0)
    return correlations


def _centered_ranks(values: Floats) -> Floats:
    below = (values[..., :, None] > values[..., None, :]).sum(-1)
    up_to = (values[..., :, None] >= values[..., None, :]).sum(-1)
    ranks = (below + up_to) / 2
    centered: Floats = ranks - ranks.mean(-1, keepdims=True)
    return centered


# --- what needs no model ----------------------------------------------------------------------------------------------


def chain_predictions(kind: StructuralKind, trees: Sequence[Tree]) -> list[Floats]:
    """Of each sentence the distances, or depths, in a chain, where each word hangs on the one before."""
    predictions = []
    for tree in trees:
        places = np.arange(len(tree), dtype=np.float64)
        predictions.append(np.abs(places[:, None] - places)[None] if kind == "distance" else places[None])
    return predictions
