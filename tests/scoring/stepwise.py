"""Scores of any `NextPiece`, one piece after another: the reference for scoring a text at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from polyseme.errors import InputError
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import log_probs_from
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.target_rows import ScoringMethod, ScoringRequest, TargetScores, Usage
from polyseme.text.ragged_arrays import concatenate
from polyseme.types import Batch, Tokenizer


def step_by_step(model: LanguageModel, tokenizer: Tokenizer) -> Scorer:
    """A scorer for whatever predicts the next piece: an n-gram, an interpolation."""
    return Scorer(tokenizer, StepwiseScoring(model, tokenizer), model.device)


ROWS = 64
"""Texts that are read side by side."""


class StepwiseScoring(ScoringMethod):
    """Scores of any `NextPiece`."""

    description = "left to right, step by step"

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer) -> None:
        self.model = model
        lead = tokenizer.specials.get("start", tokenizer.specials.get("end"))
        self.before = model.before or (() if lead is None else (lead,))

    @property
    def unscored_first(self) -> str | None:
        return None if self.before else "The first piece of each text has no score: nothing stands before it."

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        encoded = request.encoded
        pieces, ends = concatenate([each.ids for each in encoded])
        scores = TargetScores.empty(len(pieces))
        room = self.model.room
        for each in encoded:
            if room is not None and len(each) - 1 > room:
                raise InputError(f"A text has {len(each):,} pieces, and the model reads {room:,} at once.")
        least = 1 if self.before else 2
        order = sorted((n for n, each in enumerate(encoded) if len(each) >= least), key=lambda n: -len(encoded[n]))
        done, total = 0, sum(len(encoded[n]) for n in order)
        for start in range(0, len(order), ROWS):
            texts = order[start : start + ROWS]
            self._read(texts, pieces, ends, scores)
            done += sum(len(encoded[n]) for n in texts)
            request.report(done, total)
        return scores, Usage(total, 0.0)

    @torch.inference_mode()
    def _read(self, texts: Sequence[int], pieces: np.ndarray, ends: np.ndarray, scores: TargetScores) -> None:
        """Texts side by side, the longest first; those that have ended drop out."""
        device = self.model.device
        starts, sizes = ends[texts], (ends[1:] - ends[:-1])[texts]
        first = 0 if self.before else 1
        rows = [self.before] * len(texts) if self.before else [(int(pieces[start]),) for start in starts]
        batch = Batch(torch.tensor(rows, device=device))
        scored, memory = self.model.next_piece.start(batch, len(self.before) + int(sizes.max()))
        log_probs = log_probs_from(self.model.next_piece, scored)
        for place in range(first, int(sizes.max())):
            going = int(np.count_nonzero(sizes > place))
            if going < len(log_probs):
                rows_left = torch.arange(going, device=device)
                log_probs, memory = log_probs[:going], memory.select(rows_left)
            targets = starts[:going] + place
            theirs = torch.from_numpy(pieces[targets]).to(device)
            own = log_probs.gather(1, theirs[:, None])
            scores.log_probs[targets] = own[:, 0].double().cpu().numpy()
            scores.best[targets] = ((log_probs >= own).sum(dim=1) == 1).cpu().numpy()
            going = int(np.count_nonzero(sizes > place + 1))
            if going:
                memory = memory.select(torch.arange(going, device=device))
                scored, memory = self.model.next_piece.step(Batch(theirs[:going, None]), memory)
                log_probs = log_probs_from(self.model.next_piece, scored)
