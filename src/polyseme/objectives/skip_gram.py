"""Skip-gram with negative sampling (Mikolov et al. 2013), and with character n-grams (Bojanowski et al. 2017).

For each word t of a window of a random size up to the setting, the loss is

    - log σ(u_t · v_c) - Σ_k log σ(-u_n · v_c),  n drawn from the noise distribution, n ≠ t

v_c is the vector of the center, with n-grams the mean of its rows; u are the vectors of words that are predicted, and
are left behind. (word2vec.c predicts the center from each word of its window; that is the same pairs the other way
round.)

Shapes: see `word_windows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from polyseme.bundle import Bundle
from polyseme.objectives.objective import Arrays, Parts, in_full
from polyseme.objectives.word_windows import NegativeSampling, WordNets, rows_of
from polyseme.parts.memory_and_cache import Memory


@dataclass(frozen=True, kw_only=True)
class SkipGram(NegativeSampling):
    """Every word predicts the words around it."""

    name: ClassVar[str] = "skip-gram"

    def n_targets(self, contexts: NDArray[np.int64]) -> int:
        return int(contexts.sum())

    def nets(self, bundle: Bundle) -> nn.Module:
        return SkipGramNets(bundle, self)


class SkipGramNets(WordNets):
    """Scores of all words in reach of a block, and of its noise words, for each word of the block."""

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: words, documents and reach [R, L], noise [R, B, K]."""
        centers, contexts, in_reach, noise = self.windows(arrays)
        vectors = self.look_up(centers)  # [R, B, N, D]
        others = rows_of(self.predicted, torch.cat([contexts, noise], dim=2))  # [R, B, C + K, D]
        scores = in_full(vectors @ others.transpose(2, 3))  # [R, B, N, C + K]
        reach = contexts.shape[2]
        differs = (contexts[..., None] != noise[:, :, None]).to(in_reach.dtype)  # [R, B, C, K]
        times = in_reach @ differs * (self.objective.negatives / noise.shape[2])  # [R, B, N, K]
        loss = -(in_reach * F.logsigmoid(scores[..., :reach])).sum()
        return {self.objective.name: loss - (times * F.logsigmoid(-scores[..., reach:])).sum()}, None
