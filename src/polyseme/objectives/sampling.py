"""Drawing pieces from a model's distribution with numbers that were drawn before: one uniform number a piece.

A generator inside a compiled model would have a state that no checkpoint keeps. Here the piece is where the cumulated
distribution passes the given number, so the same number and the same model give the same piece, wherever they run.

Shapes: N positions, V pieces of the vocabulary, B blocks of it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.objectives.reading import in_full

BLOCK = 256
"""Pieces are summed in blocks first, so that only one block of the vocabulary is ever cumulated piece by piece."""


def sample(logits: Tensor, chance: Tensor, temperature: float = 1.0) -> Tensor:
    """[N, V] and [N] in [0, 1) → the pieces [N] that these numbers fall on; no gradient passes."""
    scores = in_full(logits.detach()) / temperature
    n_pieces = scores.shape[-1]
    top = scores.amax(dim=-1, keepdim=True)
    weights = F.pad((scores - top).exp(), (0, -n_pieces % BLOCK)).unflatten(-1, (-1, BLOCK))  # [N, B, BLOCK]
    upto = weights.sum(dim=-1).cumsum(dim=-1)  # [N, B]
    wanted = chance.to(upto.dtype)[:, None] * upto[:, -1:]  # [N, 1]
    block = (upto <= wanted).sum(dim=-1, keepdim=True).clamp(max=upto.shape[-1] - 1)  # [N, 1]
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), torch.zeros_like(wanted))

    places = block * BLOCK + torch.arange(BLOCK, device=logits.device)  # [N, BLOCK]
    within = (scores.gather(1, places.clamp(max=n_pieces - 1)) - top).exp()
    within = torch.where(places < n_pieces, within, torch.zeros_like(within)).cumsum(dim=-1)
    step: Tensor = (within <= wanted - before).sum(dim=-1).clamp(max=BLOCK - 1)
    drawn: Tensor = (block[:, 0] * BLOCK + step).clamp(max=n_pieces - 1)
    return drawn
