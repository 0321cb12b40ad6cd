"""What settings make of a model's log-probabilities before a piece is chosen, other than by temperature."""

from __future__ import annotations

import torch
from torch import Tensor

from polyseme.decode.lines import Lines
from polyseme.decode.next_piece import LanguageModel
from polyseme.decode.repetition import penalised, without_repeats
from polyseme.decode.sampling import NEVER
from polyseme.decode.settings import Decoding


class Shaping:
    """Forbidden pieces, no end before its time, repetition control; pieces that a text must begin or end with."""

    def __init__(self, model: LanguageModel, decoding: Decoding) -> None:
        self.decoding = decoding
        self.forbidden = torch.tensor(model.forbidden, dtype=torch.long, device=model.device)
        early = [*model.forbidden, *([] if model.end is None else [model.end])]
        self.early = torch.tensor(early, dtype=torch.long, device=model.device)
        self.first = model.first
        self.last = model.last
        self.may_forbid_all = decoding.no_repeat_ngram > 0
        """Whether it can come to pass that no piece is left."""

    def __call__(self, log_probs: Tensor, lines: Lines, n_new: int) -> Tensor:
        """[R, V] → [R, V], after so many new pieces."""
        decoding = self.decoding
        forced = self.first if n_new == 0 and self.first is not None else None
        forced = self.last if n_new == decoding.max_new - 1 and self.last is not None else forced
        if forced is not None:
            only = torch.full_like(log_probs, NEVER)
            only[:, forced] = 0.0
            return only
        longest = max(lines.sizes)
        if decoding.repetition_penalty != 1:
            log_probs = penalised(log_probs, lines.pieces[:, :longest], lines.lengths, decoding.repetition_penalty)
        if decoding.no_repeat_ngram:
            log_probs = without_repeats(log_probs, lines.pieces[:, :longest], lines.lengths, decoding.no_repeat_ngram)
        never = self.early if n_new < decoding.min_new else self.forbidden
        return log_probs.index_fill(1, never, NEVER) if len(never) else log_probs
