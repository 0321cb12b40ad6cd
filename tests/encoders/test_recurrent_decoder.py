"""Recurrent decoders equal the equations of the papers, written out, with memory and without, whatever the padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.recurrent_config import RecurrentConfig
from polyseme.encoders.recurrent_decoder import RecurrentDecoder
from polyseme.errors import ModelError
from polyseme.parts.masks import Causal
from polyseme.parts.recurrence import Reader
from polyseme.types import Batch, States
from references import assert_close, real
from spread import SPREAD

BASE = RecurrentConfig(
    n_pieces=40, token_width=6, width=5, n_layers=2, reads="both", memory="none", decoder_layers=2, decoder_width=8
)
SOURCE_LENGTHS, TARGET_LENGTHS = (4, 7, 1), (6, 2, 5)

KINDS: dict[str, dict[str, Any]] = {
    "last state": {"decoder_attention": "none"},
    "dot": {"decoder_attention": "dot", "decoder_width": 10},
    "general": {"decoder_attention": "general", "cells": "gru"},
    "additive": {"decoder_attention": "additive"},
    "input feeding": {"decoder_attention": "general", "decoder_feeding": "attentional"},
    "context fed": {"decoder_attention": "additive", "decoder_feeding": "context", "cells": "gru", "decoder_layers": 1},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def decoder(kind: str, **changes: Any) -> RecurrentDecoder:
    """One in float64, with weights of a wide spread."""
    config = BASE.replace(**{**KINDS[kind], **changes}).decoder
    made = build_encoder(config)
    generator = torch.Generator().manual_seed(2)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=SPREAD, generator=generator)
    assert isinstance(made, RecurrentDecoder)
    return made.double().eval()


def source_and_target(width: int = 10) -> Batch:
    """Ragged on both sides; padding is of numbers that would show."""
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(3, 7, width, dtype=torch.float64, generator=generator)
    pieces = torch.randint(5, 40, (3, 6), generator=generator)
    source = States({2: states}, torch.tensor(SOURCE_LENGTHS), 2)
    return Batch(pieces, torch.tensor(TARGET_LENGTHS), source=source)


# --- the equations ----------------------------------------------------------------------------------------------------


def score(made: RecurrentDecoder, query: Tensor, state: Tensor) -> Tensor:
    """How much a query asks for one state of the source."""
    weights = dict(made.attention.named_parameters())  # type: ignore[union-attr]
    kind = made.config.attention
    if kind == "dot":
        return query @ state
    of_source = weights["score.of_source.weight"]
    if kind == "general":
        return query @ of_source @ state
    inner = weights["score.of_query.weight"] @ query + of_source @ state
    return weights["score.direction.weight"][0] @ torch.tanh(inner)


def context(made: RecurrentDecoder, query: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    exponents = torch.exp(torch.stack([score(made, query, state) for state in source]))
    weights = exponents / exponents.sum()
    return sum(weight * state for weight, state in zip(weights, source, strict=True)), weights  # type: ignore[return-value]


def cell(reader: Reader, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Hochreiter and Schmidhuber's with a forget gate, or Cho's."""
    if c is None:
        (r, z, n), (own_r, own_z, own_n) = (
            (weight @ vector + bias).chunk(3)
            for weight, vector, bias in ((reader.input, x, reader.bias), (reader.recurrent, h, reader.recurrent_bias))
        )
        update = torch.sigmoid(z + own_z)
        return (1 - update) * torch.tanh(n + torch.sigmoid(r + own_r) * own_n) + update * h, None
    i, f, g, o = (reader.input @ x + reader.recurrent @ h + reader.bias).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def by_equations(made: RecurrentDecoder, pieces: Tensor, source: Tensor) -> tuple[list[list[Tensor]], list[Tensor]]:
    """One row, piece by piece: the states of every layer from 1 on, and the weights of attention."""
    config = made.config
    readers: list[Reader] = [layer[0] for layer in made.stack.layers]  # type: ignore[index, misc]
    half = config.source_width // 2
    last = torch.cat([source[-1, :half], source[0, half:]])
    first = made.bridge.weight @ last + made.bridge.bias
    h = [torch.tanh(each) for each in first.split([*config.state_widths, *config.cell_widths])][: len(readers)]
    c: list[Any] = list(first.split([*config.state_widths, *config.cell_widths])[len(readers) :]) or [None] * len(h)
    fed = torch.zeros(config.token_width, dtype=torch.float64)
    layers: list[list[Tensor]] = []
    attended: list[Tensor] = []
    for piece in pieces:
        x = made.stack.tokens.table[piece]  # type: ignore[index]
        if config.feeding == "context":
            found, weights = context(made, h[-1], source)
            x = torch.cat([x, found])
        elif config.feeding == "attentional":
            x = torch.cat([x, fed])
        for number, reader in enumerate(readers):
            h[number], c[number] = cell(reader, x, h[number], c[number])
            x = h[number]
        states = list(h)
        if config.attention != "none":
            if config.feeding != "context":
                found, weights = context(made, h[-1], source)
            fed = torch.tanh(made.combine.weight @ torch.cat([found, h[-1]]))
            states.append(fed)
            attended.append(weights)
        layers.append(states)
    return layers, attended


@every_kind
def test_the_papers_equations(kind: str) -> None:
    """States, attentions, the loss and all its gradients, the source's too."""
    made, batch = decoder(kind), source_and_target()
    assert batch.source is not None
    source = batch.source[-1].requires_grad_()
    found = made(batch, attentions=True)
    table = torch.randn(40, made.config.widths[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = batch.pieces.flip(0)
    expected_loss, loss = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for row, (n_source, n_target) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        layers, attended = by_equations(made, batch.pieces[row, :n_target], source[row, :n_source])
        for place, states in enumerate(layers):
            for number, state in enumerate(states, start=1):
                assert_close(found[number][row, place], state, 1e-12)
            if attended:
                weights = found.attentions["cross"][0][row, 0, place]
                assert_close(weights[:n_source], attended[place], 1e-12)
                assert not weights[n_source:].any()
            expected_loss = expected_loss - (table @ states[-1]).log_softmax(0)[targets[row, place]]
            loss = loss - (table @ found[-1][row, place]).log_softmax(0)[targets[row, place]]
    assert_close(loss, expected_loss, 1e-12)
    assert found.depth == made.config.depth == len(layers[0])
    assert ("cross" in found.attentions) == (made.config.attention != "none")
    learned = [source, *made.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(loss, learned), torch.autograd.grad(expected_loss, learned), strict=True
    ):
        assert ours.any()
        assert_close(ours, theirs, 1e-10)


# --- memory, padding, rows --------------------------------------------------------------------------------------------


@every_kind
def test_piece_by_piece_with_its_memory_a_decoder_says_the_same(kind: str) -> None:
    """A source is read once; rows are picked, as a beam does; ragged beginnings end at their last real piece."""
    made, batch = decoder(kind), source_and_target()
    full = dataclasses.replace(batch, lengths=None)
    with torch.no_grad():
        whole = made(full)
        ragged = dataclasses.replace(batch, pieces=batch.pieces[:, :3], lengths=torch.tensor([3, 1, 2]))
        states = made(ragged, memory=made.new_memory(3))
        for number in range(whole.depth + 1):
            assert_close(states[number][real(ragged)], whole[number][:, :3][real(ragged)], 1e-12)
        assert states.memory is not None
        assert states.memory.lengths.tolist() == [3, 1, 2]
        picked = [2, 0, 2]
        memory = states.memory.select(torch.tensor(picked))
        for step in range(3):
            at = torch.tensor([2 + step, 3 + step, 2 + step])
            states = made(Batch(batch.pieces[picked, at][:, None]), attentions=True, memory=memory)
            memory = states.memory
            for number in range(whole.depth + 1):
                assert_close(states[number][:, 0], whole[number][picked, at], 1e-12)


@every_kind
def test_padding_and_neighbors_change_nothing(kind: str) -> None:
    made, batch = decoder(kind), source_and_target()
    assert batch.source is not None
    with torch.no_grad():
        together = made(batch)
        for row, (n_source, n_target) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
            source = States({2: batch.source[-1][row : row + 1, :n_source]}, None, 2)
            alone = made(Batch(batch.pieces[row : row + 1, :n_target], source=source))
            for number in range(together.depth + 1):
                assert_close(alone[number][0], together[number][row, :n_target], 1e-12)


@every_kind
def test_layers_and_groups_of_parameters(kind: str) -> None:
    made, batch = decoder(kind), source_and_target()
    groups = made.layer_groups()
    grouped = [id(parameter) for group in groups for parameter in group]
    assert sorted(grouped) == sorted(id(parameter) for parameter in made.parameters())
    states = made(batch)
    lowest = [states.depth + 1] * len(groups)
    for number in reversed(range(states.depth + 1)):
        assert states[number].shape[-1] == made.config.widths[number]
        assert torch.equal(made(batch, layers=[number])[number], states[number])
        for index, group in enumerate(groups):
            moved = torch.autograd.grad(states[number].square().sum(), group, allow_unused=True, retain_graph=True)
            if any(gradient is not None and gradient.any() for gradient in moved):
                lowest[index] = number
    assert lowest == sorted(lowest)


@pytest.mark.parametrize("kind", ["last state", "general", "additive"])
def test_without_feeding_a_target_is_read_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("read step by step")

    monkeypatch.setattr(Reader, "_step_by_step", never)
    decoder(kind)(source_and_target())[-1].sum().backward()


@every_kind
def test_dropout_and_half_precision(kind: str) -> None:
    made, batch = decoder(kind, dropout_rate=0.2), source_and_target()
    assert batch.source is not None
    with torch.no_grad():
        made.train()
        assert not torch.equal(made(batch)[-1], made(batch)[-1])
        made = made.eval().bfloat16()
        halved = dataclasses.replace(batch, source=States({2: batch.source[-1].bfloat16()}, batch.source.lengths, 2))
        found = made(halved, memory=made.new_memory(3))
        assert {each.dtype for each in found.layers.values()} == {torch.bfloat16}
        expected = made.double()(dataclasses.replace(batch, source=_doubled(halved.source)))
    assert_close(found[-1][real(batch)], expected[-1][real(batch)], 0.05)


def _doubled(source: States | None) -> States:
    assert source is not None
    return States({2: source[-1].double()}, source.lengths, 2)


@every_kind
def test_under_autocast(kind: str) -> None:
    """As training in half precision runs it, forwards, backwards and with memory."""
    made, batch = decoder(kind).float(), source_and_target()
    assert batch.source is not None
    batch.source = States({2: batch.source[-1].float()}, batch.source.lengths, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = made(batch)
        states = made(Batch(batch.pieces[:, :1], source=batch.source), memory=made.new_memory(3))
        states = made(Batch(batch.pieces[:, 1:2]), memory=states.memory)
    found[-1].float().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())
    assert_close(states[-1][:, 0], found[-1][:, 1], 0.05)


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_what_a_decoder_cannot_read_is_refused() -> None:
    made, batch = decoder("general"), source_and_target()
    for changes, said in (
        ({"source": None}, "reads a source, and the batch has none"),
        ({"mask": Causal()}, "has a mask"),
        ({"source_mask": Causal()}, "has a source_mask"),
        ({"targets": torch.zeros(3, 1)}, "has a targets"),
    ):
        with pytest.raises(ModelError, match=said):
            made(dataclasses.replace(batch, **changes))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="reads a source"):
        made(dataclasses.replace(batch, source=None), memory=made.new_memory(3))
    with pytest.raises(ModelError, match="memory is of 2 rows and the batch of 3"):
        made(batch, memory=made.new_memory(2))
    with pytest.raises(ModelError, match="given a State as its memory"):
        made(batch, memory=made.stack.new_memory(3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decoder_attention": "aditive"}, "no attention 'aditive'.*Did you mean 'additive'"),
        ({"decoder_feeding": "all"}, "no feeding 'all'"),
        ({"decoder_attention": "none", "decoder_feeding": "context"}, "nothing to feed back"),
        ({"decoder_attention": "dot"}, "as wide as its source. Got 8 and 10"),
        ({"decoder_layers": 0}, "at least one layer"),
        ({"decoder_width": -1}, "whole number from 1 on"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        BASE.replace(**changes)


def test_operations_are_those_of_the_matrices() -> None:
    """Per piece every matrix once, but for the table and what a source's pieces meet."""
    for kind in KINDS:
        made = decoder(kind)
        names = ("table", "bridge", "of_source", "direction")
        matrices = {name: each for name, each in made.named_parameters() if each.dim() > 1}
        met = sum(each.numel() for name, each in matrices.items() if not any(part in name for part in names))
        assert made.config.matrix_weights == met
        of_source = sum(each.numel() for name, each in matrices.items() if "of_source" in name)
        pairs = 0 if kind == "last state" else made.config.state_widths[-1] + made.config.source_width
        assert made.config.source_flops(7, 3) == 2 * 7 * of_source + 2 * 7 * 3 * pairs
