"""Ensure that there is a document on either side of the split, where the random split left one side empty.

That only happens where documents are few, so that rewriting their shards costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.shards import FILES, SPLITS, Counts, Shard, ShardWriter, Stretch, shard_path
from polyseme.corpus.worker_processes import FinishedStretch

_MOST = 1000
"""Equal documents that are moved at most; with more there are others enough on both sides."""
_OTHER = {"train": "held", "held": "train"}


@dataclass
class Extremes:
    """The documents nearest to the other side of the split, and how many different ones were seen."""

    best: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(SPLITS))
    """By split, the rank of those that would go to the other side first."""
    places: dict[str, list[list[int]]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    """By split, their sources, numbers and bytes, of each side."""
    several: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(SPLITS, False))
    """By split, whether there are others as well."""

    def observe(self, source: int, worked: FinishedStretch, n_before: Mapping[str, int]) -> None:
        """Take account of a stretch, before which the shards had so many documents."""
        for split in SPLITS:
            ranks = worked.ranks[split]
            if not len(ranks):
                continue
            rank = int(ranks.min() if split == "train" else ranks.max())
            places = np.flatnonzero(ranks == np.uint64(rank)).tolist()
            these = [[source, n_before[split] + place, *worked.sizes[split][place].tolist()] for place in places]
            best = self.best[split]
            self.several[split] |= len(these) < len(ranks) or (best is not None and best != rank)
            if best is None or (rank < best if split == "train" else rank > best):
                self.best[split], self.places[split] = rank, these
            elif rank == best and len(self.places[split]) < _MOST:
                self.places[split] += these

    def to_move(self, lacking: str) -> dict[int, dict[int, list[int]]] | None:
        """The documents that go to the split that has none; None if none can be spared.

        By source and number, the bytes of each side.
        """
        split = _OTHER[lacking]
        if not self.several[split]:
            return None
        moved: dict[int, dict[int, list[int]]] = {}
        for source, place, *n_bytes in self.places[split]:
            moved.setdefault(source, {})[place] = n_bytes
        return moved

    def to_json(self) -> dict[str, Any]:
        return {"best": self.best, "places": self.places, "several": self.several}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Extremes:
        return cls(**{name: dict(value) for name, value in record.items()})


def move_documents(
    folder: Path,
    source: str,
    side: str,
    counts: Mapping[str, Counts],
    dtype: np.dtype[Any],
    to: str,
    moved: Mapping[int, int],
) -> dict[str, Counts]:
    """Move documents of one side of a source to the other split, which has none of them; the new counts."""
    split = _OTHER[to]
    shard = Shard(folder, source, split, counts[split], dtype, side)
    is_moved = np.zeros(counts[split].documents, np.bool_)
    is_moved[list(moved)] = True
    n_bytes = sum(moved.values())
    parts = {
        to: _documents_of(shard, is_moved, n_bytes),
        split: _documents_of(shard, ~is_moved, counts[split].bytes - n_bytes),
    }
    new_counts: dict[str, Counts] = {}
    for name, stretch in parts.items():
        writer = ShardWriter(folder, source, f"new.{name}", dtype, side)
        writer.begin()
        writer.append(stretch)
        writer.finish()
        new_counts[name] = writer.state.counts
    for name in parts:
        for file in FILES:
            shard_path(folder, source, f"new.{name}", file, side).replace(shard_path(folder, source, name, file, side))
    return new_counts


def _documents_of(shard: Shard, chosen: NDArray[np.bool_], n_bytes: int) -> Stretch:
    """Some documents of a shard."""
    lengths = np.diff(shard.ends, prepend=0)
    mine = np.repeat(chosen, lengths)
    sentences = np.zeros(len(shard), np.bool_)
    sentences[shard.sentences] = True
    starts = shard.starts()
    n_separators = int(chosen.sum()) if int(starts.sum()) > shard.counts.words else 0
    return Stretch(
        pieces=np.asarray(shard.pieces)[mine],
        starts=starts[mine],
        ends=np.cumsum(lengths[chosen]),
        sentences=np.flatnonzero(sentences[mine]),
        n_bytes=n_bytes,
        n_words=int(starts[mine].sum()) - n_separators,
    )
