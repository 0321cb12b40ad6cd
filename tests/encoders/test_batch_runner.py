"""Rows side by side, and batches that do not fit into a device's memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyseme.encoders.batch_runner import Ints, MemoryLimit, padded, run_batches
from polyseme.encoders.inference import ByLength
from polyseme.errors import PolysemeWarning
from tiny_models import tiny_model


@pytest.mark.parametrize(
    ("n_pieces", "window", "expected"), [(3, None, 64), (3, 512, 64), (3, 40, 40), (64, 100, 64), (65, 100, 100)]
)
def test_rounding_up_stays_within_the_window(n_pieces: int, window: int | None, expected: int) -> None:
    batch = padded([[7] * n_pieces, [7]], torch.device("cpu"), 64, window=window)
    assert batch.pieces.shape == (2, expected)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [n_pieces, 1]


def runs_of(room: int, lengths: Ints, batch_pieces: int, limit: MemoryLimit) -> tuple[list[int], list[int], list[int]]:
    """What runs and what fails on a device with room for so many pieces: pieces of each, and the rows in order."""
    done: list[int] = []
    failed: list[int] = []
    progress: list[int] = []

    def run(rows: Ints) -> list[int]:
        n_pieces = int(lengths[rows].sum())
        if n_pieces > room:
            failed.append(n_pieces)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        done.append(n_pieces)
        return rows.tolist()

    encoder = ByLength(tiny_model("bert").bundle.encoder)
    rows = [
        row
        for part in run_batches(
            run,
            lengths,
            encoder=encoder,
            limit=limit,
            batch_pieces=batch_pieces,
            threads=False,
            on_batch=lambda now, total: progress.append(now),
        )
        for row in part
    ]
    assert progress == np.cumsum(done).tolist()
    return rows, done, failed


def test_a_batch_that_does_not_fit_is_halved_and_so_are_later_ones() -> None:
    lengths, limit = np.array([3, 9, 4, 8, 8, 5, 6, 7] * 4), MemoryLimit(torch.device("cpu"))
    with pytest.warns(PolysemeWarning, match="does not fit into the memory of cpu, and is halved") as caught:
        rows, done, failed = runs_of(30, lengths, 100, limit)
    assert len(caught) == 1
    assert rows == np.argsort(lengths, kind="stable").tolist()
    assert sum(done) == lengths.sum()
    assert len(failed) == 2  # the first batch, and half of it
    assert max(done) <= 30
    rows, _, failed = runs_of(30, lengths, 100, limit)  # the limit is known: no warning, which would be an error
    assert sorted(rows) == list(range(len(lengths)))
    assert not failed


def test_a_row_that_does_not_fit_by_itself_is_an_error() -> None:
    limit = MemoryLimit(torch.device("cpu"))
    with (
        pytest.warns(PolysemeWarning, match="is halved"),
        pytest.raises(torch.OutOfMemoryError, match="out of memory"),
    ):
        runs_of(5, np.array([3, 9]), 100, limit)
