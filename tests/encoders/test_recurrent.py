"""The recurrent encoder equals torch's stacks, read one way and both; its memory; what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from conformance.cases import BOTH_WAYS, CLIPPED, TANH, redrawn
from polyseme.bundle import new_bundle
from polyseme.convert.lstm import FAMILY
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.encoders.packed_recurrent import PIECES_AT_ONCE
from polyseme.encoders.recurrent import Recurrent
from polyseme.encoders.recurrent_config import RecurrentConfig, TwoWayConfig
from polyseme.errors import ModelError
from polyseme.types import Batch
from references import assert_close, ragged_batch, real

PLAIN = RecurrentConfig(n_pieces=99, token_width=12, width=10, n_layers=2)
STACKS = {
    "lstm": PLAIN,
    "tanh": PLAIN.replace(cells="tanh"),
    "lstm both ways": PLAIN.replace(reads="both", memory="none"),
    "tanh both ways": PLAIN.replace(cells="tanh", reads="both", memory="none"),
    "projection": PLAIN.replace(inner_width=14),
    "projection both ways": PLAIN.replace(inner_width=14, reads="both", memory="none"),
}


def torch_stack(encoder: Recurrent) -> nn.Module:
    """torch's own module with the same weights."""
    config = encoder.config
    both = config.reads == "both"
    settings: dict[str, Any] = {"num_layers": config.n_layers, "batch_first": True, "bidirectional": both}
    if config.cells == "tanh":
        theirs: Any = nn.RNN(config.token_width, config.width, **settings)
    elif config.inner_width is None:
        theirs = nn.LSTM(config.token_width, config.width, **settings)
    else:
        theirs = nn.LSTM(config.token_width, config.inner_width, proj_size=config.width, **settings)
    theirs = theirs.double()
    with torch.no_grad():
        for index in range(config.n_layers):
            for way, reader in enumerate(encoder._readers(index)):
                end = f"l{index}" + ("_reverse" if way else "")
                getattr(theirs, f"weight_ih_{end}").copy_(reader.input)
                getattr(theirs, f"weight_hh_{end}").copy_(reader.recurrent)
                getattr(theirs, f"bias_ih_{end}").copy_(reader.bias)
                getattr(theirs, f"bias_hh_{end}").zero_()
                if reader.projection is not None:
                    getattr(theirs, f"weight_hr_{end}").copy_(reader.projection)
    return theirs


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("config", STACKS.values(), ids=STACKS)
def test_stacks_equal_torch_s(config: RecurrentConfig) -> None:
    """Rows of different lengths: torch's stack is given each packed."""
    encoder = redrawn(Recurrent(config), torch.float64)
    theirs = torch_stack(encoder)  # type: ignore[arg-type]
    batch = ragged_batch(config)
    assert batch.lengths is not None
    with torch.no_grad():
        ours = encoder(batch)[-1]
        packed = nn.utils.rnn.pack_padded_sequence(
            encoder.tokens(batch.pieces), batch.lengths, batch_first=True, enforce_sorted=False
        )
        expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    assert_close(ours[real(batch)], expected[real(batch)], 1e-12)


@pytest.mark.parametrize("config", [PLAIN, TANH, CLIPPED], ids=["lstm", "tanh", "clipped"])
def test_two_parts_with_memory_equal_one_pass(config: RecurrentConfig) -> None:
    """A backward reader is given the later part first."""
    encoder = redrawn(Recurrent(config), torch.float64)
    batch = ragged_batch(config, lengths=(9, 9, 9))
    pieces = batch.pieces
    parts = [pieces[:, 5:], pieces[:, :5]] if config.reads == "backwards" else [pieces[:, :5], pieces[:, 5:]]
    with torch.no_grad():
        whole = encoder(Batch(pieces), memory=encoder.new_memory(3))
        first = encoder(Batch(parts[0]), memory=encoder.new_memory(3))
        second = encoder(Batch(parts[1]), memory=first.memory)
    for layer in range(config.depth + 1):
        joined = [first[layer], second[layer]]
        if config.reads == "backwards":
            joined.reverse()
        assert_close(torch.cat(joined, dim=1), whole[layer], 1e-12)
    assert second.memory is not None
    assert whole.memory is not None
    assert second.memory.tensors().keys() == whole.memory.tensors().keys()
    for name, tensor in whole.memory.tensors().items():
        assert_close(second.memory.tensors()[name], tensor, 1e-12)
    assert second.memory.lengths.tolist() == [9, 9, 9]


def test_memory_stops_at_each_row_s_length() -> None:
    encoder = redrawn(Recurrent(PLAIN), torch.float64)
    batch = ragged_batch(PLAIN, lengths=(6, 2, 4))
    assert batch.lengths is not None
    step = Batch(torch.tensor([[7], [8], [9]]))
    with torch.no_grad():
        memory = encoder(batch, memory=encoder.new_memory(3)).memory
        found = encoder(step, memory=memory)
        for row, length in enumerate(batch.lengths.tolist()):
            whole = torch.cat([batch.pieces[row : row + 1, :length], step.pieces[row : row + 1]], dim=1)
            assert_close(found[-1][row, 0], encoder(Batch(whole))[-1][0, -1], 1e-12)


def test_gradients_stop_where_a_memory_is_detached() -> None:
    encoder = redrawn(Recurrent(PLAIN))
    pieces = torch.tensor([[3, 4, 5]])
    table = encoder.tokens.table
    assert isinstance(table, nn.Parameter)
    for detached in (False, True):
        memory = encoder(Batch(pieces), memory=encoder.new_memory(1)).memory
        assert memory is not None
        states = encoder(Batch(torch.tensor([[6]])), memory=memory.detach() if detached else memory)
        (gradient,) = torch.autograd.grad(states[-1].sum(), table)
        assert gradient[6].any()
        assert bool(gradient[3].any()) != detached


def test_a_skip_connection_starts_at_the_second_layer_and_is_not_carried() -> None:
    with_skip = redrawn(Recurrent(PLAIN.replace(token_width=10, skip=True)), torch.float64)
    without = redrawn(Recurrent(PLAIN.replace(token_width=10)), torch.float64)
    batch = Batch(torch.tensor([[3, 4, 5]]))
    with torch.no_grad():
        one = with_skip(batch, memory=with_skip.new_memory(1))
        other = without(batch, memory=without.new_memory(1))
    assert_close(one[1], other[1], 1e-12)
    assert_close(one[2], other[2] + other[1], 1e-12)
    assert_close(one.memory.outputs[1], other.memory.outputs[1], 1e-12)


@pytest.mark.parametrize("at_once", [3, 2048])
@pytest.mark.parametrize("config", [PLAIN, TANH, BOTH_WAYS, CLIPPED], ids=["lstm", "tanh", "both ways", "clipped"])
def test_inference_equals_the_forward_pass(
    config: RecurrentConfig, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PIECES_AT_ONCE, "cpu", at_once)
    encoder = redrawn(Recurrent(config), torch.float64)
    batch = ragged_batch(config, lengths=(2, 7, 8, 20))
    assert batch.lengths is not None
    with torch.no_grad():
        expected = encoder(batch)
    found = build_inference_encoder(encoder)(PackedRows(batch.pieces[real(batch)], None, batch.lengths.tolist()), "all")
    for layer, vectors in found.items():
        assert_close(vectors, expected[layer][real(batch)], 1e-12)


# --- the output -------------------------------------------------------------------------------------------------------


def test_a_tied_output_shares_the_table_and_must_fit() -> None:
    bundle = new_bundle(FAMILY, PLAIN.replace(top_width=12), ["causal"])
    assert bundle.outputs["causal"].table is bundle.encoder.piece_table()
    assert bundle.config.widths == (12, 10, 12)
    with pytest.raises(ModelError, match="12 wide and the top layer 10"):
        new_bundle(FAMILY, PLAIN, ["causal"])
    own = new_bundle(FAMILY, PLAIN, ["causal"], tied=False)
    assert own.outputs["causal"].table.shape == (99, 10)
    with pytest.raises(ModelError, match="reads one way"):
        new_bundle(FAMILY, BOTH_WAYS, ["causal"])


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": "grue"}, "no cell 'grue'"),
        ({"cells": "tanh", "inner_width": 4}, "'tanh' have no projection"),
        ({"projection_clip": 3.0}, "needs a projection"),
        ({"skip": True, "top_width": 4}, "Skip connections need layers of one width"),
        ({"filter_widths": (1, 2), "filter_counts": (4,)}, "2 kinds of filter and 'filter_counts' 1"),
        ({"filter_widths": (60,), "filter_counts": (4,)}, "spans 60 characters"),
        ({"filter_activation": "relo"}, "Did you mean 'relu'"),
        ({"width": 0}, "'width' of a recurrent encoder must be a whole number from 1 on. Got 0"),
        ({"width": 2.5}, "Got 2.5"),
        ({"n_layers": True}, "Got True"),
        ({"filter_widths": (0,), "filter_counts": (4,)}, "'filter_widths' must be whole numbers"),
        ({"cell_clip": -3}, "'cell_clip' must be a number above 0"),
        ({"dropout_rate": 1.0}, "'dropout_rate' must be a number from 0 to below 1"),
        ({"forget_bias": "one"}, "'forget_bias' must be a number"),
        ({"reads": "sideways"}, "forwards, backwards or both. Got 'sideways'"),
        ({"reads": "both"}, "reads both cannot have memory 'state'"),
        ({"memory": "cache"}, "cannot have memory 'cache'"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        PLAIN.replace(**changes)


def test_what_it_cannot_read_is_refused() -> None:
    encoder = Recurrent(PLAIN)
    pieces = torch.tensor([[1, 2]])
    with pytest.raises(ModelError, match="has a targets"):
        encoder(Batch(pieces, targets=pieces))
    with pytest.raises(ModelError, match="of 2 rows and the batch of 1"):
        encoder(Batch(pieces), memory=encoder.new_memory(2))
    both = Recurrent(BOTH_WAYS)
    with pytest.raises(ModelError, match="memory 'none' has none to make"):
        both.new_memory(1)
    with pytest.raises(ModelError, match="with memory 'none' was given a State"):
        both(Batch(pieces), memory=encoder.new_memory(1))


def test_without_layers_there_is_no_direction() -> None:
    config = PLAIN.replace(n_layers=0)
    assert (config.direction, config.widths) == ("none", (12,))
    assert Recurrent(config)(Batch(torch.tensor([[1, 2]]))).layers.keys() == {0}
    assert TwoWayConfig(n_pieces=9, token_width=3, width=4, n_layers=2).widths == (6, 8, 8)
    assert TwoWayConfig(n_pieces=9, token_width=3, width=4, n_layers=1).matrix_weights == 2 * 4 * 4 * (3 + 4)
