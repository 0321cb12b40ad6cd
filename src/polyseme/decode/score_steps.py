"""Scoring step by step: whatever says what comes next (`NextPiece`) can say how likely a text is.

Slower than reading a text at once, and the same: it is for n-grams, interpolations, and whatever else keeps no states.
A text begins after the pieces that the model puts before any, or after the piece that starts or ends texts; where there
is neither, its first piece has no score.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from polyseme.decode.next_piece import LanguageModel
from polyseme.decode.score_rows import Guessed, OnBatch, Ran, Way, flat
from polyseme.errors import InputError
from polyseme.types import Batch, Pieces, Tokenizer

ROWS = 64
"""Texts that are read side by side."""


class StepByStepScores(Way):
    """Scores of any `NextPiece`."""

    how = "left to right, step by step"

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer) -> None:
        self.model = model
        lead = tokenizer.specials.get("start", tokenizer.specials.get("end"))
        self.before = model.before or (() if lead is None else (lead,))

    @property
    def unscored_first(self) -> str | None:
        return None if self.before else "The first piece of each text has no score: nothing stands before it."

    def __call__(
        self,
        encoded: Sequence[Pieces],
        *,
        only: Sequence[tuple[int, int]] | None = None,
        best: bool = False,
        on_batch: OnBatch | None = None,
    ) -> tuple[Guessed, Ran]:
        """Log-probabilities of all pieces of all documents, one after another, and what that took."""
        pieces, ends = flat([each.ids for each in encoded])
        found = Guessed(np.full(len(pieces), np.nan), np.zeros(len(pieces), np.bool_))
        room = self.model.room
        for each in encoded:
            if room is not None and len(each) - 1 > room:
                raise InputError(f"A text has {len(each):,} pieces, and the model reads {room:,} at once.")
        least = 1 if self.before else 2
        order = sorted((n for n, each in enumerate(encoded) if len(each) >= least), key=lambda n: -len(encoded[n]))
        done, total = 0, sum(len(encoded[n]) for n in order)
        for start in range(0, len(order), ROWS):
            some = order[start : start + ROWS]
            self._read(some, pieces, ends, found)
            done += sum(len(encoded[n]) for n in some)
            if on_batch is not None:
                on_batch(done, total)
        return found, Ran(total, 0.0)

    @torch.inference_mode()
    def _read(self, some: Sequence[int], pieces: np.ndarray, ends: np.ndarray, found: Guessed) -> None:
        """Texts side by side, the longest first; those that have ended drop out."""
        device = self.model.device
        starts, sizes = ends[some], (ends[1:] - ends[:-1])[some]
        first = 0 if self.before else 1
        rows = [self.before] * len(some) if self.before else [(int(pieces[start]),) for start in starts]
        batch = Batch(torch.tensor(rows, device=device))
        log_probs, memory = self.model.next_piece.start(batch, len(self.before) + int(sizes.max()))
        for place in range(first, int(sizes.max())):
            going = int(np.count_nonzero(sizes > place))
            if going < len(log_probs):
                rows_left = torch.arange(going, device=device)
                log_probs, memory = log_probs[:going], memory.select(rows_left)
            targets = starts[:going] + place
            theirs = torch.from_numpy(pieces[targets]).to(device)
            own = log_probs.gather(1, theirs[:, None])
            found.log_probs[targets] = own[:, 0].double().cpu().numpy()
            found.best[targets] = ((log_probs >= own).sum(dim=1) == 1).cpu().numpy()
            going = int(np.count_nonzero(sizes > place + 1))
            if going:
                memory = memory.select(torch.arange(going, device=device))
                log_probs, memory = self.model.next_piece.step(Batch(theirs[:going, None]), memory)
