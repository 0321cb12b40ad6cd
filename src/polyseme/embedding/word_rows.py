"""Texts as rows of an encoder, padded, and the vectors of their words out of its states, with gradients.

`flow` is faster and knows none. This is what `WordEncoder` and the task models share.

Shapes: R texts, W words of the longest, B rows (windows of texts), T pieces of a row, N pieces of all texts, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.config import EncoderConfig
from polyseme.text.windows import cut
from polyseme.types import Batch, Pieces, Tokenizer


class Row(Protocol):
    """One row, specials put on: a `FramedRow`, or what else has its pieces and segments."""

    @property
    def ids(self) -> NDArray[np.int64]: ...

    @property
    def segments(self) -> NDArray[np.int64]: ...


class PaddedRows(NamedTuple):
    """Rows as an encoder reads them, padded on the right."""

    ids: NDArray[np.int64]
    """[B, T], or [B, T, C] in characters"""
    segments: NDArray[np.int64]
    """[B, T]"""
    lengths: NDArray[np.int64]
    """[B]"""

    @classmethod
    def of(cls, framed: Sequence[Row], longest: int | None = None) -> PaddedRows:
        """Rows side by side, all as long as the longest, or of the given length."""
        lengths = np.array([len(row.ids) for row in framed], dtype=np.int64)
        longest = int(lengths.max()) if longest is None else longest
        ids = np.zeros((len(framed), longest, *framed[0].ids.shape[1:]), dtype=np.int64)
        segments = np.zeros((len(framed), longest), dtype=np.int64)
        for number, row in enumerate(framed):
            ids[number, : len(row.ids)] = row.ids
            segments[number, : len(row.ids)] = row.segments
        return cls(ids, segments, lengths)

    def batch(self, device: torch.device) -> Batch:
        """The rows on a device; without lengths where all are full, without segments where all are 0."""
        full = bool((self.lengths == self.ids.shape[1]).all())
        return Batch(
            torch.from_numpy(self.ids).to(device),
            None if full else torch.from_numpy(self.lengths).to(device),
            torch.from_numpy(self.segments).to(device) if self.segments.any() else None,
        )


class WordRows(NamedTuple):
    """Texts in rows, those too long in several, and where their pieces and words stand."""

    rows: PaddedRows
    places: NDArray[np.int64]
    """[N]: where each piece of each text is in the rows, laid flat; specials among them where texts are not cut."""
    words: NDArray[np.int64]
    """[n, 2]: first and last piece of every word of all texts, counted over all texts."""

    @classmethod
    def of(cls, encoded: Sequence[Pieces], tokenizer: Tokenizer, config: EncoderConfig) -> WordRows | None:
        """Texts that are in pieces already; None where there is no word in any."""
        with_words = [pieces for pieces in encoded if len(pieces.words)]
        if not with_words:
            return None
        if config.window is None:
            return cls._uncut(with_words, tokenizer)
        framed, keeps = [], []
        for pieces in with_words:
            for window in cut(len(pieces), config.window - tokenizer.n_specials, config.direction):
                framed.append(tokenizer.frame(pieces.ids[window.start : window.end]))
                keeps.append(window.keep)
        rows = PaddedRows.of(framed)
        longest = rows.ids.shape[1]
        places = [
            number * longest + row.offset + np.arange(taken.start, taken.stop)
            for number, (row, taken) in enumerate(zip(framed, keeps, strict=True))
        ]
        starts = np.cumsum([0, *map(len, with_words)])
        words = [pieces.words + start for pieces, start in zip(with_words, starts, strict=False)]
        return cls(rows, np.concatenate(places), np.concatenate(words))

    @classmethod
    def _uncut(cls, encoded: Sequence[Pieces], tokenizer: Tokenizer) -> WordRows:
        """A row for each text, whose specials a pooling may look at."""
        framed = [tokenizer.frame(pieces.ids) for pieces in encoded]
        rows = PaddedRows.of(framed)
        here = np.arange(rows.ids.shape[1])
        starts = np.cumsum([0, *rows.lengths])
        words = [each.words + row.offset + start for each, row, start in zip(encoded, framed, starts, strict=False)]
        return cls(rows, np.flatnonzero(here < rows.lengths[:, None]), np.concatenate(words))


def real_pieces(lengths: NDArray[np.int64], longest: int, device: torch.device) -> Tensor:
    """[B, T]: which pieces of padded rows are real."""
    here = torch.arange(longest, device=device)
    return here[None] < torch.from_numpy(lengths).to(device)[:, None]


def laid_out(words: Tensor, mask: Tensor) -> Tensor:
    """The vectors of all texts' words, one after another, [n, …], put where the mask [R, W] is true: [R, W, …]."""
    room = words.new_zeros(*mask.shape, *words.shape[1:])
    return room.masked_scatter(mask.view(*mask.shape, *[1] * (words.dim() - 1)), words)
