"""Drawing by inverting the distribution: the right piece for each number, each piece as often as it should be."""

from __future__ import annotations

import pytest
import torch

from polyseme.objectives.generator import BLOCK, sample


@pytest.mark.parametrize("n_pieces", [1, 2, 255, BLOCK, BLOCK + 1, 1000])
def test_each_number_falls_on_the_piece_where_the_distribution_passes_it(n_pieces: int) -> None:
    generator = torch.Generator().manual_seed(n_pieces)
    logits = 3 * torch.randn(400, n_pieces, generator=generator, dtype=torch.float64)
    chance = torch.rand(400, generator=generator, dtype=torch.float64)
    expected = torch.searchsorted(logits.softmax(-1).cumsum(-1), chance[:, None], right=True)[:, 0]
    assert torch.equal(sample(logits, chance), expected.clamp(max=n_pieces - 1))
    ends = sample(logits[:2], torch.tensor([0.0, 1 - 2.0**-24], dtype=torch.float64))
    assert ((ends >= 0) & (ends < n_pieces)).all()


@pytest.mark.parametrize(("dtype", "temperature"), [(torch.float32, 1.0), (torch.bfloat16, 0.5)], ids=str)
def test_pieces_are_drawn_as_often_as_the_softmax_says(dtype: torch.dtype, temperature: float) -> None:
    n, n_pieces = 50_000, 600
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(n_pieces, generator=generator).to(dtype)
    drawn = sample(logits.expand(n, -1), torch.rand(n, generator=generator), temperature)
    expected = (logits.double() / temperature).softmax(-1) * n
    counts = drawn.bincount(minlength=n_pieces).double()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = n_pieces - 1
    assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5


def test_a_piece_that_cannot_be_is_never_drawn() -> None:
    logits = torch.full((64, 700), -float("inf"))
    logits[:, 300] = 0.0
    logits[:, 650] = 1.0
    drawn = sample(logits, torch.linspace(0, 1 - 2.0**-24, 64))
    assert set(drawn.tolist()) == {300, 650}


def test_no_gradient_passes() -> None:
    logits = torch.randn(3, 7, requires_grad=True)
    assert not sample(logits, torch.rand(3)).requires_grad
