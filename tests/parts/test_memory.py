"""Memory: rows picked, written, detached, saved; and what a segment memory remembers of ragged rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyseme.parts.memory_and_cache import Cache, Memory, Segments, keep_last, write_slots

ROWS = 4


@dataclass
class TwoWay(Memory):
    """A memory that holds memories, as a stack of recurrent halves does."""

    forward: Segments
    backward: Segments | None


def drawn(*shape: int) -> Tensor:
    return torch.randn(ROWS, *shape)


def lengths() -> Tensor:
    return torch.randint(0, 9, (ROWS,))


def cache() -> Cache:
    layers = [tuple(drawn(2, 5, 3) for _ in range(3)) for _ in range(4)]
    return Cache(lengths(), *layers, source_lengths=lengths())


def bare_cache() -> Cache:
    return Cache(lengths(), (drawn(2, 5, 3),), (drawn(2, 5, 3),))


def segments() -> Segments:
    return Segments(lengths(), (drawn(4, 6), drawn(4, 6)))


def nested() -> TwoWay:
    return TwoWay(lengths(), segments(), segments())


def half_nested() -> TwoWay:
    return TwoWay(lengths(), segments(), None)


kinds = pytest.mark.parametrize("make", [cache, bare_cache, segments, nested, half_nested])


def assert_same(one: Memory, other: Memory) -> None:
    assert type(one) is type(other)
    first, second = one.tensors(), other.tensors()
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@kinds
def test_select_picks_rows_in_order_and_more_than_once(make: Callable[[], Any]) -> None:
    memory = make()
    picked = memory.select(torch.tensor([2, 0, 2]))
    for name, tensor in memory.tensors().items():
        assert torch.equal(picked.tensors()[name], torch.stack([tensor[2], tensor[0], tensor[2]])), name


@kinds
def test_put_writes_rows_and_leaves_the_others(make: Callable[[], Any]) -> None:
    memory, other = make(), make()
    before = {name: tensor.clone() for name, tensor in memory.tensors().items()}
    new = other.select(torch.tensor([0, 1]))
    written = memory.put(torch.tensor([3, 1]), new)
    for name, tensor in written.tensors().items():
        theirs, ours = other.tensors()[name], before[name]
        assert torch.equal(tensor, torch.stack([ours[0], theirs[1], ours[2], theirs[0]])), name
    assert_same(memory.select(torch.tensor([0, 2])), written.select(torch.tensor([0, 2])))


def test_detach_cuts_every_tensor_off() -> None:
    memory = nested()
    memory.forward.states[0].requires_grad_()
    grown = TwoWay(
        memory.lengths,
        Segments(memory.forward.lengths, tuple(2 * each for each in memory.forward.states)),
        memory.backward,
    )
    assert grown.forward.states[0].requires_grad
    detached = grown.detach()
    assert not any(tensor.requires_grad for tensor in detached.tensors().values())
    assert_same(detached, grown)


@kinds
def test_tensors_have_names_of_their_own_and_come_back(make: Callable[[], Any]) -> None:
    memory, other = make(), make()
    saved = memory.tensors()
    assert all(tensor.shape[0] == ROWS for tensor in saved.values())
    assert_same(other.with_tensors(saved), memory)


def test_every_tensor_is_named() -> None:
    assert sorted(half_nested().tensors()) == ["forward.lengths", "forward.states.0", "forward.states.1", "lengths"]
    names = [f"{kind}.{layer}" for kind in ("keys", "source_keys", "source_values", "values") for layer in range(3)]
    assert sorted(cache().tensors()) == sorted(["lengths", "source_lengths", *names])


def test_slots_are_written_where_each_row_stands() -> None:
    held, new = torch.zeros(2, 1, 5, 1), torch.tensor([1.0, 2.0, 3.0, 4.0]).view(2, 1, 2, 1)
    written = write_slots(held, new, torch.tensor([[0, 1], [3, 4]]))
    assert written[:, 0, :, 0].tolist() == [[1, 2, 0, 0, 0], [0, 0, 0, 3, 4]]


# --- remembering -----------------------------------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[int], int, int, int]:
    """How many pieces rows remember and read, the room of memory and batch, and how many are to be kept."""
    n_rows = draw(st.integers(1, 4))
    room, longest = draw(st.integers(0, 5)), draw(st.integers(1, 6))
    earlier = draw(st.lists(st.integers(0, room), min_size=n_rows, max_size=n_rows))
    new = draw(st.lists(st.integers(0, longest), min_size=n_rows, max_size=n_rows))
    return earlier, new, room, longest, draw(st.integers(0, room + longest))


@given(streams())
def test_remember_is_the_last_pieces_of_each_row(case: tuple[list[int], list[int], int, int, int]) -> None:
    """Against the definition: real pieces in reading order, the last `keep` of them, at the right end."""
    earlier, new, room, longest, keep = case
    real, held, read = 0, torch.full((len(new), room, 1), -1.0), torch.full((len(new), longest, 1), -2.0)
    expected = []
    for row, (n_earlier, n_new) in enumerate(zip(earlier, new, strict=True)):
        numbers = torch.arange(real, real + n_earlier + n_new, dtype=torch.float32)
        real += n_earlier + n_new
        held[row, room - n_earlier :, 0] = numbers[:n_earlier]
        read[row, :n_new, 0] = numbers[n_earlier:]
        expected.append(numbers[max(0, len(numbers) - keep) :].tolist())
    found = keep_last(held, read, torch.tensor(new), keep)
    assert found.shape == (len(new), keep, 1)
    for row, numbers in enumerate(expected):
        assert found[row, keep - len(numbers) :, 0].tolist() == numbers


@given(st.integers(0, 5), st.integers(1, 6), st.data())
def test_full_rows_need_no_lengths(room: int, longest: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(0, room + longest))
    held, read = torch.randn(2, room, 3), torch.randn(2, longest, 3)
    assert torch.equal(keep_last(held, read, None, keep), keep_last(held, read, torch.tensor([longest] * 2), keep))
