"""The words of a corpus and how often each occurs, which decides what is read of a text and drawn as noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import Corpus
from polyseme.objectives.objective import Vocabulary
from polyseme.types import Tokenizer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class CountedWords(Vocabulary):
    """The words of a corpus and how often each piece occurs in its training text; special pieces do not count."""

    words: Sequence[str] = field(repr=False)
    """By the numbers of their pieces."""
    counts: Ints = field(repr=False, compare=False)

    @classmethod
    def of_corpus(cls, corpus: Corpus) -> CountedWords:
        return cls.counted(corpus.tokenizer, corpus.piece_counts("train"))

    @classmethod
    def counted(cls, tokenizer: Tokenizer, counts: Ints) -> CountedWords:
        """The words of a tokenizer, with these counts of its pieces."""
        ordinary = counts.copy()
        ordinary[sorted(set(tokenizer.specials.values()))] = 0
        return cls.of(tokenizer, words=tokenizer.pieces(range(tokenizer.n_pieces)), counts=ordinary)

    @cached_property
    def shares(self) -> Floats:
        """[V]: of all words of the text."""
        return self.counts / max(int(self.counts.sum()), 1)

    def selection(self, threshold: float) -> Floats:
        """[V]: the probability that a word of the text is read; 0 of special pieces. With threshold 0 all are."""
        if not threshold:
            return (self.counts > 0).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = threshold / self.shares
            selected = np.sqrt(ratio) + ratio
        return np.where(self.counts > 0, np.minimum(selected, 1.0), 0.0)

    def noise(self, power: float) -> Floats:
        """[V]: the distribution of noise words."""
        weights = np.where(self.counts > 0, self.counts.astype(np.float64) ** power, 0.0)
        return weights / max(float(weights.sum()), 1e-300)
