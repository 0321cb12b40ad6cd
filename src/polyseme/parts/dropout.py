"""Dropout with masks that several places share: of whole rows (variational), and of whole words.

Single numbers are dropped by `torch.nn.Dropout`, those of weights too. The rest is scaled by 1 / (1 - rate), so that
the expectation stays.

Shapes: R rows, T pieces, D width, V pieces in the vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn


class LockedDropout(nn.Module):
    """[R, T, D] with one mask per row for all its pieces (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        return x * _mask(x, (x.shape[0], 1, x.shape[2]), self.rate)


class WordDropout(nn.Module):
    """Vectors [R, T, D] of pieces [R, T], zero for the pieces that this batch drops, wherever they are.

    As if rows of the table were dropped (Gal and Ghahramani 2016), without a copy of the table.
    """

    def __init__(self, n_pieces: int, rate: float) -> None:
        super().__init__()
        self.n_pieces = n_pieces
        self.rate = rate

    def forward(self, vectors: Tensor, pieces: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return vectors
        return vectors * nn.functional.embedding(pieces, _mask(vectors, (self.n_pieces, 1), self.rate))


def _mask(like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
    return like.new_empty(shape).bernoulli_(1 - rate).div_(1 - rate)
