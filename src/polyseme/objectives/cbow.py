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
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.objectives.table_rows import add_rows, mean_with_whole_gradient, rows_of
from polyseme.objectives.word_windows import NegativeSampling, Windows, WordNets, logistic_loss
from polyseme.parts.precision import single_precision


@dataclass(frozen=True, kw_only=True)
class Cbow(NegativeSampling):
    """Every word is predicted by the words around it; one that has none is no target."""

    name: ClassVar[str] = "cbow"

    def n_targets(self, contexts: NDArray[np.int64]) -> int:
        return int((contexts > 0).sum())

    @property
    def targets_per_word(self) -> float:
        return 1.0

    def nets(self, bundle: Bundle) -> nn.Module:
        return CbowNets(bundle, self)


class CbowNets(WordNets):
    """The mean around each word of a block scores the word itself and the block's noise words."""

    def blocks(self, windows: Windows) -> tuple[Tensor, ...]:
        """Contexts [S, C], which of them are averaged [S, N, C], centers [S, N], whether each counts [S, N], noise
        [S, K], and how often each of that counts [S, N, K].
        """
        centers, contexts, in_reach, noise, _ = windows
        counted = (in_reach.sum(2) > 0).to(in_reach.dtype)
        differs = (centers[..., None] != noise[:, None]).to(in_reach.dtype)  # [S, N, K]
        times = counted[..., None] * differs * (self.objective.negatives / noise.shape[1])
        return contexts, in_reach, centers, counted, noise, times

    def loss(self, blocks: tuple[Tensor, ...]) -> Tensor:
        contexts, in_reach, centers, counted, noise, times = blocks
        sums = in_reach @ self.look_up(contexts)  # [S, N, D]
        means = mean_with_whole_gradient(sums, in_reach.sum(2, keepdim=True).clamp(min=1))
        scores = single_precision((means * rows_of(self.predicted, centers)).sum(2))  # [S, N]
        against = single_precision(means @ rows_of(self.predicted, noise).transpose(1, 2))  # [S, N, K]
        return -(counted * F.logsigmoid(scores)).sum() - (times * F.logsigmoid(-against)).sum()

    def move(self, blocks: tuple[Tensor, ...], rate: float) -> Tensor:
        contexts, in_reach, centers, counted, noise, times = blocks
        means = (in_reach @ self.look_up(contexts)).div_(in_reach.sum(2, keepdim=True).clamp(min=1))
        own = rows_of(self.predicted, centers)
        scores = (means * own).sum(2)
        of_scores = ((scores.sigmoid() - 1) * counted)[..., None]
        loss, of_means, of_noise = logistic_loss(means, rows_of(self.predicted, noise), times, 0)
        of_means.addcmul_(of_scores, own)
        add_rows(self.predicted, centers, of_scores * means, -rate)
        add_rows(self.predicted, noise, of_noise, -rate)
        self.add(contexts, (in_reach.transpose(1, 2) @ of_means).mul_(-rate))
        return loss - (counted * F.logsigmoid(scores)).sum()
