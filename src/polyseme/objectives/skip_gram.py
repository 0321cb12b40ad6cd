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
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.objectives.table_rows import add_rows, rows_of
from polyseme.objectives.word_windows import NegativeSampling, Windows, WordNets, logistic_loss
from polyseme.parts.precision import single_precision


@dataclass(frozen=True, kw_only=True)
class SkipGram(NegativeSampling):
    """Every word predicts the words around it."""

    name: ClassVar[str] = "skip-gram"

    def n_targets(self, contexts: NDArray[np.int64]) -> int:
        return int(contexts.sum())

    @property
    def targets_per_word(self) -> float:
        return self.window + 1.0

    def nets(self, bundle: Bundle) -> nn.Module:
        return SkipGramNets(bundle, self)


class SkipGramNets(WordNets):
    """Scores of all words in reach of a block, and of its noise words, for each word of the block."""

    def blocks(self, windows: Windows) -> tuple[Tensor, ...]:
        """Centers [S, N], the words that they score [S, C + K], and how often each counts [S, N, C + K]."""
        centers, contexts, in_reach, noise, _ = windows
        differs = (contexts[..., None] != noise[:, None]).to(in_reach.dtype)  # [S, C, K]
        times = in_reach @ differs * (self.objective.negatives / noise.shape[1])  # [S, N, K]
        return centers, torch.cat([contexts, noise], dim=1), torch.cat([in_reach, times], dim=2)

    def loss(self, blocks: tuple[Tensor, ...]) -> Tensor:
        centers, others, times = blocks
        scores = single_precision(
            self.look_up(centers) @ rows_of(self.predicted, others).transpose(1, 2)
        )  # [S, N, C + K]
        true, noise = scores.split([self._reach(others), self.objective.shared_negatives], dim=2)
        return -(times * F.logsigmoid(torch.cat([true, -noise], dim=2))).sum()

    def move(self, blocks: tuple[Tensor, ...], rate: float) -> Tensor:
        centers, others, times = blocks
        vectors, scored = self.look_up(centers), rows_of(self.predicted, others)
        loss, of_vectors, of_scored = logistic_loss(vectors, scored, times, self._reach(others))
        self.add(centers, of_vectors.mul_(-rate))
        add_rows(self.predicted, others, of_scored, -rate)
        return loss

    def _reach(self, others: Tensor) -> int:
        """C: the others that are no noise."""
        return others.shape[1] - self.objective.shared_negatives
