"""What is done to a stretch of documents: pieces, word starts, sentences, and which documents are held out.

The same for a worker process as for this one; it depends on the documents and the settings alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import separator_of
from polyseme.corpus.shards import SIDE, SPLITS, Stretch, dtype_for
from polyseme.corpus.spelling import Spelled, Speller
from polyseme.text.tokenizer import PieceTokenizer


class Load(NamedTuple):
    """What is to be worked on: documents, of several sides side after side for each."""

    texts: Sequence[bytes]
    held_out: float
    """The share of documents that is kept for evaluation."""


class Worked(NamedTuple):
    """A stretch of documents, done."""

    stretches: dict[str, dict[str, Stretch]]
    """By side and split."""
    ranks: dict[str, NDArray[np.uint64]]
    """By split, a number a document that decides between training and held out; equal texts have equal ones."""
    sizes: dict[str, NDArray[np.int64]]
    """By split, [documents, sides]: the bytes of each."""
    n_vanished: int
    """Documents of which the tokenizer left nothing."""


@dataclass
class Work:
    """Turns documents into pieces."""

    tokenizer: PieceTokenizer
    seed: int
    sides: Sequence[str] = (SIDE,)

    def __post_init__(self) -> None:
        self._speller = Speller(self.tokenizer)
        self._separator = separator_of(self.tokenizer)
        self._dtype = dtype_for(self.tokenizer.n_pieces)
        self._key = (self.seed & (1 << 64) - 1).to_bytes(8, "little")

    def __call__(self, load: Load) -> Worked:
        """The pieces of some documents, those to train on and those held out apart.

        A document of several sides of which one comes out as nothing is left out as a whole.
        """
        n_sides = len(self.sides)
        by_side = [load.texts[number::n_sides] for number in range(n_sides)]
        whole = by_side[0] if n_sides == 1 else [b"\0".join(texts) for texts in zip(*by_side, strict=True)]
        ranks = np.array([rank_of(text, self._key) for text in whole], np.uint64)
        sizes = np.array([[len(text) for text in texts] for texts in by_side], np.int64).T.reshape(-1, n_sides)
        spelled = [self._speller.spell(texts) for texts in by_side]
        held = ranks.astype(np.float64) * 2.0**-64 < load.held_out
        real = np.logical_and.reduce([each.counts > 0 for each in spelled])
        chosen = {"train": real & ~held, "held": real & held}
        return Worked(
            {
                side: {split: self._stretch(each, chosen[split], sizes[:, number]) for split in SPLITS}
                for number, (side, each) in enumerate(zip(self.sides, spelled, strict=True))
            },
            {split: ranks[chosen[split]] for split in SPLITS},
            {split: sizes[chosen[split]] for split in SPLITS},
            int((~real).sum()),
        )

    def _stretch(self, spelled: Spelled, chosen: NDArray[np.bool_], sizes: NDArray[np.int64]) -> Stretch:
        """The pieces of the chosen documents, with separators after each where there are any."""
        mine = slice(None) if chosen.all() else np.repeat(chosen, spelled.counts)
        pieces, starts, sentences = spelled.pieces[mine], spelled.starts[mine], spelled.sentences[mine]
        counts = spelled.counts[chosen]
        n_words = int(starts.sum())
        if self._separator is None:
            ends = np.cumsum(counts)
        else:
            ends = np.cumsum(counts + 1)
            places = np.cumsum(counts)
            pieces = np.insert(pieces, places, self._separator)
            starts = np.insert(starts, places, True)
            sentences = np.insert(sentences, places, False)
        return Stretch(
            pieces=pieces.astype(self._dtype),
            starts=starts,
            ends=ends.astype(np.int64),
            sentences=np.flatnonzero(sentences),
            n_bytes=int(sizes[chosen].sum()),
            n_words=n_words,
        )


def rank_of(text: bytes, key: bytes) -> int:
    """A number below 2**64 that a text gets by chance, the same wherever it stands."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest(), "little")
