"""The gradient of a table that is kept from step to step is the one that torch makes anew."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from polyseme.transfer import train_step as tables
from polyseme.transfer.train_step import TableGradient, table_gradients


def steps(table: nn.Embedding, above: nn.Linear, *, kept: bool, tied: bool = False) -> list[Tensor]:
    """Gradients and weights of some steps; every batch reads the table twice, as with two texts apart."""
    torch.manual_seed(0)
    if tied:
        above.weight = table.weight
    optimizer = torch.optim.AdamW([*nn.ModuleList([table, above]).parameters()], lr=0.1)
    gradient = TableGradient(table) if kept else None
    found = []
    for _ in range(5):
        pieces = torch.randint(0, 40, (3, 7))
        states = table(pieces) + table(pieces.flip(0) + 5)
        above(states).square().mean().backward()
        assert table.weight.grad is not None
        found.append(table.weight.grad.clone())
        nn.utils.clip_grad_norm_([table.weight], 0.01)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if gradient is not None:
            gradient.clear()
        found.append(table.weight.detach().clone())
    if gradient is not None:
        gradient.close()
        assert not table.sparse
    return found


def pair() -> tuple[nn.Embedding, nn.Linear]:
    torch.manual_seed(1)
    return nn.Embedding(60, 8).double(), nn.Linear(8, 60).double()


@pytest.mark.parametrize("tied", [False, True])
def test_steps_are_those_with_a_gradient_made_anew(tied: bool) -> None:
    plain, kept = steps(*pair(), kept=False, tied=tied), steps(*pair(), kept=True, tied=tied)
    for mine, theirs in zip(kept, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def test_only_large_tables_that_learn_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "WORTH_KEEPING", 100)
    frozen = nn.Embedding(60, 8).requires_grad_(False)
    large = nn.Embedding(60, 8)
    model = nn.ModuleList([nn.Embedding(5, 8), frozen, large])
    assert [each.table for each in table_gradients(model)] == [large]
