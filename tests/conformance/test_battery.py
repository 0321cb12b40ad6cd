"""What holds for every encoder: a new family is tested by being registered."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from conformance.cases import ENCODERS, REFERENCED, TRANSFORMERS, family_name, redrawn
from perturbation import drawing, who_sees_whom
from polyseme.bundle import Bundle, named_tensors, new_bundle
from polyseme.convert.conversion_table import read
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.encoders.encoder import Encoder, wanted_layers
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.errors import ModelError
from polyseme.types import Batch
from references import assert_close, our_stacks, ragged_batch, real, reference_class

every_encoder = pytest.mark.parametrize("name", ENCODERS)
every_transformer = pytest.mark.parametrize("name", TRANSFORMERS)
every_referenced = pytest.mark.parametrize("family", REFERENCED.values(), ids=family_name)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=family_name)

SAME = 1e-5
"""Rule 2, in fp32: of the layer's largest value."""


def rows_of(batch: Batch, rows: list[int], n_pieces: int | None = None) -> Batch:
    """Some rows of a batch in this order, cut after so many pieces."""
    assert batch.lengths is not None
    segments = None if batch.segments is None else batch.segments[rows, :n_pieces]
    return Batch(batch.pieces[rows, :n_pieces], batch.lengths[rows], segments)


def padded(batch: Batch, more: int) -> Batch:
    """The same rows with more padding, of pieces that would show."""
    pieces = torch.cat([batch.pieces, batch.pieces[:, :more].flip(0)], dim=1)
    segments = None if batch.segments is None else torch.cat([batch.segments, batch.segments[:, :more]], dim=1)
    return Batch(pieces, batch.lengths, segments)


# --- same word, same context, same vector ----------------------------------------------------------------------------


@every_encoder
def test_a_row_alone_is_the_row_in_a_batch(name: str) -> None:
    encoder = redrawn(ENCODERS[name]())
    batch = ragged_batch(encoder.config)
    assert batch.lengths is not None
    with torch.no_grad():
        together = encoder(batch)
        for row, length in enumerate(batch.lengths.tolist()):
            one = rows_of(batch, [row], length)
            alone = encoder(dataclasses.replace(one, lengths=None))
            for number in range(together.depth + 1):
                largest = float(together[number][real(batch)].abs().max())
                assert_close(alone[number][0], together[number][row, :length], SAME, largest)


@every_encoder
def test_order_and_padding_change_nothing(name: str) -> None:
    encoder = redrawn(ENCODERS[name]())
    batch = ragged_batch(encoder.config)
    order = [2, 0, 3, 1]
    with torch.no_grad():
        expected = encoder(batch)
        shuffled = encoder(rows_of(batch, order))
        wider = encoder(padded(batch, 5))
    longest = batch.pieces.shape[1]
    for number in range(expected.depth + 1):
        kept = expected[number][real(batch)]
        assert_close(wider[number][:, :longest][real(batch)], kept, SAME)
        assert_close(shuffled[number][[1, 3, 0, 2]][real(batch)], kept, SAME)


# --- who sees whom ---------------------------------------------------------------------------------------------------


SEEN = {
    "both": ["xxxx..", "xxxx..", "xxxx..", "xxxx.."],
    "two-way": ["xxxx..", "xxxx..", "xxxx..", "xxxx.."],
    "any-order": ["xxxx..", "xxxx..", "xxxx..", "xxxx.."],
    "causal": ["x.....", "xx....", "xxx...", "xxxx.."],
    "none": ["x.....", ".x....", "..x...", "...x.."],
    "backward half": ["xxxx..", ".xxx..", "..xx..", "...x.."],
}


@every_family
def test_a_piece_sees_the_real_pieces_on_the_sides_it_should_and_no_padding(family: Family) -> None:
    whole = redrawn(build_encoder(family.tiny()), torch.float64)
    pieces = ragged_batch(whole.config, lengths=(6,)).pieces
    expected = [(whole, SEEN[whole.config.direction])]
    if whole.config.direction == "two-way":
        expected += zip(whole.halves(), (SEEN["causal"], SEEN["backward half"]), strict=True)

    for encoder, seen in expected:

        def layer(number: int, encoder: Encoder = encoder) -> list[str]:
            def states_of(rows: Tensor) -> Tensor:
                return encoder(Batch(rows, torch.tensor([4]).expand(len(rows))), layers=[number])[number]

            return drawing(who_sees_whom(states_of, pieces, encoder.config.n_pieces)[:4])

        assert layer(0) == ["x.....", ".x....", "..x...", "...x.."]
        for number in range(1, encoder.config.depth + 1):
            assert layer(number) == seen


@every_transformer
def test_attentions_sum_to_one_over_what_is_seen(name: str) -> None:
    encoder = redrawn(ENCODERS[name](), torch.float64)
    batch = ragged_batch(encoder.config)
    with torch.no_grad():
        states = encoder(batch, attentions=True)
    keep = real(batch)
    masks = TRANSFORMERS[name].layer_masks
    assert len(states.attentions["self"]) == len(masks)
    distance = torch.arange(11)[:, None] - torch.arange(11)[None]
    shapes = {"all": distance < 99, "causal": distance >= 0, "band:3": (distance >= 0) & (distance < 3)}
    shapes["local:2"] = distance.abs() <= 2
    for weights, mask in zip(states.attentions["self"], masks, strict=True):
        seen = keep[:, None, :] & shapes[mask]
        queries = weights.transpose(1, 2)[keep]  # [N, H, S]
        allowed = seen[keep][:, None].expand_as(queries)
        assert (queries[allowed] > 0).all()
        assert not queries[~allowed].any()
        torch.testing.assert_close(queries.sum(-1), torch.ones_like(queries[..., 0]), rtol=0, atol=1e-12)


@every_referenced
def test_without_positions_the_encoder_is_equivariant(family: Family) -> None:
    """Pieces in another order give the same states in that order; besides masks, only positions know of order."""
    order = torch.tensor([4, 0, 2, 6, 1, 5, 3])
    whole = ragged_batch(family.tiny(), lengths=(7, 7))
    segments = None if whole.segments is None else whole.segments[:, order]
    for positions, equal in (("none", True), ("learned", False)):
        config = dataclasses.replace(TRANSFORMERS[family.name], positions=positions, masks=("all",))
        encoder = redrawn(build_encoder(config), torch.float64)
        with torch.no_grad():
            expected = encoder(dataclasses.replace(whole, lengths=None))
            found = encoder(Batch(whole.pieces[:, order], None, segments))
        for number in range(expected.depth + 1):
            difference = (found[number] - expected[number][:, order]).abs().max() / expected[number].abs().max()
            assert (difference < 1e-12) == equal


# --- layers ----------------------------------------------------------------------------------------------------------


@every_encoder
def test_layers_asked_for_are_the_ones_of_all(name: str) -> None:
    encoder = redrawn(ENCODERS[name]())
    batch = ragged_batch(encoder.config)
    depth = encoder.config.depth
    with torch.no_grad():
        everything = encoder(batch)
        assert sorted(everything.layers) == list(range(depth + 1))
        for asked in ([0], [-1], [min(1, depth), -1], [-depth - 1], [max(depth - 1, 0), 0]):
            states = encoder(batch, layers=asked)
            assert states.layers.keys() == wanted_layers(asked, depth)
            for layer in asked:
                assert torch.equal(states[layer], everything[layer])
    for number, width in enumerate(encoder.config.widths):
        assert everything[number].shape[-1] == width
    assert torch.equal(everything[-1], everything[depth])


@every_encoder
def test_a_layer_that_is_not_there_is_refused(name: str) -> None:
    encoder = ENCODERS[name]()
    depth = encoder.config.depth
    batch = ragged_batch(encoder.config)
    for layer in (depth + 1, -depth - 2):
        with pytest.raises(ModelError, match=f"layers 0 to {depth} "):
            encoder(batch, layers=[layer])


@every_transformer
def test_nothing_is_computed_above_the_highest_layer_asked_for(name: str) -> None:
    encoder = ENCODERS[name]()
    batch = ragged_batch(encoder.config)
    ran: list[nn.Module] = []
    for layer in encoder.modules():
        if isinstance(layer, TransformerLayer):
            layer.register_forward_hook(lambda module, *_: ran.append(module))
    for asked, n_run in (([0], 0), ([1], 1), ([0, 2], 2), ([-1], encoder.config.depth)):
        ran.clear()
        encoder(batch, layers=asked)
        assert len(ran) == n_run


# --- parameters ------------------------------------------------------------------------------------------------------


@every_encoder
def test_layer_groups_partition_the_parameters_from_bottom_to_top(name: str) -> None:
    """Each parameter once; the lowest layer that a group moves never falls from one group to the next."""
    encoder = redrawn(ENCODERS[name](), torch.float64)
    groups = encoder.layer_groups()
    grouped = [id(parameter) for group in groups for parameter in group]
    assert len(set(grouped)) == len(grouped)
    assert set(grouped) == {id(parameter) for parameter in encoder.parameters()}

    batch = ragged_batch(encoder.config)
    if encoder.config.direction == "any-order":
        batch.targets = torch.zeros(4, 1, dtype=torch.long)
    states = encoder(batch)
    lowest = [states.depth + 1] * len(groups)
    for number in reversed(range(states.depth + 1)):
        found = states[number].square().sum()
        if states.queries:
            found = found + states.queries[number].square().sum()
        for index, group in enumerate(groups):
            moved = torch.autograd.grad(found, group, allow_unused=True, retain_graph=True)
            if any(gradient is not None and gradient.any() for gradient in moved):
                lowest[index] = number
    assert lowest == sorted(lowest)
    assert lowest[0] == 0
    assert lowest[-1] <= states.depth


def whole_bundle(family: Family) -> Bundle:
    """Every output the family knows."""
    torch.manual_seed(5)
    return new_bundle(family, family.tiny(), family.outputs)


def every_loss(bundle: Bundle, batch: Batch) -> Tensor:
    """The sum of what all outputs have to say about arbitrary targets; of the states where there are none."""
    if bundle.config.direction == "any-order":
        batch.targets = torch.zeros(len(batch.pieces), 1, dtype=torch.long)
    top = our_stacks(bundle, batch)[-1]
    states = top[-1]
    first, kept = states[:, 0], states[real(batch)]
    total = states.new_zeros(()) if bundle.outputs else kept.square().sum()
    for queries in top.queries.values():
        total = total + queries.square().sum()
    for name, output in bundle.outputs.items():
        if name == "pooled":
            total = total + output(first).square().sum()
        elif name == "next":
            total = total + output.loss(bundle.outputs["pooled"](first), torch.arange(len(first)) % 2).sum()
        else:
            n_choices = 2 if name == "replaced" else bundle.config.n_pieces
            total = total + output.loss(kept, torch.arange(len(kept)) * 5 % n_choices).sum()
    return total


@every_family
def test_training_reaches_every_parameter(family: Family) -> None:
    bundle = whole_bundle(family).train()
    batch = ragged_batch(family.tiny())
    batch.pieces[0, 0] = family.tiny().n_pieces - 1  # the last piece of static vectors has a parameter of its own
    loss = every_loss(bundle, batch)
    assert loss.isfinite()
    loss.backward()
    for name, parameter in bundle.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@every_family
def test_training_drops_out_and_inference_does_not(family: Family) -> None:
    rates = ("dropout_rate", "attention_dropout_rate", "embedding_dropout_rate")
    none = {rate: 0.0 for rate in rates if hasattr(family.tiny(), rate)}
    batch = ragged_batch(family.tiny())
    for rate in none:
        encoder = build_encoder(family.tiny().replace(**{**none, rate: 0.1}))
        with torch.no_grad():
            encoder.train()
            assert not torch.equal(encoder(batch)[-1], encoder(batch)[-1])
            encoder.eval()
            assert torch.equal(encoder(batch)[-1], encoder(batch)[-1])


@every_referenced
def test_weights_are_first_drawn_as_the_reference_draws_them(family: Family) -> None:
    """Norms and biases begin alike; of the rest, spreads differ by no more than two samples of one spread do."""
    architecture = family.architectures[0][0]
    config = family.tiny()
    torch.manual_seed(3)
    made = reference_class(family, architecture)
    reference = made(made.config_class(**family.write_config(config)))
    theirs = read(family.table(config, True), reference.state_dict(), "the reference")
    ours = named_tensors(new_bundle(family, config, theirs.outputs))
    assert ours.keys() == theirs.tensors.keys()
    for name, drawn in ours.items():
        expected = theirs.tensors[name]
        spread = expected.std(correction=0)
        if spread == 0:
            assert torch.equal(drawn, expected), name
            continue
        # the spread of n normal numbers is off by a share of 1 / √2n, the ratio of two by 1 / √n; five times that
        error = math.log(float(drawn.std(correction=0) / spread))
        assert abs(error) < 5 / math.sqrt(expected.numel()), name


# --- half precision --------------------------------------------------------------------------------------------------


@every_family
def test_bfloat16_stays_close(family: Family) -> None:
    """Within 3e-2 of the layer's largest value, with weights as they are first drawn, rounded for both runs."""
    torch.manual_seed(4)
    encoder = build_encoder(family.tiny()).eval().bfloat16()
    batch = ragged_batch(family.tiny())
    with torch.no_grad():
        halved = encoder(batch)
        expected = copy.deepcopy(encoder).float()(batch)
    for number in range(expected.depth + 1):
        assert halved[number].dtype == torch.bfloat16
        assert_close(halved[number][real(batch)], expected[number][real(batch)], 3e-2)
