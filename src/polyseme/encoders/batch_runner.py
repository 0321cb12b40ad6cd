"""Rows of many lengths through an encoder: sorted by length, in batches of a budget of pieces, on as many cores as pay.

What runs over a batch, and what becomes of its results, is the caller's: word vectors in `embedding`, scores of target
pieces in `scoring`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.encoders.inference import InferenceEncoder
from polyseme.errors import PolysemeWarning
from polyseme.parts.device import even_share, one_core, side_by_side
from polyseme.types import Batch, OnBatch

Ints = NDArray[np.int64]
Result = TypeVar("Result")

BATCH_PIECES = defaultdict(lambda: 2048, {"cuda": 65536, "bf16": 1024, "int8": 512})
"""Pieces in a batch unless the user says otherwise: small enough for a CPU's caches, large enough for a GPU."""
LITTLE_WORK = 64
"""Pieces up to which one core is sooner done than several."""
MUCH_WORK = 4096
"""Pieces from which it pays to lay the weights out first."""


class MemoryLimit:
    """Halves batches that do not fit into a GPU's memory. One object serves all batches of a run, and learns the limit.

    Results do not depend on which rows a batch has, so that halves give what the whole would.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pieces: int | None = None
        """Batches of more pieces are halved without a trial; None: every batch has fit."""

    def results(self, run: Callable[[Ints], Result], rows: Ints, lengths: Ints) -> list[tuple[int, Result]]:
        """The result of these rows, or those of parts of them, each with its number of pieces."""
        n_pieces = int(lengths[rows].sum())
        if len(rows) == 1 or self.pieces is None or n_pieces <= self.pieces:
            try:
                return [(n_pieces, run(rows))]
            except torch.OutOfMemoryError:
                if len(rows) == 1:
                    raise
            # Here the error, and with it what the batch has held in memory, is gone.
            self._lower(n_pieces)
        half = len(rows) // 2
        return [*self.results(run, rows[:half], lengths), *self.results(run, rows[half:], lengths)]

    def _lower(self, n_pieces: int) -> None:
        if self.pieces is None:
            warnings.warn(
                f"A batch of {n_pieces:,} pieces does not fit into the memory of {self.device}, and is halved, as are "
                "later ones of that size. Results are the same. Smaller batches (batch_pieces) save the attempt.",
                PolysemeWarning,
                stacklevel=3,
            )
        self.pieces = n_pieces // 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def run_batches(
    run: Callable[[Ints], Result],
    lengths: Ints,
    *,
    encoder: InferenceEncoder,
    limit: MemoryLimit,
    batch_pieces: int,
    threads: bool = True,
    on_batch: OnBatch | None = None,
) -> Iterator[Result]:
    """Call `run` with the numbers of the rows of each batch, shortest first; its results, as they come.

    A row's own order is the caller's to restore, by these numbers. With `threads`, batches may run side by side. A call
    that raises `torch.OutOfMemoryError` is repeated with half of its rows, so that it must leave nothing behind.
    """
    done, total = 0, int(lengths.sum())
    if not total:
        return
    if total >= MUCH_WORK:
        encoder.prepare()
    order = np.argsort(lengths, kind="stable")
    with _cores(limit.device, total, threads) as run_all:
        for results in run_all(
            lambda rows: limit.results(run, rows, lengths), batches(order, lengths, even_share(total, batch_pieces))
        ):
            for n_pieces, result in results:
                done += n_pieces
                if on_batch is not None:
                    on_batch(done, total)
                yield result


def batches(order: Ints, lengths: Ints, budget: int) -> Iterator[Ints]:
    """Rows in this order, as many as fit the budget of pieces; a longer row is a batch by itself.

    >>> [rows.tolist() for rows in batches(np.array([2, 0, 1]), np.array([3, 9, 2]), 5)]
    [[2, 0], [1]]
    """
    ends = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + budget, side="right")), start + 1)
        yield order[start:end]
        start = end


def padded(
    rows: Sequence[Sequence[int] | Ints], device: torch.device, multiple: int = 1, *, window: int | None = None
) -> Batch:
    """Rows side by side, padded on the right to the longest, or to a multiple of so many pieces within the window."""
    lengths = [len(row) for row in rows]
    longest = -(-max(lengths) // multiple) * multiple
    if window is not None and longest > window:
        longest = max(window, *lengths)
    pieces = torch.zeros(len(rows), longest, dtype=torch.long)
    for number, row in enumerate(rows):
        pieces[number, : len(row)] = torch.as_tensor(row)
    is_full = min(lengths) == longest
    return Batch(pieces.to(device), None if is_full else torch.tensor(lengths, device=device))


@contextlib.contextmanager
def _cores(device: torch.device, n_pieces: int, threads: bool) -> Iterator[Callable[..., Any]]:
    """A `map` over batches, with as many cores as so many pieces are worth."""
    if device.type == "cpu" and n_pieces <= LITTLE_WORK:
        with one_core():
            yield map
    elif device.type == "cpu" and threads and n_pieces >= MUCH_WORK:
        with side_by_side() as run_all:
            yield run_all
    else:
        yield map
