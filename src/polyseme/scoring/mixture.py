"""Linear interpolation of models that predict the same pieces: p(w) = Σ_i λ_i p_i(w), with weights fitted to text.

The weights are those under which held-out text is likeliest, by expectation maximization (Jelinek and Mercer 1980):
each piece is shared out among the models by how likely each found it, and a model's next weight is its mean share. The
likelihood has one maximum, and never falls from step to step.

Shapes: K models, N pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from polyseme.errors import InputError, OptionError
from polyseme.scoring.target_rows import ScoringMethod, ScoringRequest, TargetScores, Usage
from polyseme.scoring.text_scores import Floats
from polyseme.types import Pieces

CONVERGED = 1e-10
"""The change of the mean log-probability, in nats, below which fitting ends."""
MOST_STEPS = 1000


def mix_log_probs(log_probs: Floats, weights: Sequence[float] | Floats) -> Floats:
    """[K, N] and [K] → [N]: the log-probabilities of a mixture.

    >>> np.exp(mix_log_probs(np.log([[0.5], [0.1]]), [0.25, 0.75])).round(6).tolist()
    [0.2]
    """
    with np.errstate(divide="ignore"):
        result: Floats = np.logaddexp.reduce(log_probs + np.log(np.asarray(weights))[:, None], axis=0)
    return result


class FittedWeights(NamedTuple):
    """The weights of a mixture, and how many steps they took."""

    weights: Floats
    """[K]"""
    n_steps: int


def fit_weights(log_probs: Floats) -> FittedWeights:
    """The weights under which pieces are likeliest, by the log-probabilities that each model gives them [K, N].

    >>> fit_weights(np.log([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]])).weights.round(3).tolist()
    [0.708, 0.292]
    """
    if not log_probs.shape[1]:
        raise InputError("There is nothing to fit the weights to: no piece of the held-out text has a score.")
    if np.isneginf(log_probs).all(axis=0).any():
        raise InputError("A piece of the held-out text is impossible to all models, so that no weights fit it.")
    weights = np.full(len(log_probs), 1 / len(log_probs))
    before = -np.inf
    for n_steps in range(1, MOST_STEPS + 1):
        whole = mix_log_probs(log_probs, weights)
        now = float(whole.mean())
        if now - before < CONVERGED or n_steps == MOST_STEPS:
            break
        before = now
        with np.errstate(divide="ignore"):
            weights = np.exp(log_probs + np.log(weights)[:, None] - whole).mean(axis=1)
    return FittedWeights(weights / weights.sum(), n_steps)


class MixtureScoring(ScoringMethod):
    """The mixture of what several models say of the same pieces, each read as it is by itself."""

    def __init__(self, methods: Sequence[ScoringMethod], weights: Sequence[float]) -> None:
        self.methods = methods
        self.weights = weights

    @property
    def description(self) -> str:
        parts = [f"{weight:.3f} × {each.description}" for each, weight in zip(self.methods, self.weights, strict=True)]
        return f"a mixture: {' + '.join(parts)}"

    @property
    def unscored_first(self) -> str | None:
        return next((each.unscored_first for each in self.methods if each.unscored_first is not None), None)

    def unknown(self, pieces: Pieces) -> int:
        return max(each.unknown(pieces) for each in self.methods)

    def prepare(self) -> None:
        for each in self.methods:
            each.prepare()

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        if request.best:
            raise OptionError("Which piece is the likeliest is not computed for mixtures. Evaluate one of the models.")
        results = [each(request) for each in self.methods]
        log_probs = mix_log_probs(np.stack([scores.log_probs for scores, _ in results]), self.weights)
        usage = Usage(sum(usage.pieces for _, usage in results), sum(usage.flops for _, usage in results))
        return TargetScores(log_probs, np.zeros(len(log_probs), np.bool_)), usage
