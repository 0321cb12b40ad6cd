"""What attention heads attend to, counted: how often it is the word that a dependency leads to, and their habits.

A head *follows* a relation where the word that a dependent attends to most is its head word (Clark et al. 2019), or,
the other way round, where the word that a head word attends to most is one of its dependents by this relation (Voita et
al. 2019). Special pieces and the word itself are left out; a word that attends to no other word (the first one, where
attention is causal) follows nothing.

Shapes: R sentences, P heads of all layers, W words, A arcs, K pairs of a direction and a relation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.analysis.dependency_trees import Tree
from polyseme.analysis.word_attention import AttentionBatch, SentenceAttention, from_words, to_words
from polyseme.types import Progress

ArcDirection = Literal["to head word", "to dependent"]
ARC_DIRECTIONS: tuple[ArcDirection, ...] = get_args(ArcDirection)
ALL = "all"
"""The name of all relations together, but for those left out."""
LEFT_OUT = ("root", "punct")
"""Relations that count in no total: one leads to no word, and punctuation is attached by convention."""
PREVIOUS, NEXT, ITSELF, FIRST, ENTROPY = "previous", "next", "itself", "first word", "entropy"
"""Habits of heads besides those of special pieces, which go by the names of these."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class HeadTarget:
    """What a head may follow: a relation, in one direction."""

    relation: str
    direction: ArcDirection


def names_of(relation: str) -> list[str]:
    """Under which names a relation is counted: its own, the one that it is a subtype of, and all together.

    >>> names_of("obl:tmod"), names_of("obj"), names_of("punct")
    (['obl:tmod', 'obl', 'all'], ['obj', 'all'], ['punct'])
    """
    base = relation.partition(":")[0]
    names = list(dict.fromkeys([relation, base]))
    return names if base in LEFT_OUT else [*names, ALL]


def relation_counts(trees: Sequence[Tree]) -> Counter[str]:
    """How many dependents have each relation, by all its names; the root, which has no head word, is none."""
    counts = Counter(
        relation for tree in trees for relation, head in zip(tree.relations, tree.heads, strict=True) if head
    )
    named: Counter[str] = Counter()
    for relation, count in counts.items():
        named.update(dict.fromkeys(names_of(relation), count))
    return named


@dataclass
class HeadCounts:
    """How often each head follows each relation, in each direction, over some sentences."""

    keys: Sequence[HeadTarget]
    n: Ints
    """[K]: words that have such a dependency."""
    right: Floats
    """[K, P]: those whose most attended word it leads to."""
    offsets: Sequence[Counter[int]]
    """Of each key, how often the dependency leads so many words to the right (or left, if negative)."""
    right_by_both: Floats
    """[K, P]: those where the head and the fixed offset are both right, where there is an offset."""

    def best_offset(self, key: int) -> int:
        """The offset that is right most often; of equal ones the nearest, the left one first."""
        return min(self.offsets[key], key=lambda offset: (-self.offsets[key][offset], abs(offset), offset), default=-1)

    def accuracies(self) -> Floats:
        """[K, P]"""
        shares: Floats = self.right / np.maximum(self.n, 1)[:, None]
        return shares


@dataclass
class HabitSums:
    """What each head attends to, whatever the sentence means: sums over words."""

    previous: Floats
    """[P]: words whose most attended other word is the one before them."""
    next: Floats
    weights: Mapping[str, Floats]
    """[P]: the weight on the word itself, on the first word (of others), on each special piece; and the entropy of the
    distribution over pieces, in nats."""
    n: int = 0
    """Words."""
    n_previous: int = 0
    """Words that have one before them; as many have one behind."""

    def shares(self) -> dict[str, Floats]:
        """Means over words, by name."""
        beside = max(self.n_previous, 1)
        means = {name: sums / (beside if name == FIRST else max(self.n, 1)) for name, sums in self.weights.items()}
        return {PREVIOUS: self.previous / beside, NEXT: self.next / beside, **means}


def count_heads(
    reader: SentenceAttention,
    trees: Sequence[Tree],
    keys: Sequence[HeadTarget],
    *,
    offsets: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> tuple[HeadCounts, HabitSums]:
    """Run the sentences, and count.

    Args:
        reader: the encoder.
        trees: the sentences.
        keys: what may be followed.
        offsets: of each key the fixed offset that heads are compared with, word by word.
        progress: called with the sentences done, and all.
    """
    n_keys, n_heads = len(keys), len(reader.heads)
    number_of: dict[tuple[str, str], int] = {(key.relation, key.direction): number for number, key in enumerate(keys)}
    counts = HeadCounts(
        keys,
        np.zeros(n_keys, np.int64),
        np.zeros((n_keys, n_heads)),
        [Counter() for _ in keys],
        np.zeros((n_keys, n_heads)),
    )
    pieces = reader.special_pieces
    weights = {name: np.zeros(n_heads) for name in (ITSELF, FIRST, *pieces, ENTROPY)}
    habits = HabitSums(np.zeros(n_heads), np.zeros(n_heads), weights)
    for batch in reader([tree.document() for tree in trees], progress):
        attended, values = _by_head(batch, pieces)
        arcs = _arcs([trees[number] for number in batch.numbers], number_of)
        _count_arcs(counts, arcs, attended, offsets)
        _count_habits(habits, batch.spans[..., 0] >= 0, attended, values)
    return counts, habits


def _by_head(batch: AttentionBatch, pieces: Mapping[str, int]) -> tuple[Tensor, Mapping[str, Tensor]]:
    """[R, P, W]: the most attended words; and the weights on single things, by name, with the entropy."""
    attended: list[Tensor] = []
    weights: dict[str, list[Tensor]] = {name: [] for name in (ITSELF, FIRST, ENTROPY, *pieces)}
    for layer in batch.weights:
        words = to_words(layer, batch.spans)
        attended.append(most_attended(words))
        weights[ITSELF].append(words.diagonal(dim1=-2, dim2=-1))
        weights[FIRST].append(words[..., 0])
        weights[ENTROPY].append(from_words(torch.special.entr(layer).sum(-1, keepdim=True), batch.spans)[..., 0])
        for name, id in pieces.items():
            special = (batch.specials == id).to(layer.dtype)[:, None, :, None]
            weights[name].append(from_words(layer @ special, batch.spans)[..., 0])
    return torch.cat(attended, dim=1), {name: torch.cat(each, dim=1).double() for name, each in weights.items()}


def most_attended(weights: Tensor) -> Tensor:
    """[R, H, W]: the other word that each word attends to most; -1: to none at all. Of equal ones, the first."""
    others = weights.masked_fill(torch.eye(weights.shape[-1], dtype=torch.bool, device=weights.device), 0.0)
    most, place = others.max(-1)
    return place.masked_fill(most <= 0, -1)


# --- relations --------------------------------------------------------------------------------------------------------


@dataclass
class _Arcs:
    """Dependencies as arrays [A]: of which sentence, from where to where, under which key; instances share an answer.

    A head word with several dependents by one relation is one instance: any of them is right.
    """

    row: Ints
    source: Ints
    target: Ints
    instance: Ints
    key: Ints
    """[instances]"""


def _arcs(trees: Sequence[Tree], number_of: Mapping[tuple[str, str], int]) -> _Arcs:
    arcs: list[tuple[int, int, int, int]] = []
    for row, tree in enumerate(trees):
        for dependent, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if not head:
                continue
            ends = {"to head word": (dependent, head - 1), "to dependent": (head - 1, dependent)}
            for name in names_of(relation):
                arcs += [
                    (row, number_of[name, direction], *between)
                    for direction, between in ends.items()
                    if (name, direction) in number_of
                ]
    table = np.array(arcs, np.int64).reshape(-1, 4)
    instances, instance = np.unique(table[:, :3], axis=0, return_inverse=True)
    return _Arcs(table[:, 0], table[:, 2], table[:, 3], instance.reshape(-1), instances[:, 1])


def _count_arcs(counts: HeadCounts, arcs: _Arcs, attended: Tensor, offsets: Sequence[int] | None) -> None:
    n_keys = len(counts.keys)
    counts.n += np.bincount(arcs.key, minlength=n_keys)
    distance = arcs.target - arcs.source
    for key, offset in zip(arcs.key[arcs.instance].tolist(), distance.tolist(), strict=True):
        counts.offsets[key][offset] += 1
    device = attended.device
    row, source, target, instance, key = (
        torch.from_numpy(each).to(device) for each in (arcs.row, arcs.source, arcs.target, arcs.instance, arcs.key)
    )
    hits = (attended[row, :, source] == target[:, None]).double()  # [A, P]
    by_instance = hits.new_zeros(len(arcs.key), hits.shape[1]).index_add_(0, instance, hits)
    sums = hits.new_zeros(n_keys, hits.shape[1]).index_add_(0, key, by_instance)
    counts.right += sums.cpu().numpy()
    if offsets is not None:
        fixed = np.asarray(offsets, np.int64)[arcs.key[arcs.instance]] == distance
        with_offset = np.zeros(len(arcs.key))
        np.maximum.at(with_offset, arcs.instance, fixed)
        both = by_instance * torch.from_numpy(with_offset).to(device)[:, None]
        counts.right_by_both += hits.new_zeros(n_keys, hits.shape[1]).index_add_(0, key, both).cpu().numpy()


# --- habits -----------------------------------------------------------------------------------------------------------


def _count_habits(sums: HabitSums, there: Tensor, attended: Tensor, weights: Mapping[str, Tensor]) -> None:
    places = torch.arange(there.shape[1], device=there.device)
    later = there & (places > 0)

    def total(values: Tensor, where: Tensor) -> Floats:
        """[R, P, W] → [P], over the words of the mask [R, W]."""
        summed: Floats = (values * where[:, None]).sum((0, 2)).cpu().numpy()
        return summed

    sums.previous += total((attended == places - 1).double(), later)
    sums.next += total((attended == places + 1).double(), there)
    sums.n_previous += int(later.sum())
    sums.n += int(there.sum())
    for name, values in weights.items():
        sums.weights[name][:] += total(values, later if name == FIRST else there)
