"""The continuous cache (Grave, Joulin and Usunier 2017): recent words of a text are likelier to come again.

Beside each earlier piece the cache keeps the state h that had to predict it. The more the current state is like
one of those, the likelier the piece that came then:

    p_cache(w) ∝ Σ_i 1[w = x_{i+1}] · exp(θ h_t · h_i)        over the last n pieces of the text, i < t
    p(w) = (1 − λ) · p_model(w) + λ · p_cache(w)

Nothing is trained, so it goes with any model that predicts from left to right. A text begins with an empty cache, and
its first prediction is the model's alone.

Shapes: M predictions, C kept pieces, D width.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from polyseme.errors import OptionError

NUMBERS_AT_ONCE = defaultdict(lambda: 1 << 21, {"cuda": 1 << 25})
"""How many products of states exist at once: predicts × kept pieces."""


@dataclass(frozen=True, kw_only=True)
class NeuralCache:
    """How far back the cache goes, how much it counts, and how choosy it is.

    The paper fits λ and θ to each model on held-out text, and so should whoever wants the best of it; these are only
    where to begin. The longer a model's states are as vectors, the smaller θ wants to be.
    """

    size: int = 2000
    """n: the pieces that are kept, of those that came last in the same text."""
    share: float = 0.1
    """λ: how much of the probability is the cache's."""
    sharpness: float = 0.3
    """θ: at 0 all kept pieces count alike, and the cache is one of plain counts."""

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise OptionError(f"The size of the cache must be a whole number from 1 on. Got {self.size!r} instead.")
        if not 0 <= self.share < 1:
            raise OptionError(f"The share of the cache must be at least 0 and below 1. Got {self.share!r} instead.")
        if not (math.isfinite(self.sharpness) and self.sharpness >= 0):
            raise OptionError(f"The sharpness of the cache must be a number from 0 on. Got {self.sharpness!r} instead.")

    def __str__(self) -> str:
        return (
            f"with a cache of the last {self.size:,} pieces of the text (share {self.share:g}, "
            f"sharpness {self.sharpness:g})"
        )


def neural_cache_of(enabled: bool, size: int, share: float, sharpness: float) -> NeuralCache | None:
    """The cache, if it is enabled; settings of one that is not are refused."""
    chosen = NeuralCache(size=size, share=share, sharpness=sharpness)
    if not enabled and chosen != NeuralCache():
        raise OptionError("The settings of a cache were given, but no cache. Turn the neural cache on, too.")
    return chosen if enabled else None


@dataclass
class _Cache:
    states: Tensor
    """[C, D], the latest last."""
    pieces: Tensor
    """[C]"""


class Caches:
    """A cache for each of the texts that are being read."""

    def __init__(self, settings: NeuralCache) -> None:
        self.settings = settings
        self.flops = 0.0
        self._caches: dict[int, _Cache] = {}

    @property
    def n_pieces(self) -> int:
        """Pieces that are kept, of all texts together."""
        return sum(len(cache.pieces) for cache in self._caches.values())

    def forget(self, text: int) -> None:
        """A text has ended."""
        self._caches.pop(text, None)

    @torch.inference_mode()
    def __call__(self, text: int, states: Tensor, pieces: Tensor, log_probs: Tensor) -> Tensor:
        """The next predictions of a text, in order: their states [M, D], what came [M], and the log-probability that
        the model alone gave it [M] → log-probabilities [M] with the cache, which holds these from now on.
        """
        size = self.settings.size
        states = states.to(log_probs.dtype)
        cache = self._caches.get(text) or _Cache(states[:0], pieces[:0])
        at_once = _predictions_at_once(size, NUMBERS_AT_ONCE[states.device.type])
        mixed = [log_probs[:0]]
        for start in range(0, len(pieces), at_once):
            here = slice(start, start + at_once)
            n_pieces = len(cache.pieces)
            cache = _Cache(torch.cat([cache.states, states[here]]), torch.cat([cache.pieces, pieces[here]]))
            mixed.append(self._mix_in(cache, n_pieces, log_probs[here]))
            cache = _Cache(cache.states[-size:].clone(), cache.pieces[-size:].clone())
        self._caches[text] = cache
        return torch.cat(mixed)

    def _mix_in(self, cache: _Cache, n_before: int, log_probs: Tensor) -> Tensor:
        """With the cache: prediction m is at `n_before` + m of the cache, and sees the earlier ones."""
        settings = self.settings
        places = torch.arange(len(cache.pieces), device=log_probs.device)
        own = places[n_before:, None]
        seen = (places < own) & (places >= own - settings.size)  # [M, C]
        alike = settings.sharpness * (cache.states[n_before:] @ cache.states.t())
        alike = alike.masked_fill(~seen, -math.inf)
        same = cache.pieces[n_before:, None] == cache.pieces
        of_it = alike.masked_fill(~same, -math.inf).logsumexp(dim=1)
        self.flops += 2.0 * alike.numel() * cache.states.shape[1]
        if settings.share == 0:
            return log_probs
        recalled = math.log(settings.share) + of_it - alike.logsumexp(dim=1)
        mixed = torch.logaddexp(math.log1p(-settings.share) + log_probs, recalled)
        return torch.where(seen.any(dim=1), mixed, log_probs)


def _predictions_at_once(size: int, most: int) -> int:
    """M, such that M · (size + M) is at most `most`; at least 1.

    >>> _predictions_at_once(2000, 1 << 21), _predictions_at_once(1, 10), _predictions_at_once(100, 10)
    (759, 2, 1)
    """
    return max((math.isqrt(size * size + 4 * most) - size) // 2, 1)
