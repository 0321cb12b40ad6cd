"""Choosing a piece: the likeliest, or one that is sampled; and what is forbidden or penalized before that.

One uniform number decides a draw: it is looked up in the summed probabilities, in the order of the vocabulary and in
double precision. So a draw depends on the row's own distribution and number alone, whatever the other rows are.

Shapes: R rows, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.sequences import Lines

NEVER = float("-inf")
FIRST_LOOK = 256
"""Of the likeliest pieces, for `top_p`: nearly always enough, and far quicker than sorting them all."""


def streams(seed: int, prompts: Sequence[int], n: int, max_new: int) -> Tensor:
    """A stream of random numbers for each text: [P · n, max_new], decided by seed, prompt and draw alone."""
    index = np.repeat(np.asarray(prompts, dtype=np.int64), n)
    draw = np.tile(np.arange(n, dtype=np.int64), len(prompts))
    return torch.from_numpy(uniform(row_keys(seed, draw, index), "pieces", max_new))


def choose(scores: Tensor, decoding: Decoding, numbers: Tensor | None) -> Tensor:
    """One piece per row, [R]: the likeliest by `scores` [R, V], or with `numbers` [R] in [0, 1) one drawn."""
    if numbers is None:
        return scores.argmax(dim=-1)
    return draw(narrowed(scores.double() / decoding.heat, decoding.top_k, decoding.top_p), numbers)


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


# --- repetition control -----------------------------------------------------------------------------------------------


def penalized(scores: Tensor, pieces: Tensor, lengths: Tensor, penalty: float) -> Tensor:
    """The same with the scores of all pieces in a row lowered, `pieces` [R, T] up to `lengths` [R].

    A score below 0, as all log-probabilities are, is multiplied; one over 0 is divided (CTRL, Keskar et al. 2019).
    """
    inside = torch.arange(pieces.shape[1], device=pieces.device) < lengths[:, None]
    lowered = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(_among(scores, pieces, inside), lowered, scores)


def without_repeats(scores: Tensor, pieces: Tensor, lengths: Tensor, n: int) -> Tensor:
    """The same with every piece forbidden that would complete `n` pieces which the row has in this order already."""
    if pieces.shape[1] < n:
        return scores
    windows = pieces.unfold(1, n, 1)  # [R, T - n + 1, n]
    ends = torch.arange(n, pieces.shape[1] + 1, device=pieces.device)
    inside = ends <= lengths[:, None]
    if n > 1:
        places = lengths[:, None] - n + 1 + torch.arange(n - 1, device=pieces.device)
        latest = pieces.gather(1, places.clamp(min=0))  # [R, n - 1]
        inside = inside & (windows[..., :-1] == latest[:, None]).all(dim=-1)
    return scores.masked_fill(_among(scores, windows[..., -1], inside), NEVER)


def _among(scores: Tensor, pieces: Tensor, counted: Tensor) -> Tensor:
    """[R, V]: which pieces of the vocabulary are among those of `pieces` that are `counted`, both [R, ·].

    The pieces of a text need not be of the vocabulary: a model that spells words reads any.
    """
    known = pieces < scores.shape[1]
    pieces, counted = pieces.where(known, 0), counted & known
    among = torch.zeros(scores.shape, dtype=torch.int32, device=scores.device)
    return among.scatter_reduce(1, pieces, counted.int(), "amax") > 0


# --- what options make of scores before a piece is chosen -------------------------------------------------------------


class ScoreConstraints:
    """Forbidden pieces, no end before its time, repetition control; pieces that a text must begin or end with."""

    def __init__(self, model: LanguageModel, decoding: Decoding) -> None:
        self.decoding = decoding
        self.forbidden = torch.tensor(model.forbidden, dtype=torch.long, device=model.device)
        early = [*model.forbidden, *model.ends]
        self.early = torch.tensor(early, dtype=torch.long, device=model.device)
        self.first = model.first
        self.last = model.last
        self.may_forbid_all = decoding.no_repeat_ngram > 0
        """Whether it can come to pass that no piece is left."""
        self.reads_text = decoding.repetition_penalty != 1 or decoding.no_repeat_ngram > 0
        """Whether the text so far decides what is forbidden or penalized."""

    def forbidden_mask(self, n_new: int, n_pieces: int) -> Tensor:
        """[V]: 1 for pieces that are forbidden after so many new ones, whatever the text is."""
        forbidden = torch.zeros(n_pieces, dtype=torch.int8, device=self.forbidden.device)
        return forbidden.index_fill_(0, self.early if n_new < self.decoding.min_new else self.forbidden, 1)

    def __call__(self, scores: Tensor, lines: Lines, n_new: int) -> Tensor:
        """[R, V] → [R, V], after so many new pieces. In beams, scores are log-probabilities."""
        decoding = self.decoding
        forced = self.first if n_new == 0 and self.first is not None else None
        forced = self.last if n_new == decoding.max_new - 1 and self.last is not None else forced
        if forced is not None:
            only = torch.full_like(scores, NEVER)
            only[:, forced] = 0.0
            return only
        if decoding.repetition_penalty != 1:
            scores = penalized(scores, *lines.whole(), decoding.repetition_penalty)
        if decoding.no_repeat_ngram:
            scores = without_repeats(scores, *lines.whole(), decoding.no_repeat_ngram)
        never = self.early if n_new < decoding.min_new else self.forbidden
        return scores.index_fill(1, never, NEVER) if len(never) else scores
