"""Scoring with a two-way encoder: by its forward half, its backward half, or both.

Each half by itself says how likely a text is. Of both the mean of the two log-probabilities is given, word by word: no
probability of the text, but what each direction is trained for, and their perplexities are said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from polyseme.errors import OptionError
from polyseme.scoring.causal import LeftToRight
from polyseme.scoring.target_rows import Guessed, OnBatch, Ran
from polyseme.types import Pieces


class BothWays:
    """The mean of what a forward and a backward half say."""

    unscored_first: str | None = None

    def __init__(self, halves: Mapping[str, LeftToRight]) -> None:
        self.halves = halves
        self._log_probs = dict.fromkeys(halves, 0.0)
        self._n_words = 0
        self._n_texts = 0

    @property
    def how(self) -> str:
        """In words, how texts are scored."""
        return f"{' and '.join(half.how for half in self.halves.values())}, the mean of both"

    def key(self, pieces: Pieces) -> bytes:
        """Every document by itself, since all of them count in what is said of each direction."""
        self._n_texts += 1
        return self._n_texts.to_bytes(8, "big")

    def unknown(self, pieces: Pieces) -> int:
        return next(iter(self.halves.values())).unknown(pieces)

    def notes(self) -> list[str]:
        if not self._n_words:
            return []
        said = [
            f"{_perplexity(log_prob, self._n_words):,.2f} {half.how}"
            for half, log_prob in zip(self.halves.values(), self._log_probs.values(), strict=True)
        ]
        return [f"The perplexity a word is {', '.join(said)}; log-probabilities are the mean of both."]

    def __call__(
        self,
        encoded: Sequence[Pieces],
        *,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> tuple[Guessed, Ran]:
        """Log-probabilities of all words of all documents, one after another, and what that took."""
        if best:
            raise OptionError("Which word is the likeliest is asked of one direction. Choose an order.")
        found = {name: half(encoded, only=only, on_batch=on_batch) for name, half in self.halves.items()}
        for name, (guessed, _) in found.items():
            self._log_probs[name] += float(np.nansum(guessed.log_probs))
        each = np.stack([guessed.log_probs for guessed, _ in found.values()])
        self._n_words += int(np.count_nonzero(~np.isnan(each[0])))
        pieces, flops = (sum(took[number] for _, took in found.values()) for number in (0, 1))
        return Guessed(each.mean(axis=0), np.zeros(each.shape[1], np.bool_)), Ran(int(pieces), float(flops))


def _perplexity(log_prob: float, n_words: int) -> float:
    try:
        return math.exp(-log_prob / n_words)
    except OverflowError:
        return math.inf
