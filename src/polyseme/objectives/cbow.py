"""CBOW with negative sampling (Mikolov et al. 2013): a word from the mean of the words around it.

For each word t, h being the mean of the vectors of the words in its window, the loss is

    - log σ(u_t · h) - Σ_k log σ(-u_n · h),  n drawn from the noise distribution, n ≠ t

As in word2vec.c, every word of the window gets the gradient of h whole, not its share of it, which the published
learning rate goes by.

Shapes: see `word_windows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from polyseme.bundle import Bundle
from polyseme.objectives.objective import Arrays, Parts, in_full
from polyseme.objectives.word_windows import NegativeSampling, WordNets, mean_with_whole_gradient, rows_of
from polyseme.parts.memory_and_cache import Memory


@dataclass(frozen=True, kw_only=True)
class Cbow(NegativeSampling):
    """Every word is predicted by the words around it; one that has none is no target."""

    name: ClassVar[str] = "cbow"

    def n_targets(self, contexts: NDArray[np.int64]) -> int:
        return int((contexts > 0).sum())

    def nets(self, bundle: Bundle) -> nn.Module:
        return CbowNets(bundle, self)


class CbowNets(WordNets):
    """The mean around each word of a block scores the word itself and the block's noise words."""

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: words, documents and reach [R, L], noise [R, B, K]."""
        centers, contexts, in_reach, noise = self.windows(arrays)
        n_around = in_reach.sum(3)  # [R, B, N]
        sums = in_reach @ self.look_up(contexts)  # [R, B, N, D]
        means = mean_with_whole_gradient(sums, n_around.clamp(min=1)[..., None])
        counted = (n_around > 0).to(means.dtype)
        scores = (means * rows_of(self.predicted, centers)).sum(3)
        against = in_full(means @ rows_of(self.predicted, noise).transpose(2, 3))  # [R, B, N, K]
        differs = (centers[..., None] != noise[:, :, None]).to(means.dtype)
        times = counted[..., None] * differs * (self.objective.negatives / noise.shape[2])
        loss = -(counted * F.logsigmoid(scores)).sum()
        return {self.objective.name: loss - (times * F.logsigmoid(-against)).sum()}, None
