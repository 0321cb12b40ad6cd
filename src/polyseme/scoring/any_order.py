"""Scoring under an order of factorization, with an encoder that has a query stream (XLNet).

A query that knows the place of a piece predicts it, and sees the pieces that come earlier in the order; the pieces
themselves see those and themselves. The first piece of an order would be predicted from nothing, which no such model
has learned, and has no score.

From left to right and from right to left a long text is read in windows that overlap
(`target_rows.strides`). Any other order is of one text of as many pieces, and numbers them from 1: `3,2,4,1` predicts
the third piece first.

Shapes: R rows, T pieces, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from polyseme.bundle import Bundle
from polyseme.errors import InputError, OptionError, nearest
from polyseme.parts.masks import FactorizationOrder
from polyseme.scoring.target_rows import (
    Ints,
    PiecePredictor,
    ScoringMethod,
    ScoringRequest,
    TargetScores,
    Usage,
    check_stride,
    strides,
    usage_of,
)
from polyseme.text.ragged_arrays import concatenate
from polyseme.types import Batch

ONWARD, BACK, BOTH = "left-to-right", "right-to-left", "both"
NAMED = (ONWARD, BACK, BOTH)


def parse_order(order: str | Sequence[int]) -> str | tuple[int, ...]:
    """An order by its name, or as the places of pieces from 1 on, in turn.

    >>> parse_order("3,2,4,1"), parse_order("left-to-right")
    ((3, 2, 4, 1), 'left-to-right')
    """
    if isinstance(order, str) and order in NAMED:
        return order
    parts = order.replace(",", " ").split() if isinstance(order, str) else list(order)
    try:
        numbers = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise OptionError(
            f"There is no order {order!r}. {nearest(str(order), NAMED)} Or give the places of the pieces from 1 on, "
            "as in 3,2,4,1."
        ) from None
    if not numbers or sorted(numbers) != list(range(1, len(numbers) + 1)):
        raise OptionError(
            f"An order of pieces names each place from 1 to their number once, as in 3,2,4,1. Got {order!r} instead."
        )
    return numbers


@dataclass(frozen=True)
class _Row:
    """A stretch of a document with the turn of each of its pieces, and those that are predicted."""

    ids: Ints
    rank: Ints
    targets: Ints
    """Places in the stretch."""
    first: int
    """Where the stretch begins among all pieces of all documents."""


class AnyOrderScoring(ScoringMethod):
    """Scores of an encoder with a query stream."""

    unscored_first: str | None = (
        "The piece that comes first in the order would be predicted from nothing; it has no score and is left out of "
        "all sums."
    )

    def __init__(
        self, bundle: Bundle, predictor: PiecePredictor, *, order: str | tuple[int, ...], stride: int | None = None
    ) -> None:
        self.encoder = bundle.encoder
        self.predictor = predictor
        self.order = order
        self.room = bundle.config.window
        self.stride = stride
        if stride is not None:
            if not isinstance(order, str) or self.room is None:
                raise OptionError("A stride is for texts that are read from one side to the other. Leave it out.")
            check_stride(stride, self.room - 1)

    @property
    def description(self) -> str:
        if isinstance(self.order, str):
            return f"{self.order.replace('-', ' ')}, with a query stream"
        return f"in the order {' → '.join(map(str, self.order))}, with a query stream"

    def __call__(self, request: ScoringRequest) -> tuple[TargetScores, Usage]:
        pieces, ends = concatenate([each.ids for each in request.encoded])
        scores = TargetScores.empty(len(pieces))
        rows: list[_Row] = []
        for number, each in enumerate(request.encoded):
            begin, end = (0, len(each)) if request.only is None else request.only[number]
            for start, rank, targets in self._windows(len(each)):
                targets = targets[(targets + start >= begin) & (targets + start < end)]
                if len(targets):
                    rows.append(_Row(each.ids[start : start + len(rank)], rank, targets, int(ends[number]) + start))
        rows.sort(key=lambda row: len(row.ids))
        lengths = [len(row.ids) for row in rows]
        done, total = 0, sum(lengths)
        while done < total:
            batch = _that_fit(rows, self.predictor.batch_pieces)
            rows = rows[len(batch) :]
            self._predict(batch, pieces, scores, request.best)
            done += sum(len(row.ids) for row in batch)
            request.report(done, total)
        return scores, usage_of(self.encoder.config, lengths, scores.n_predicted, self.predictor.output)

    def _windows(self, n_pieces: int) -> Iterator[tuple[int, Ints, Ints]]:
        """Where each window begins, the turn of each of its pieces, and the places that are predicted in it."""
        if not n_pieces:
            return
        if not isinstance(self.order, str):
            if len(self.order) != n_pieces:
                raise InputError(
                    f"The order is of {len(self.order):,} pieces, and a text has {n_pieces:,}. See how it is cut with "
                    "the verb 'pieces', or choose left-to-right or right-to-left."
                )
            if self.room is not None and n_pieces > self.room:
                raise InputError(f"The text has {n_pieces:,} pieces, and the model reads {self.room:,} at once.")
            rank = np.empty(n_pieces, np.int64)
            rank[np.array(self.order) - 1] = np.arange(n_pieces)
            yield 0, rank, np.flatnonzero(rank > 0)
            return
        room = None if self.room is None else self.room - 1
        for start, last, first in strides(n_pieces - 1, room, self.stride):
            length = last + 1 - start
            turns = np.arange(length)
            if self.order == ONWARD:
                yield start, turns, np.arange(first - start, length)
            else:  # the same, seen from the other end
                yield n_pieces - 1 - last, turns[::-1].copy(), np.arange(length - (first - start))

    @torch.inference_mode()
    def _predict(self, rows: Sequence[_Row], pieces: Ints, scores: TargetScores, best: bool) -> None:
        device = self.predictor.device
        longest, most = max(len(row.ids) for row in rows), max(len(row.targets) for row in rows)
        ids, rank = np.zeros((len(rows), longest), np.int64), np.full((len(rows), longest), longest)
        targets = np.full((len(rows), most), -1)
        for number, row in enumerate(rows):
            ids[number, : len(row.ids)] = row.ids
            rank[number, : len(row.ids)] = row.rank
            targets[number, : len(row.targets)] = row.targets
        lengths = torch.tensor([len(row.ids) for row in rows], device=device)
        batch = Batch(
            torch.from_numpy(ids).to(device),
            lengths,
            torch.zeros(ids.shape, dtype=torch.long, device=device),
            mask=FactorizationOrder(torch.from_numpy(rank).to(device)),
            targets=torch.from_numpy(targets).to(device),
        )
        states = self.encoder(batch, layers=[-1])
        chosen = states.queries[states.depth][torch.from_numpy(targets >= 0).to(device)]
        places = np.concatenate([row.targets + row.first for row in rows])
        log_probs, is_best = self.predictor.log_probs(chosen, torch.from_numpy(pieces[places]).to(device), best=best)
        scores.put(places, log_probs, is_best)


def _that_fit(rows: Sequence[_Row], budget: int) -> Sequence[_Row]:
    """The first of rows, shortest first, that make a padded batch within the budget; at least one."""
    n_rows = next((n for n, row in enumerate(rows) if (n + 1) * len(row.ids) > budget), len(rows))
    return rows[: max(n_rows, 1)]
