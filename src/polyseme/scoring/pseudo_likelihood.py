"""Scoring with a masked model: pseudo-log-likelihoods (Salazar et al. 2020).

Each piece is predicted where it is hidden behind the mask, from both sides. What to hide with it is a choice:

- `word` hides all pieces of its word at once, so that none is given away by the rest of its own word;
- `piece` hides the piece alone, as Salazar et al. have it: the later pieces of rare words come out too likely;
- `left-to-right` hides the piece and those after it in its word (Kauf and Ivanova 2023).

Words that share a piece are hidden together, and a piece that belongs to no word alone; a piece that is only the blank
before a word belongs to that, as for the tokenizer. A long text is cut into windows
as for vectors; a piece is predicted in the window that has most of its surroundings.

Shapes: P pieces of all documents, S stretches, J rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from polyseme.bundle import Bundle
from polyseme.errors import OptionError, nearest
from polyseme.scoring.target_rows import (
    Ints,
    PiecePredictor,
    ScoringMethod,
    ScoringRequest,
    TargetRows,
    TargetScores,
    Usage,
    usage_of,
)
from polyseme.text.ragged_arrays import concatenate
from polyseme.text.windows import cut
from polyseme.types import Pieces, Tokenizer

Hide = Literal["word", "piece", "left-to-right"]
"""What is hidden with a piece that is predicted."""

BLANK_PIECES = ("Ġ", "▁")
"""A blank as byte-level and SentencePiece tokenizers write it."""
HOW = {
    "word": "from both sides, whole words hidden at once",
    "piece": "from both sides, one piece hidden at a time",
    "left-to-right": "from both sides, a piece hidden with those after it in its word",
}


def check_hide(hide: str | None) -> None:
    """Refuse what is no way to hide pieces; None leaves the choice to the scorer."""
    if hide is not None and hide not in get_args(Hide):
        raise OptionError(f"There is no way {hide!r} to hide pieces. {nearest(str(hide), get_args(Hide))}")


class PseudoLikelihood(ScoringMethod):
    """Scores of a masked model."""

    unscored_first: str | None = None

    def __init__(self, bundle: Bundle, tokenizer: Tokenizer, predictor: PiecePredictor, *, hide: Hide) -> None:
        self.config = bundle.config
        self.tokenizer = tokenizer
        self.predictor = predictor
        self.hide = hide
        window = bundle.config.window
        self.capacity = None if window is None else window - tokenizer.n_specials

    @property
    def description(self) -> str:
        return HOW[self.hide]

    def key(self, pieces: Pieces) -> bytes:
        return pieces.ids.tobytes() + (b"" if self.hide == "piece" else pieces.words.tobytes())

    def prepare(self) -> None:
        self.predictor.inference.prepare()

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        pieces, ends = concatenate([each.ids for each in request.encoded])
        target_rows = self._target_rows(request.encoded, ends)
        if request.only is not None:
            selected = np.zeros(len(pieces) + 1, np.int64)
            for base, (begin, end) in zip(ends.tolist(), request.only, strict=False):
                selected[base + begin + 1 : base + end + 1] = 1
            before = np.cumsum(selected)
            target_rows = target_rows.select(before[target_rows.first + target_rows.count] > before[target_rows.first])
        scores = self.predictor(
            target_rows, pieces, mask=self.tokenizer.specials["mask"], best=request.best, on_batch=request.on_batch
        )
        return scores, usage_of(
            self.config, target_rows.lengths[target_rows.stretch].tolist(), scores.n_predicted, self.predictor.output
        )

    def _target_rows(self, encoded: Sequence[Pieces], ends: Ints) -> TargetRows:
        rows: list[Ints] = []
        stretches: list[tuple[int, int, int, int]] = []  # of each stretch: start, end, how many it keeps, offset
        for base, each in zip(ends.tolist(), encoded, strict=False):
            for window in cut(len(each), self.capacity):
                framed = self.tokenizer.frame(each.ids[window.start : window.end])
                rows.append(framed.ids)
                stretches.append(
                    (base + window.start, base + window.end, window.keep_end - window.keep_start, framed.offset)
                )
        ids, starts = concatenate(rows)
        start, end, n_kept, offset = np.array(stretches, dtype=np.int64).reshape(-1, 4).T
        stretch_of = np.repeat(np.arange(len(rows)), n_kept)  # [P]
        group_starts, group_ends = _groups(encoded, ends, alone=self.hide == "piece")
        first = np.arange(len(stretch_of))
        if self.hide != "left-to-right":
            fresh = first == group_starts
            fresh[1:] |= stretch_of[1:] != stretch_of[:-1]
            first = first[fresh]
        stretch = stretch_of[first]
        hidden_from = first if self.hide == "left-to-right" else np.maximum(group_starts[first], start[stretch])
        hidden = np.stack([hidden_from, np.minimum(group_ends[first], end[stretch])], axis=1)
        shift = offset[stretch] - start[stretch]  # from pieces of all documents to places in the row
        count = np.diff([*first, len(stretch_of)])
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return TargetRows(ids, starts[:-1], lengths, stretch, hidden + shift[:, None], first + shift, first, count)


def with_blanks(each: Pieces, tokenizer: Tokenizer) -> Pieces:
    """The same with a piece that is only the blank before a word (`Ġ` before a rare character) counted to the word."""
    first = each.words[:, 0]
    is_free = np.ones(len(each) + 1, np.bool_)
    for begin, end in each.words.tolist():
        is_free[begin : end + 1] = False
    is_free[-1] = False  # what is before the first piece
    touches = is_free[first - 1] & (each.spans[first - 1, 1] == each.spans[first, 0])
    if not touches.any():
        return each
    blanks, begins = (tokenizer.pieces(each.ids[places].tolist()) for places in (first[touches] - 1, first[touches]))
    touches[touches] = [
        blank in BLANK_PIECES and not begin.startswith(BLANK_PIECES)
        for blank, begin in zip(blanks, begins, strict=True)
    ]
    words = each.words.copy()
    words[touches, 0] -= 1
    return dataclasses.replace(each, words=words)


def _groups(encoded: Sequence[Pieces], ends: Ints, *, alone: bool) -> tuple[Ints, Ints]:
    """For each piece, the first piece and the end of what is hidden with it: [P] each, over all documents."""
    n_pieces = int(ends[-1])
    numbers = np.arange(n_pieces)
    if alone or not n_pieces:
        return numbers, numbers + 1
    words = np.concatenate([each.words + base for base, each in zip(ends.tolist(), encoded, strict=False)])
    words = words[words[:, 1] > words[:, 0]]
    change = np.zeros(n_pieces + 1, np.int64)  # a piece goes with the one before it if a word has both
    np.add.at(change, words[:, 0] + 1, 1)
    np.add.at(change, words[:, 1] + 1, -1)
    joined = np.cumsum(change)[:n_pieces] > 0
    begins = np.flatnonzero(~joined)
    group = np.cumsum(~joined) - 1
    return begins[group], np.append(begins[1:], n_pieces)[group]
