"""Rows side by side."""

from __future__ import annotations

import pytest
import torch

from polyseme.encoders.batch_runner import padded


@pytest.mark.parametrize(
    ("n_pieces", "window", "expected"), [(3, None, 64), (3, 512, 64), (3, 40, 40), (64, 100, 64), (65, 100, 100)]
)
def test_rounding_up_stays_within_the_window(n_pieces: int, window: int | None, expected: int) -> None:
    batch = padded([[7] * n_pieces, [7]], torch.device("cpu"), 64, window=window)
    assert batch.pieces.shape == (2, expected)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [n_pieces, 1]
