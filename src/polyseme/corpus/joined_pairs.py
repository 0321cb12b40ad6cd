"""Parallel text with both sides of a pair in one row, for encoders that read them together (XLM's translation LM).

    source half: [CLS] A₁ [SEP] [CLS] A₂ [SEP] …      target half: [CLS] B₁ [SEP] [CLS] B₂ [SEP] …

A row is that of `ParallelRows`, its target behind its source. A pair's two sides see each other, and no other pair;
each side is framed by itself and has its positions from 0 on, and its segment tells the language.

Shapes: R rows, T pieces of a side, 2 T of a row.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Ints, RowOptions
from polyseme.corpus.parallel_text import ParallelPairs, ParallelRows
from polyseme.types import Rows


@dataclass(frozen=True, kw_only=True)
class JoinedPairs(ParallelPairs):
    """Rows in which both sides of pairs stand; their length is that of one side."""

    def rows(self, corpus: Corpus, options: RowOptions) -> JoinedRows:
        return JoinedRows(corpus, options)


class JoinedRows(ParallelRows):
    """Rows of `ParallelRows`, with the target behind the source."""

    @property
    def mean_length(self) -> float:
        return 2.0 * self.length

    def rows(self, indices: Ints) -> Rows:
        return joined(super().rows(indices))


def joined(source: Rows) -> Rows:
    """Rows of a source and its target as rows of one stretch, with the number of the side as segment."""
    target = source.target
    if target is None:
        raise ValueError("Rows of pairs have a target.")
    names = ("pieces", "starts", "special", "documents", "positions")
    both: dict[str, Any] = {
        name: np.concatenate([getattr(side, name) for side in (source, target)], axis=1) for name in names
    }
    segments = np.repeat([0, 1], [source.pieces.shape[1], target.pieces.shape[1]])
    return dataclasses.replace(source, **both, segments=np.tile(segments, (len(source.keys), 1)), target=None)
