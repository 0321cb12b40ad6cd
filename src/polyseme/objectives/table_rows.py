"""Rows of tables of vectors: which of them a word has, how they are read, and how they are moved.

Shapes: V words, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.encoders.static import StaticConfig
from polyseme.objectives.counted_words import CountedWords, Floats
from polyseme.objectives.objective import Vocabulary
from polyseme.text.character_ngrams import CharacterNgrams


@dataclass
class Spellings:
    """The rows of every word: its own, and those of its n-grams."""

    rows: Tensor
    begins: Tensor
    counts: Tensor

    @classmethod
    def of(cls, config: StaticConfig, vocabulary: Vocabulary | None) -> Spellings | None:
        """Of a vocabulary's words; None where words have no n-grams."""
        if not config.max_ngram or not isinstance(vocabulary, CountedWords):
            return None
        ngrams = CharacterNgrams(config.min_ngram, config.max_ngram, config.n_buckets)
        special = set(vocabulary.specials.values())
        rows = [
            [piece, *(config.n_words + row for row, _, _ in (() if piece in special else ngrams.of(word)))]
            for piece, word in enumerate(vocabulary.words)
        ]
        counts = torch.tensor([len(each) for each in rows])
        return cls(torch.tensor([row for each in rows for row in each]), counts.cumsum(0) - counts, counts)

    def mean_shares(self, shares: Floats) -> Floats:
        """[V]: how much of a word's vector moves with each word that is read, given the shares of words [V]."""
        rows, counts = self.rows.numpy(), self.counts.numpy()
        of_rows = np.bincount(rows, np.repeat(shares, counts))
        means: Floats = np.add.reduceat(of_rows[rows], self.begins.numpy()) / counts
        return means

    def of_words(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of words one after another, and how many each has."""
        for name in ("rows", "begins", "counts"):
            setattr(self, name, getattr(self, name).to(words.device))
        counts = self.counts[words]
        begins = counts.cumsum(0) - counts
        places = torch.arange(int(counts.sum()), device=words.device) - begins.repeat_interleave(counts)
        return self.rows[self.begins[words].repeat_interleave(counts) + places], counts


def rows_of(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of a table, whose gradient is of these rows alone."""
    return F.embedding(ids, table, sparse=True)


def add_rows(table: Tensor, ids: Tensor, values: Tensor, factor: float = 1.0) -> None:
    """Add values [..., D] to the rows `ids` [...] of a table in place, each as often as it is named."""
    # The sum with a sparse tensor takes two thirds of the time of `index_add_` on a CPU.
    values = values.reshape(-1, table.shape[1])
    table.add_(torch.sparse_coo_tensor(ids.reshape(1, -1), values, table.shape, check_invariants=False), alpha=factor)


def mean_with_whole_gradient(sums: Tensor, counts: Tensor) -> Tensor:
    """The mean, sums / counts, but with the gradient of the sums, as in word2vec.c and fastText."""
    return sums - (sums - sums / counts).detach()
