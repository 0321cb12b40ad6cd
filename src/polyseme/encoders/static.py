"""Static vectors: a table, one row per piece, and nothing above it (word2vec, GloVe, fastText).

The encoder has layer 0 alone. A piece is a word or, where unknown words are read by their character n-grams, a bucket
of n-grams; the vector of a word is then the mean of its pieces.

Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from polyseme.config import Direction, EncoderConfig
from polyseme.encoders.encoder import Encoder, Layers, wanted_layers
from polyseme.errors import ModelError
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, States

LONGEST_ROW = 4096
"""Pieces read at once. Pieces do not see each other: windows bound the memory of long documents and change nothing."""


@dataclass(frozen=True, kw_only=True)
class StaticConfig(EncoderConfig):
    """A table of words, of buckets of character n-grams behind them, and the unknown piece last."""

    kind: ClassVar[str] = "static"

    width: int
    n_words: int
    """Rows of words; the first rows of the table."""
    lowercase: bool = False
    """Whether a word that the table lacks is looked up in lower case before it is unknown."""
    min_ngram: int = 0
    """Characters of the shortest n-grams of a word, with its two boundaries."""
    max_ngram: int = 0
    """Characters of the longest ones; 0: words have no n-grams."""
    n_buckets: int = 0
    """Buckets that n-grams are hashed into. A pruned table has rows for some of them."""
    init_std: float | None = None
    """Of the uniform distribution that new vectors are drawn from; None: it ends at ± 0.5 / width, as in word2vec."""

    def __post_init__(self) -> None:
        for name in ("width", "n_words", "n_pieces"):
            if getattr(self, name) < 1:
                raise ModelError(
                    f"The '{name}' of static vectors must be at least 1. Got {getattr(self, name)} instead."
                )
        if self.n_pieces <= self.n_words:
            raise ModelError(
                f"Static vectors have a piece for each word and one for unknown words: 'n_pieces' must be above "
                f"'n_words' ({self.n_words:,}). Got {self.n_pieces:,} instead."
            )
        if self.max_ngram and not (1 <= self.min_ngram <= self.max_ngram and self.n_buckets >= 1):
            raise ModelError(
                "Character n-grams need 'min_ngram' from 1 to 'max_ngram', and at least one bucket. Got "
                f"{self.min_ngram}, {self.max_ngram} and {self.n_buckets} instead."
            )

    @property
    def init_bound(self) -> float:
        """Where the distribution of new vectors ends: as in word2vec and GloVe, or with n-grams as in fastText."""
        if self.init_std is not None:
            return math.sqrt(3) * self.init_std
        return (1.0 if self.max_ngram else 0.5) / self.width

    @property
    def direction(self) -> Direction:
        return "none"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def window(self) -> int | None:
        return LONGEST_ROW if self.max_positions is None else self.max_positions

    @property
    def matrix_weights(self) -> int:
        return 0


class Static(Encoder):
    """Looks pieces up. The unknown piece has a vector beside the table, which is used where a file has it."""

    config: StaticConfig

    def __init__(self, config: StaticConfig) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Parameter(torch.empty(config.n_pieces - 1, config.width))
        self.unknown = nn.Parameter(torch.empty(config.width))
        for parameter in (self.table, self.unknown):
            nn.init.uniform_(parameter, -config.init_bound, config.init_bound)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        if memory is not None:
            raise ModelError("Static vectors know no context, so they read and make no memory.")
        numbers = wanted_layers(layers, 0)
        return States({0: self._look_up(batch.pieces)} if numbers else {}, batch.lengths, 0)

    def _look_up(self, pieces: Tensor) -> Tensor:
        last = self.config.n_pieces - 1
        rows = nn.functional.embedding(pieces.clamp(max=last - 1), self.table)  # [R, T, D]
        return torch.where((pieces == last)[..., None], self.unknown, rows)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.table, self.unknown]]
