"""Keeping a text from going round in circles.

The penalty multiplies log-probabilities, as it does in the beams of `transformers`. (There, where pieces are drawn, it
changes logits, which are known only up to a constant, so that the same model may come out differently.)

Shapes: R rows, T pieces of a row, V pieces in the vocabulary, n pieces of an n-gram.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyseme.decode.sampling import NEVER


def penalised(log_probs: Tensor, pieces: Tensor, lengths: Tensor, penalty: float) -> Tensor:
    """The same with the log-probabilities of all pieces in a row, `pieces` [R, T] up to `lengths` [R], multiplied."""
    inside = torch.arange(pieces.shape[1], device=pieces.device) < lengths[:, None]
    return torch.where(_among(log_probs, pieces, inside), log_probs * penalty, log_probs)


def without_repeats(log_probs: Tensor, pieces: Tensor, lengths: Tensor, n: int) -> Tensor:
    """The same with every piece forbidden that would complete `n` pieces which the row has in this order already."""
    if pieces.shape[1] < n:
        return log_probs
    windows = pieces.unfold(1, n, 1)  # [R, T - n + 1, n]
    ends = torch.arange(n, pieces.shape[1] + 1, device=pieces.device)
    inside = ends <= lengths[:, None]
    if n > 1:
        places = lengths[:, None] - n + 1 + torch.arange(n - 1, device=pieces.device)
        latest = pieces.gather(1, places.clamp(min=0))  # [R, n - 1]
        inside = inside & (windows[..., :-1] == latest[:, None]).all(dim=-1)
    return log_probs.masked_fill(_among(log_probs, windows[..., -1], inside), NEVER)


def _among(log_probs: Tensor, pieces: Tensor, counted: Tensor) -> Tensor:
    """[R, V]: which pieces of the vocabulary are among those of `pieces` that are `counted`, both [R, ·].

    What stands in a text need not be of the vocabulary: a model that spells words reads any.
    """
    known = pieces < log_probs.shape[1]
    pieces, counted = pieces.where(known, 0), counted & known
    found = torch.zeros(log_probs.shape, dtype=torch.int32, device=log_probs.device)
    return found.scatter_reduce(1, pieces, counted.int(), "amax") > 0
