"""Rule 9: every family equals its reference, loaded with the reference's own weights.

All layers, attentions, logits, losses and gradients; ragged batches with padding; both attention paths; float64 to
1e-10 and fp32 to 1e-5 of the largest value of the tensor compared.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from conformance.cases import REFERENCED
from polyseme.convert import conversion_table as table
from polyseme.convert.family import Family
from polyseme.encoders.inference import FlatRows, freeze
from references import Pair, ask, assert_close, by_stack, make_pair, our_stacks, ragged_batch, real

PRECISIONS = {torch.float64: 1e-10, torch.float32: 1e-5}
ARCHITECTURES = [(family, name) for family in REFERENCED.values() for name, _ in family.architectures]


def named(value: Any) -> str | None:
    return value.name if isinstance(value, Family) else str(value)


def in_precision(pair: Pair, dtype: torch.dtype) -> Pair:
    return Pair(copy.deepcopy(pair.reference).to(dtype), copy.deepcopy(pair.ours).to(dtype), pair.found)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
@pytest.mark.parametrize("family", REFERENCED.values(), ids=named)
def test_every_layer_equals_the_reference(family: Family, eager: bool, dtype: torch.dtype) -> None:
    pair = in_precision(make_pair(family, family.architectures[-1][0]), dtype)
    batch = ragged_batch(family.tiny())
    for stack in (pair.ours.encoder, pair.ours.decoder):
        if stack is not None:
            stack.eager = eager
    with torch.no_grad():
        their_stacks = by_stack(ask(pair.reference, batch, output_hidden_states=True), "hidden_states")
        stacks = our_stacks(pair.ours, batch)
    for ours, theirs in zip(stacks, their_stacks, strict=True):
        assert ours.depth == len(theirs) - 1
        for number in range(ours.depth + 1):
            assert_close(ours[number][real(batch)], theirs[number][real(batch)], PRECISIONS[dtype])


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", REFERENCED.values(), ids=named)
def test_attentions_equal_the_reference(family: Family, dtype: torch.dtype) -> None:
    pair = in_precision(make_pair(family, family.architectures[-1][0]), dtype)
    batch = ragged_batch(family.tiny())
    with torch.no_grad():
        result = ask(pair.reference, batch, output_attentions=True)
        stacks = our_stacks(pair.ours, batch, attentions=True)
    ours = [states.attentions["self"] for states in stacks]
    theirs = by_stack(result, "attentions")
    if pair.ours.decoder is not None:
        ours.append(stacks[-1].attentions["cross"])
        theirs.append(result.cross_attentions)
    for our_stack, their_stack in zip(ours, theirs, strict=True):
        for our_layer, their_layer in zip(our_stack, their_stack, strict=True):
            queries = real(batch)[:, None, :, None].expand_as(our_layer)
            assert_close(our_layer[queries], their_layer[queries], PRECISIONS[dtype])


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", REFERENCED.values(), ids=named)
def test_flat_inference_equals_the_forward_pass(family: Family, dtype: torch.dtype) -> None:
    encoder = in_precision(make_pair(family, family.architectures[-1][0]), dtype).ours.encoder
    batch = ragged_batch(family.tiny(), lengths=(3, 3, 7, 11, 11, 11))
    assert batch.lengths is not None
    with torch.no_grad():
        expected = encoder(batch)
    keep = real(batch)
    segments = None if batch.segments is None else batch.segments[keep]
    rows = FlatRows(batch.pieces[keep], segments, batch.lengths.tolist())
    for settled in (False, True):
        frozen = freeze(encoder)
        if settled:
            frozen.settle()
        found = frozen(rows, "all")
        assert sorted(found) == list(range(expected.depth + 1))
        for number, layer in found.items():
            assert_close(layer, expected[number][keep], PRECISIONS[dtype])


def our_logits(pair: Pair, batch: Any) -> dict[str, torch.Tensor]:
    """What each output says: logits up to the constant a softmax does not see."""
    states = our_stacks(pair.ours, batch, layers=[-1])[-1][-1]
    said: dict[str, torch.Tensor] = {}
    for name, output in pair.ours.outputs.items():
        if name == "pooled":
            said[name] = output(states[:, 0])
        elif name == "next":
            said[name] = output.log_probs(pair.ours.outputs["pooled"](states[:, 0]))
        elif name == "replaced":
            said[name] = output.logits(states)
        else:
            said[name] = output.log_probs(states.flatten(0, 1)).unflatten(0, states.shape[:2])
    return said


def their_logits(result: Any) -> dict[str, torch.Tensor]:
    said: dict[str, torch.Tensor] = {}
    for name in ("prediction_logits", "seq_relationship_logits", "sop_logits", "logits", "pooler_output"):
        value = getattr(result, name, None)
        if value is not None:
            said[name] = value
    return said


THEIR_NAMES = {
    "pooled": ("pooler_output",),
    "masked": ("prediction_logits", "logits"),
    "next": ("seq_relationship_logits", "sop_logits", "logits"),
    "replaced": ("logits",),
    "causal": ("logits",),
    "permuted": ("logits",),
}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("family", "architecture"), ARCHITECTURES, ids=named)
def test_outputs_equal_the_reference(family: Family, architecture: str, dtype: torch.dtype) -> None:
    pair = in_precision(make_pair(family, architecture), dtype)
    expected_outputs = dict(family.architectures)[architecture]
    assert expected_outputs <= set(pair.ours.outputs)
    batch = ragged_batch(family.tiny())
    with torch.no_grad():
        theirs = their_logits(ask(pair.reference, batch))
        ours = our_logits(pair, batch)
    compared = 0
    for name, logits in ours.items():
        candidates = [theirs[each] for each in THEIR_NAMES[name] if each in theirs]
        if not candidates and (name == "pooled" or name not in expected_outputs):
            continue  # the reference's class has it inside and does not return it, or has no tensors of its own for it
        expected = candidates[0]
        if name in ("masked", "next", "causal", "permuted"):
            expected = expected.log_softmax(-1)
        if name in ("masked", "replaced", "causal", "permuted"):
            logits, expected = logits[real(batch)], expected[real(batch)]
        assert_close(logits, expected, PRECISIONS[dtype])
        compared += 1
    assert compared >= len(expected_outputs - {"pooled"})


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(
    ("family", "architecture"),
    [
        (family, name)
        for family in REFERENCED.values()
        for name, outputs in family.architectures
        if outputs & {"masked", "replaced", "causal", "permuted"}
    ],
    ids=named,
)
def test_losses_and_gradients_equal_the_reference(family: Family, architecture: str, dtype: torch.dtype) -> None:
    """The gradient of every parameter goes through the conversion table, backwards, and is compared there."""
    pair = in_precision(make_pair(family, architecture), dtype)
    batch = ragged_batch(family.tiny())
    generator = torch.Generator().manual_seed(3)
    n_rows, longest = batch.pieces.shape
    outputs = dict(family.architectures)[architecture]
    states = our_stacks(pair.ours, batch, layers=[-1])[-1][-1]
    chosen = real(batch) & (torch.rand(n_rows, longest, generator=generator) < 0.6)
    if "replaced" in outputs:
        labels = torch.randint(0, 2, (n_rows, longest), generator=generator)
        ours = pair.ours.outputs["replaced"].loss(states[real(batch)], labels[real(batch)]).mean()
        logits = ask(pair.reference, batch).logits  # its own loss rounds the labels' product to float32
        theirs = F.binary_cross_entropy_with_logits(logits[real(batch)], labels[real(batch)].to(dtype))
    else:
        labels = torch.randint(0, family.tiny().n_pieces, (n_rows, longest), generator=generator)
        [output] = outputs & {"masked", "causal", "permuted"}
        ours = pair.ours.outputs[output].loss(states[chosen], labels[chosen]).mean()
        result = ask(pair.reference, batch)
        logits = their_logits(result)
        logits = logits.get("prediction_logits", logits.get("logits"))
        theirs = F.cross_entropy(logits[chosen], labels[chosen])
        if "next" in outputs:
            follows = torch.randint(0, 2, (n_rows,), generator=generator)
            pooled = pair.ours.outputs["pooled"](states[:, 0])
            ours = ours + pair.ours.outputs["next"].loss(pooled, follows).mean()
            said = their_logits(result)
            theirs = theirs + F.cross_entropy(said.get("seq_relationship_logits", said.get("sop_logits")), follows)
    assert_close(ours, theirs, PRECISIONS[dtype])

    ours.backward()
    theirs.backward()
    gradients = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for name, tensor in (*pair.ours.named_parameters(), *pair.ours.named_buffers())
    }
    rules = family.table(family.tiny(), True)
    converted = table.write(rules, gradients, list(pair.ours.outputs), prefix=True)
    other_name = {
        alias.theirs.replace("{p}", rules.prefix): alias.same_as.replace("{p}", rules.prefix) for alias in rules.aliases
    }
    expected = {
        other_name.get(name, name): each.grad
        for name, each in pair.reference.named_parameters()
        if each.grad is not None
    }
    largest = max(float(each.abs().max()) for each in expected.values())
    assert expected
    assert set(expected) <= set(converted)
    for name, gradient in expected.items():
        assert_close(converted[name], gradient, PRECISIONS[dtype], largest)
