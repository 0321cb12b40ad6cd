"""The contract under recurrent and two-way encoders: memory by state, halves, widths that differ by layer."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from encoders.small_modules import Recurrent, RecurrentConfig, RecurrentState, TwoWay, TwoWayConfig
from perturbation import drawing, who_sees_whom
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.errors import ModelError
from polyseme.types import Batch
from references import assert_close, ragged_batch, real

N_PIECES = 31
WIDTHS = (6, 5, 4)
LENGTHS = (9, 3, 1, 6)


def recurrent(*, backwards: bool) -> Recurrent:
    torch.manual_seed(1)
    config = RecurrentConfig(n_pieces=N_PIECES, layer_widths=WIDTHS, backwards=backwards, memory="state")
    return Recurrent(config).double().eval()


def two_way() -> TwoWay:
    torch.manual_seed(2)
    return TwoWay(TwoWayConfig(n_pieces=N_PIECES, layer_widths=WIDTHS)).double().eval()


def ragged() -> Batch:
    return ragged_batch(recurrent(backwards=False).config, lengths=LENGTHS)


both_ways = pytest.mark.parametrize("backwards", [False, True], ids=["forward", "backward"])


# --- what is computed ------------------------------------------------------------------------------------------------


@both_ways
def test_each_way_is_torchs_own_lstm(backwards: bool) -> None:
    """A backward half is what a bidirectional LSTM computes from the end of each row's real pieces."""
    ours = recurrent(backwards=backwards)
    batch = ragged()
    with torch.no_grad():
        states = ours(batch)
        x = ours.tokens(batch.pieces)
        for number, cell in enumerate(ours.cells, start=1):
            theirs = nn.LSTM(WIDTHS[number - 1], WIDTHS[number], batch_first=True, bidirectional=True).double()
            for name, parameter in cell.named_parameters():
                getattr(theirs, f"{name}_l0{'_reverse' if backwards else ''}").copy_(parameter)
            packed = pack_padded_sequence(x, batch.lengths, batch_first=True, enforce_sorted=False)
            both, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
            x = both.chunk(2, dim=-1)[backwards]
            assert_close(states[number][real(batch)], x[real(batch)], 1e-10)


def test_two_way_states_are_the_halves_side_by_side() -> None:
    ours = two_way()
    assert ours.config.direction == "two-way"
    assert ours.config.widths == (12, 10, 8)
    batch = ragged()
    onward, back = ours.halves()
    with torch.no_grad():
        states, one, other = ours(batch), onward(batch), back(batch)
    for number, width in enumerate(ours.config.widths):
        assert states[number].shape[-1] == width
        assert torch.equal(states[number], torch.cat([one[number], other[number]], dim=-1))
    assert torch.equal(one[0], other[0])


# --- who sees whom ---------------------------------------------------------------------------------------------------

PIECES = torch.tensor([[3, 14, 15, 9, 26, 5]])
FOUR_REAL = torch.tensor([4])


def picture(encoder: Encoder, layer: int, half: slice = slice(None)) -> list[str]:
    """A row of four real pieces and two of padding; only the real ones' lines."""

    def states_of(pieces: Tensor) -> Tensor:
        return encoder(Batch(pieces, FOUR_REAL.expand(len(pieces))), layers=[layer])[layer][..., half]

    return drawing(who_sees_whom(states_of, PIECES, N_PIECES)[:4])


@pytest.mark.parametrize("layer", [1, 2])
def test_no_half_peeks(layer: int) -> None:
    before, after = ["x.....", "xx....", "xxx...", "xxxx.."], ["xxxx..", ".xxx..", "..xx..", "...x.."]
    ours = two_way()
    width = WIDTHS[layer]
    assert picture(recurrent(backwards=False), layer) == before
    assert picture(recurrent(backwards=True), layer) == after
    assert picture(ours, layer, slice(None, width)) == before
    assert picture(ours, layer, slice(width, None)) == after


# --- memory ----------------------------------------------------------------------------------------------------------


@both_ways
def test_two_stretches_with_memory_equal_one_pass(backwards: bool) -> None:
    """A backward half reads the last stretch first."""
    ours = recurrent(backwards=backwards)
    pieces = ragged().pieces
    stretches = [pieces[:, :4], pieces[:, 4:]]
    if backwards:
        stretches.reverse()
    with torch.no_grad():
        whole = ours(Batch(pieces), memory=ours.new_memory(4))
        first = ours(Batch(stretches[0]), memory=ours.new_memory(4))
        second = ours(Batch(stretches[1]), memory=first.memory)
    in_text_order = (second, first) if backwards else (first, second)
    for number in range(3):
        assert_close(torch.cat([each[number] for each in in_text_order], dim=1), whole[number], 1e-12)
    for name, tensor in second.memory.tensors().items():
        assert_close(tensor, whole.memory.tensors()[name], 1e-12)


@both_ways
def test_a_row_s_memory_stops_at_its_last_real_piece(backwards: bool) -> None:
    ours = recurrent(backwards=backwards)
    batch = ragged()
    with torch.no_grad():
        memory = ours(batch, memory=ours.new_memory(4)).memory
        assert memory.lengths.tolist() == list(LENGTHS)
        for row, length in enumerate(LENGTHS):
            alone = ours(Batch(batch.pieces[row : row + 1, :length]), memory=ours.new_memory(1)).memory
            for name, tensor in alone.tensors().items():
                assert_close(memory.tensors()[name][row : row + 1], tensor, 1e-12)


def test_a_row_without_new_pieces_keeps_its_memory() -> None:
    ours = recurrent(backwards=False)
    before = ours(ragged(), memory=ours.new_memory(4)).memory
    after = ours(Batch(ragged().pieces, torch.tensor([2, 0, 0, 1])), memory=before).memory
    for name, tensor in after.tensors().items():
        assert torch.equal(tensor[[1, 2]], before.tensors()[name][[1, 2]])
        assert not torch.equal(tensor[[0, 3]], before.tensors()[name][[0, 3]])


def test_a_saved_memory_goes_on_as_if_never_stopped() -> None:
    ours = recurrent(backwards=False)
    pieces = ragged().pieces
    with torch.no_grad():
        memory = ours(Batch(pieces[:, :5]), memory=ours.new_memory(4)).memory
        saved = load(save(memory.tensors()))
        restored = ours.new_memory(4).with_tensors(saved)
        assert isinstance(restored, RecurrentState)
        expected = ours(Batch(pieces[:, 5:]), memory=memory)
        found = ours(Batch(pieces[:, 5:]), memory=restored)
    assert torch.equal(found[-1], expected[-1])
    assert found.memory.lengths.tolist() == [9] * 4


def test_streams_begin_anew_where_a_document_ends() -> None:
    """`put` gives some rows a fresh memory, the others go on."""
    ours = recurrent(backwards=False)
    pieces = ragged().pieces
    with torch.no_grad():
        memory = ours(Batch(pieces[:, :5]), memory=ours.new_memory(4)).memory
        renewed = memory.put(torch.tensor([2, 0]), ours.new_memory(2))
        mixed = ours(Batch(pieces[:, 5:]), memory=renewed)[-1]
        gone_on = ours(Batch(pieces[:, 5:]), memory=memory)[-1]
        fresh = ours(Batch(pieces[:, 5:]))[-1]
    assert torch.equal(mixed[[0, 2]], fresh[[0, 2]])
    assert torch.equal(mixed[[1, 3]], gone_on[[1, 3]])
    assert not torch.equal(fresh, gone_on)


def test_detached_memory_ends_the_graph() -> None:
    ours = recurrent(backwards=False)
    memory = ours(Batch(torch.tensor([[7, 8]])), memory=ours.new_memory(1)).memory
    for carried, reached in ((memory, True), (memory.detach(), False)):
        ours.zero_grad()
        ours(Batch(torch.tensor([[9]])), memory=carried)[-1].sum().backward(retain_graph=True)
        assert ours.tokens.weight.grad[9].any()
        assert bool(ours.tokens.weight.grad[[7, 8]].any()) == reached


def test_a_memory_belongs_to_a_half() -> None:
    ours = two_way()
    onward, back = ours.halves()
    assert onward.new_memory(2).lengths.tolist() == back.new_memory(2).lengths.tolist() == [0, 0]
    with pytest.raises(ModelError, match="one of its halves"):
        ours(ragged(), memory=onward.new_memory(4))
    with pytest.raises(ModelError, match="has none to make"):
        ours.new_memory(4)


# --- the rest of the house takes them too ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [two_way, lambda: recurrent(backwards=True)], ids=["two-way", "backward"])
def test_frozen_inference_equals_the_forward_pass(make: object) -> None:
    encoder = make()  # type: ignore[operator]
    batch = ragged_batch(encoder.config, lengths=(2, 2, 5, 8))
    with torch.no_grad():
        expected = encoder(batch)
    found = build_inference_encoder(encoder)(PackedRows(batch.pieces[real(batch)], None, [2, 2, 5, 8]), [0, -1])
    assert sorted(found) == [0, 2]
    for number, layer in found.items():
        assert_close(layer, expected[number][real(batch)], 1e-12)


def test_configs_go_to_json_and_come_back() -> None:
    for config in (two_way().config, recurrent(backwards=True).config):
        settings = config.to_json()
        assert type(config).from_json({**settings, "layer_widths": list(settings["layer_widths"])}) == config
