"""Recurrence equals its equations, and torch's own modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyseme.parts.recurrence import Reader, State, reverse_rows
from references import assert_close
from spread import SPREAD

ROWS, TIMES, BELOW, CELLS, WIDTH = 3, 7, 5, 6, 4


def reader(**settings: Any) -> Reader:
    """One in float64, with weights of a wide spread."""
    width = WIDTH if settings.get("inner_width") else CELLS
    made = Reader(BELOW, width, **settings).double().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=SPREAD, generator=generator)
    return made


def inputs(n_times: int = TIMES, seed: int = 0) -> Tensor:
    return torch.randn(ROWS, n_times, BELOW, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2


KINDS: dict[str, dict[str, Any]] = {
    "tanh": {"kind": "tanh"},
    "lstm": {},
    "gru": {"kind": "gru"},
    "forget bias": {"forget_bias": 1.0},
    "projection": {"inner_width": CELLS},
    "cell clip": {"cell_clip": 0.3},
    "all": {"inner_width": CELLS, "cell_clip": 0.4, "projection_clip": 0.1, "forget_bias": 1.0},
}
every_kind = pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)


def by_equations(made: Reader, x: Tensor, kind: str = "lstm") -> tuple[Tensor, Tensor, Tensor]:
    """The equations, one number's gate at a time as they are in the books."""
    w_x, w_h, b = made.input, made.recurrent, made.bias
    out = torch.zeros(ROWS, x.shape[1], made.width, dtype=x.dtype)
    h, c = torch.zeros(ROWS, made.width, dtype=x.dtype), torch.zeros(ROWS, CELLS, dtype=x.dtype)
    for t in range(x.shape[1]):
        if kind == "tanh":
            h = torch.tanh(x[:, t] @ w_x.T + h @ w_h.T + b)
        elif kind == "gru":
            assert made.recurrent_bias is not None
            read, held = (x[:, t] @ w_x.T + b).chunk(3, dim=1), (h @ w_h.T + made.recurrent_bias).chunk(3, dim=1)
            reset, update = (torch.sigmoid(read[gate] + held[gate]) for gate in (0, 1))
            h = (1 - update) * torch.tanh(read[2] + reset * held[2]) + update * h
        else:
            gates = {
                name: x[:, t] @ w_x[rows].T + h @ w_h[rows].T + b[rows]
                for name, rows in zip(
                    "ifgo", (slice(start, start + CELLS) for start in range(0, 4 * CELLS, CELLS)), strict=True
                )
            }
            remembered = torch.sigmoid(gates["f"] + made.forget_bias) * c
            c = remembered + torch.sigmoid(gates["i"]) * torch.tanh(gates["g"])
            if made.cell_clip is not None:
                c = c.clamp(-made.cell_clip, made.cell_clip)
            h = torch.sigmoid(gates["o"]) * torch.tanh(c)
            if made.projection is not None:
                h = h @ made.projection.T
                if made.projection_clip is not None:
                    h = h.clamp(-made.projection_clip, made.projection_clip)
        out[:, t] = h
    return out, h, c


@every_kind
def test_the_equations(settings: dict[str, Any]) -> None:
    made, x = reader(**settings), inputs()
    with torch.no_grad():
        expected = by_equations(made, x, settings.get("kind", "lstm"))
        found = made(x, None, None, carried=True)
        made.written_out = True
        step_by_step = made(x, None, None, carried=True)
    n_compared = 2 if "kind" in settings else 3
    for one, other, theirs in list(zip(found, step_by_step, expected, strict=True))[:n_compared]:
        assert_close(one, theirs, 1e-12)
        assert_close(other, theirs, 1e-12)


def test_clips_bite() -> None:
    """The test above is only worth something if they do."""
    made = reader(**KINDS["all"])
    with torch.no_grad():
        out, h, c = made(inputs(), None, None, carried=True)
    assert 0.05 < float((c.abs() == 0.4).double().mean()) < 0.95
    assert 0.05 < float((out.abs() == 0.1).double().mean()) < 0.95
    assert float(h.abs().max()) <= 0.1


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", ["tanh", "lstm", "projection", "gru"])
def test_torch_s_modules(kind: str) -> None:
    """Outputs, last states and gradients."""
    made, x = reader(**KINDS[kind]), inputs()
    if kind in ("tanh", "gru"):
        theirs: Any = {"tanh": nn.RNN, "gru": nn.GRU}[kind](BELOW, CELLS, batch_first=True)
    else:
        theirs = nn.LSTM(BELOW, CELLS, batch_first=True, proj_size=WIDTH if kind == "projection" else 0)
    theirs = theirs.double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(made.input)
        theirs.weight_hh_l0.copy_(made.recurrent)
        theirs.bias_ih_l0.copy_(made.bias)
        theirs.bias_hh_l0.copy_(torch.zeros(1) if made.recurrent_bias is None else made.recurrent_bias)
        if made.projection is not None:
            theirs.weight_hr_l0.copy_(made.projection)
    expected, last = theirs(x)
    last = last if isinstance(last, tuple) else (last,)
    for written_out in (False, True):
        made.written_out = written_out
        out, *after = made(x, None, None, carried=True)
        assert_close(out, expected, 1e-12)
        for one, other in zip(after, last, strict=False):
            assert_close(one, other[0], 1e-12)
        biases = [] if made.recurrent_bias is None else [made.recurrent_bias]
        ours = torch.autograd.grad(out.square().sum(), [made.input, made.recurrent, made.bias, *biases])
        grads = [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0, *[theirs.bias_hh_l0] * len(biases)]
        for one, other in zip(
            ours, torch.autograd.grad(expected.square().sum(), grads, retain_graph=True), strict=True
        ):
            assert_close(one, other, 1e-10)


@every_kind
def test_what_has_run_in_inference_can_be_trained(settings: dict[str, Any]) -> None:
    made, x = reader(**settings), inputs()
    with torch.inference_mode():
        before, _, _ = made(x, None, None, carried=False)
    out, _, _ = made(x, None, None, carried=False)
    assert_close(out, before, 1e-12)
    for gradient in torch.autograd.grad(out.square().sum(), list(made.parameters())):
        assert gradient.any()


@every_kind
def test_many_steps_of_one_row_are_the_same_in_inference(settings: dict[str, Any]) -> None:
    """There the weights are laid out anew."""
    made, x = reader(**settings), inputs(50)
    expected, _, _ = made(x, None, None, carried=False)
    with torch.inference_mode():
        found, _, _ = made(x[:1], None, None, carried=False)
    assert_close(found[0], expected[0], 1e-12)


@every_kind
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_rows_stop_at_their_lengths(settings: dict[str, Any], backwards: bool) -> None:
    """Each row of a ragged batch as it is alone; the last states are those after its last piece read."""
    made, x, lengths = reader(**settings, backwards=backwards), inputs(), torch.tensor([7, 3, 5])
    with torch.no_grad():
        out, h, c = made(x, lengths, None, carried=True)
        for row, length in enumerate(lengths.tolist()):
            alone = made(x[row : row + 1, :length], None, None, carried=True)
            assert_close(out[row, :length], alone[0][0], 1e-12)
            assert_close(h[row], alone[1][0], 1e-12)
            if settings.get("kind") != "tanh":
                assert_close(c[row], alone[2][0], 1e-12)


@every_kind
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_two_halves_with_the_state_carried_on_are_one_whole(settings: dict[str, Any], backwards: bool) -> None:
    made, x = reader(**settings, backwards=backwards), inputs()
    parts = [x[:, 3:], x[:, :3]] if backwards else [x[:, :3], x[:, 3:]]
    with torch.no_grad():
        whole = made(x, None, None, carried=True)
        first = made(parts[0], None, None, carried=True)
        second = made(parts[1], None, first[1:], carried=True)
    joined = [second[0], first[0]] if backwards else [first[0], second[0]]
    assert_close(torch.cat(joined, dim=1), whole[0], 1e-12)
    assert_close(second[1], whole[1], 1e-12)


def test_a_row_of_no_pieces_keeps_its_state() -> None:
    made = reader()
    start = (torch.ones(ROWS, CELLS).double(), torch.full((ROWS, CELLS), 0.5).double())
    with torch.no_grad():
        _, h, c = made(inputs(), torch.tensor([0, 2, 7]), start, carried=True)
        out, *after = made(inputs(0), None, start, carried=True)
    assert torch.equal(h[0], start[0][0])
    assert torch.equal(c[0], start[1][0])
    assert not torch.equal(h[1], start[0][1])
    assert out.shape == (ROWS, 0, CELLS)
    assert torch.equal(after[0], start[0])


def test_mirrored_turns_real_pieces_round_and_leaves_padding() -> None:
    x = torch.arange(8).view(2, 4)
    assert reverse_rows(x, None).tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]
    assert reverse_rows(x, torch.tensor([3, 0])).tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]
    assert torch.equal(reverse_rows(reverse_rows(x, torch.tensor([2, 4])), torch.tensor([2, 4])), x)


def test_a_state_is_picked_put_and_cut_off_row_by_row() -> None:
    h = torch.randn(3, 2, requires_grad=True)
    state = State(torch.tensor([1, 2, 3]), (h, h * 2), (h * 3, h * 4))
    picked = state.select(torch.tensor([2, 0]))
    assert picked.lengths.tolist() == [3, 1]
    assert torch.equal(picked.cells[1], h[[2, 0]] * 4)
    put = state.put(torch.tensor([1]), state.select(torch.tensor([0])))
    assert torch.equal(put.outputs[1][1], h[0] * 2)
    assert not any(tensor.requires_grad for tensor in state.detach().tensors().values())
    assert sorted(state.tensors()) == ["cells.0", "cells.1", "lengths", "outputs.0", "outputs.1"]
    assert torch.equal(state.with_tensors(state.tensors()).cells[0], state.cells[0])
