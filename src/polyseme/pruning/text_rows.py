"""Texts as rows of one length, corrupted as an objective does it: what a pretrained model is judged by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from polyseme.bundle import Bundle
from polyseme.corpus.random_keys import row_keys
from polyseme.errors import InputError
from polyseme.objectives.objective import BaseObjective
from polyseme.types import Document, Example, Rows

LENGTH = 128
"""Pieces of a row, specials included, where the model reads as many."""
ROWS = 16
"""Rows of a batch."""


@dataclass(frozen=True)
class RowBatch:
    """Corrupted rows, and their shape."""

    example: Example
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]


def text_batches(
    documents: Iterable[Document],
    bundle: Bundle,
    objective: BaseObjective,
    *,
    seed: int = 0,
    max_rows: int | None = None,
) -> list[RowBatch]:
    """Texts one after another, cut into rows; what does not fill the last row is left out."""
    tokenizer = bundle.text_tokenizer
    framed = tokenizer.frame(np.zeros(0, np.int64))
    before, after = framed.ids[: framed.offset], framed.ids[framed.offset :]
    n_specials = len(before) + len(after)
    longest = min(LENGTH, bundle.config.window or LENGTH)
    stretch = objective.row_length(longest, n_specials) - n_specials
    ids, starts = [], []
    n_pieces = 0
    for document in documents:
        pieces = tokenizer.encode(document)
        begins = np.zeros(len(pieces.ids), np.bool_)
        begins[pieces.words[:, 0]] = True
        ids.append(pieces.ids)
        starts.append(begins)
        n_pieces += len(pieces.ids)
        if max_rows is not None and n_pieces >= max_rows * stretch:
            break
    if n_pieces < stretch:
        raise InputError(
            f"The texts have {n_pieces:,} pieces, which do not fill a row of {stretch:,}. Give more text (dev)."
        )
    n_rows = n_pieces // stretch
    body = np.concatenate(ids)[: n_rows * stretch].reshape(n_rows, stretch)
    words = np.concatenate(starts)[: n_rows * stretch].reshape(n_rows, stretch)
    batches = []
    for first in range(0, n_rows, ROWS):
        text, begins = body[first : first + ROWS], words[first : first + ROWS]
        sides = [np.broadcast_to(side, (len(text), len(side))) for side in (before, after)]
        special = [np.ones(side.shape, np.bool_) for side in sides]
        rows = Rows(
            pieces=np.concatenate([sides[0], text, sides[1]], axis=1).astype(np.int64),
            starts=np.concatenate([special[0], begins, special[1]], axis=1),
            special=np.concatenate([special[0], np.zeros(text.shape, np.bool_), special[1]], axis=1),
            keys=row_keys(seed, 0, np.arange(first, first + len(text))),
        )
        batches.append(RowBatch(objective.corrupt(rows), (len(text), rows.pieces.shape[1])))
    return batches
