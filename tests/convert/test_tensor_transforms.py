"""Changes of layout are exact and undo themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyseme.convert.tensor_transforms import SAME, TRANSPOSE, Chain, Change, Copies, Stack, reshape
from polyseme.errors import ModelError

SIZES = st.integers(1, 5)


@st.composite
def changed(draw: st.DrawFn) -> tuple[Change, list[Tensor]]:
    """A change, and tensors it fits: three matrices of one shape."""
    rows, columns = draw(SIZES), draw(SIZES)
    tensors = [torch.arange(rows * columns).view(rows, columns) + 100.0 * number for number in range(3)]
    flat = reshape((rows, columns), (rows * columns,))
    change = draw(
        st.sampled_from(
            [
                SAME,
                TRANSPOSE,
                Stack(3),
                flat,
                Chain(()),
                Chain((TRANSPOSE, Stack(3))),
                Chain((flat, Stack(3))),
                Chain((Stack(3), TRANSPOSE)),
            ]
        )
    )
    return change, tensors


@given(changed())
def test_back_and_forth_is_nothing(case: tuple[Change, list[Tensor]]) -> None:
    change, tensors = case
    there = change.forward(tensors)
    back = change.backward(there)
    assert len(back) == len(tensors)
    assert all(torch.equal(one, other) for one, other in zip(back, tensors, strict=True))
    again = change.forward(back)
    assert all(torch.equal(one, other) for one, other in zip(again, there, strict=True))


def test_stacking_keeps_the_order() -> None:
    q, k, v = torch.zeros(2, 3), torch.ones(2, 3), torch.full((2, 3), 2.0)
    (stacked,) = Stack(3).forward([q, k, v])
    assert stacked[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_chain_runs_from_left_to_right() -> None:
    matrix = torch.arange(6.0).view(2, 3)
    (found,) = Chain((TRANSPOSE, reshape((3, 2), (6,)))).forward([matrix])
    assert found.tolist() == [0, 3, 1, 4, 2, 5]


def test_copies_are_one_tensor_and_come_back_apart() -> None:
    table = torch.arange(6.0).view(2, 3)
    assert Copies(3).forward([table, table.clone(), table.clone()]) == [table]
    back = Copies(3).backward([table])
    assert len({tensor.data_ptr() for tensor in back}) == 3
    assert all(torch.equal(tensor, table) for tensor in back)
    for other in (table + 1, table.T):
        with pytest.raises(ModelError, match="3 names for one table"):
            Copies(3).forward([table, table, other])
