"""Corpora of a few documents, counted, for tests of n-gram models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyseme.corpus.shards import Shard, ShardWriter, Stretch, dtype_for
from polyseme.ngrams.counting import NGramCounts, count_ngrams

END = 1
"""Ends documents and, as the first piece of an n-gram, begins them."""


def shard_of(documents: Sequence[Sequence[int]], n_pieces: int, folder: Path) -> Shard:
    """Documents as the shard of a corpus, each with the piece that ends it."""
    writer = ShardWriter(folder, "text", "train", dtype_for(n_pieces))
    writer.begin()
    for document in documents:
        pieces = np.array([*document, END])
        starts, nothing = np.ones(len(pieces), np.bool_), np.zeros(0, np.int64)
        writer.append(Stretch(pieces, starts, np.array([len(pieces)]), nothing, 0, len(document)))
    writer.finish()
    return Shard(folder, "text", "train", writer.state.counts, dtype_for(n_pieces))


def counted(documents: Sequence[Sequence[int]], n_pieces: int, order: int, folder: Path) -> NGramCounts:
    """The counts of documents."""
    shard, files = shard_of(documents, n_pieces, folder), folder / "counts"
    files.mkdir()
    return count_ngrams([shard], order=order, n_pieces=n_pieces, lead=END, folder=files)


def drawn(n_documents: int, n_pieces: int, seed: int) -> list[list[int]]:
    """Documents of 0 to 15 pieces, some much more frequent than others."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, n_pieces - 1) ** 1.7
    return [
        (2 + rng.choice(n_pieces - 2, rng.integers(0, 16), p=weights / weights.sum())).tolist()
        for _ in range(n_documents)
    ]
