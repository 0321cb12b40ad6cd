"""GloVe (Pennington et al. 2014): logarithms of co-occurrences as products of vectors.

For words i and j with the co-occurrence x, the loss is

    ½ f(x) (w_i · w̃_j + b_i + b̃_j - log x)²,  f(x) = min(1, (x / x_max)^α)

The vector of a word is the sum of w and w̃. A pair is stored once and learned in both orders. The original moves after
each pair and divides by the sums of squares before it; here the gradients of a step are added up first, and AdaGrad's
sums include the step's own.

Shapes: R rows, T pairs of a row, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.corpus.cooccurrences import Cooccurrences, Pairs, pairs_of
from polyseme.corpus.corpus import Corpus
from polyseme.encoders.static import Static
from polyseme.errors import OptionError
from polyseme.objectives.counted_words import Floats, Ints
from polyseme.objectives.objective import Arrays, Parts
from polyseme.objectives.word_windows import WordObjective, trained_vectors
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Example, Needs, Rows

BASELINE_PAIRS = 1 << 21
"""Pairs that the biases of the baseline are fitted to at most."""
BASELINE_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class Glove(WordObjective):
    """Weighted least squares over the pairs of words that co-occur."""

    name: ClassVar[str] = "glove"

    window: int = 15
    x_max: float = 100.0
    """Co-occurrences from here on count in full."""
    alpha: float = 0.75
    """The power by which fewer count less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.x_max > 0 and 0 <= self.alpha <= 1):
            raise OptionError(
                f"GloVe's x_max must be above 0 and its alpha from 0 to 1. Got {self.x_max} and {self.alpha} instead."
            )

    @property
    def needs(self) -> Needs:
        return Needs(directions=("none",), outputs=(), layout=Cooccurrences(window=self.window), units=("word",))

    def importance(self, weights: Floats) -> Floats:
        """f(x)."""
        return np.minimum((weights / self.x_max) ** self.alpha, 1.0)

    def corrupt(self, rows: Rows) -> Example:
        if rows.weights is None or rows.target is None:
            raise ValueError("GloVe reads pairs of words with their weights.")
        one, other = rows.pieces, rows.target.pieces
        n_orders = np.where(one == other, 1, 2)
        arrays = {
            "first": one.astype(np.int32),
            "second": other.astype(np.int32),
            "logs": np.log(rows.weights).astype(np.float32),
            "importance": (self.importance(rows.weights) * n_orders / 2).astype(np.float32),
        }
        return Example(arrays, {self.name: float(n_orders.sum())})

    def nets(self, bundle: Bundle) -> nn.Module:
        return GloveNets(bundle)

    def baseline(self, nets: nn.Module, corpus: Corpus, most: int) -> float:
        """The loss of the best biases alone on held-out pairs: GloVe without vectors."""
        pairs = pairs_of(corpus, self.window)
        biases = self._fitted_biases(pairs, corpus.tokenizer.n_pieces)
        first, second, logs, importance = self._sample(pairs, "held")
        n_orders = np.where(first == second, 1, 2)
        off = logs - biases[first] - biases[second]
        return float((n_orders * importance * off**2).sum() / (2 * max(n_orders.sum(), 1)))

    def _fitted_biases(self, pairs: Pairs, n_words: int) -> Floats:
        """[V]: one bias of each word, by weighted least squares; each round goes half of the way."""
        first, second, logs, importance = self._sample(pairs, "train")
        total = np.bincount(first, importance, n_words) + np.bincount(second, importance, n_words)
        biases = np.full(n_words, np.average(logs, weights=importance) / 2)
        for _ in range(BASELINE_ROUNDS):
            left = importance * (logs - biases[first] - biases[second])
            missing = np.bincount(first, left, n_words) + np.bincount(second, left, n_words)
            biases += 0.5 * missing / np.maximum(total, 1e-12)
        return biases

    def _sample(self, pairs: Pairs, split: str) -> tuple[Ints, Ints, Floats, Floats]:
        at = pairs.places(split, np.arange(min(pairs.n_of(split), BASELINE_PAIRS)))
        weights = pairs.weight[at].astype(np.float64)
        ids = (each[at].astype(np.int64) for each in (pairs.first, pairs.second))
        return *ids, np.log(weights), self.importance(weights)  # type: ignore[return-value]

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """Of the products of vectors alone, in both orders: forwards, and twice backwards."""
        return 12.0 * n_rows * length * cast(GloveNets, nets).table.shape[1]

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        nets = cast(GloveNets, nets)
        return {"model": trained_vectors(nets.bundle, (nets.table + nets.context).detach(), self.vocabulary.ordinary)}


class GloveNets(nn.Module):
    """Two tables and two lists of biases, all drawn alike; the first table is the encoder's."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        encoder = cast(Static, bundle.encoder)
        config = encoder.config
        self.table = encoder.table
        self.context = nn.Parameter(torch.empty_like(encoder.table))
        self.biases = nn.Parameter(torch.empty(len(encoder.table), 2, device=encoder.table.device))
        for each in (self.context, self.biases):
            nn.init.uniform_(each, -config.init_bound, config.init_bound)
        self._bundle = (bundle,)  # in a tuple, so that it is no submodule

    @property
    def bundle(self) -> Bundle:
        return self._bundle[0]

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: first, second, logs and importance [R, T]."""
        first, second = arrays["first"].flatten().long(), arrays["second"].flatten().long()
        logs, importance = (arrays[name].flatten().to(self.table.dtype) for name in ("logs", "importance"))
        off = self._scores(first, second) - logs, self._scores(second, first) - logs
        return {"glove": 0.5 * (importance * (off[0] ** 2 + off[1] ** 2)).sum()}, None

    def _scores(self, words: Tensor, contexts: Tensor) -> Tensor:
        products = (self.table[words] * self.context[contexts]).sum(1)
        return products + self.biases[words, 0] + self.biases[contexts, 1]
