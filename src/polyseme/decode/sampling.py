"""Choosing a piece: the likeliest, or one that is drawn.

One uniform number decides a draw: it is looked up in the summed probabilities, in the order of the vocabulary and in
double precision. So a draw depends on the row's own distribution and number alone, whatever rows stand beside it.

Shapes: R rows, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polyseme.corpus.chance import row_keys, uniform
from polyseme.decode.settings import Decoding

NEVER = float("-inf")
FIRST_LOOK = 256
"""Of the likeliest pieces, for `top_p`: nearly always enough, and far quicker than sorting them all."""


def streams(seed: int, prompts: Sequence[int], n: int, max_new: int) -> Tensor:
    """A stream of random numbers for each text: [P · n, max_new], decided by seed, prompt and draw alone."""
    index = np.repeat(np.asarray(prompts, dtype=np.int64), n)
    draw = np.tile(np.arange(n, dtype=np.int64), len(prompts))
    return torch.from_numpy(uniform(row_keys(seed, draw, index), "pieces", max_new))


def choose(log_probs: Tensor, decoding: Decoding, numbers: Tensor | None) -> Tensor:
    """One piece a row, [R]: the likeliest of `log_probs` [R, V], or with `numbers` [R] in [0, 1) one that is drawn."""
    if numbers is None:
        return log_probs.argmax(dim=-1)
    return draw(narrowed(log_probs.double() / decoding.heat, decoding.top_k, decoding.top_p), numbers)


def narrowed(scores: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Leave only the likeliest pieces, the others at minus infinity; those that are exactly as likely as the last stay.

    `top_p` counts probability among what `top_k` has left.
    """
    if top_k is not None and top_k < scores.shape[-1]:
        last = scores.topk(top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < last, NEVER)
    if top_p is not None and top_p < 1:
        scores = scores.masked_fill(scores < _last_within(scores, top_p), NEVER)
    return scores


def draw(scores: Tensor, numbers: Tensor) -> Tensor:
    """The piece of each row at which the summed probabilities exceed its number."""
    summed = scores.softmax(dim=-1).cumsum(dim=-1)
    whole = summed[:, -1:].contiguous()
    places = torch.searchsorted(summed, numbers.to(summed)[:, None] * whole, right=True)
    last = torch.searchsorted(summed, whole)  # the last piece that is possible at all
    return torch.minimum(places, last)[:, 0].clamp(max=scores.shape[-1] - 1)


def _last_within(scores: Tensor, share: float) -> Tensor:
    """The score of the last of the likeliest pieces that it takes to have this share of the probability, [R, 1]."""
    whole = scores.logsumexp(dim=-1, keepdim=True)
    n_pieces = scores.shape[-1]
    for n_looked_at in (min(FIRST_LOOK, n_pieces), n_pieces):
        likeliest = scores.topk(n_looked_at, dim=-1).values
        before = (likeliest - whole).exp().cumsum(dim=-1)
        enough = before >= share
        if n_looked_at == n_pieces or bool(enough[:, -1].all()):
            break
    place = enough.int().argmax(dim=-1, keepdim=True)
    place = place.masked_fill(~enough[:, -1:], n_pieces - 1)  # rounding has kept the sum below the share
    return likeliest.gather(-1, place)
