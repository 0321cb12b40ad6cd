"""Rule 9: every family equals its reference, loaded with the reference's own weights.

All layers, attentions, logits, losses and gradients; ragged batches with padding; both attention paths; in float64 and
in fp32, as close as `tolerance` asks.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from conformance.cases import REFERENCED
from convert.comparing import THEIR_NAMES
from polyseme.bundle import Bundle
from polyseme.convert import conversion_table as table
from polyseme.convert.family import Family
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.types import Batch
from references import ask, by_stack, make_pair, our_stacks, ragged_batch, real
from tolerance import expect, expect_together

PRECISIONS = (torch.float64, torch.float32)
ARCHITECTURES = [(family, name) for family in REFERENCED.values() for name, outputs in family.architectures if outputs]


def named(value: Any) -> str | None:
    return value.name if isinstance(value, Family) else str(value)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
@pytest.mark.parametrize("family", REFERENCED.values(), ids=named)
def test_every_layer_equals_the_reference(family: Family, eager: bool, dtype: torch.dtype) -> None:
    pair = make_pair(family, family.architectures[-1][0])
    batch = ragged_batch(family.tiny())

    def layers(reference: Any) -> dict[tuple[int, int], torch.Tensor]:
        stacks = by_stack(ask(reference, batch, output_hidden_states=True), "hidden_states")
        return {(i, n): layer[real(batch)] for i, stack in enumerate(stacks) for n, layer in enumerate(stack)}

    ours = pair.ours.to(dtype)
    for stack in (ours.encoder, ours.decoder):
        if stack is not None:
            stack.eager = eager
    with torch.no_grad():
        expected = expect(pair.reference, layers, dtype)
        stacks = our_stacks(ours, batch)
    assert [(i, n) for i, states in enumerate(stacks) for n in range(states.depth + 1)] == list(expected)
    for (i, number), layer in expected.items():
        layer.check(stacks[i][number][real(batch)])


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", REFERENCED.values(), ids=named)
def test_attentions_equal_the_reference(family: Family, dtype: torch.dtype) -> None:
    pair = make_pair(family, family.architectures[-1][0])
    batch = ragged_batch(family.tiny())

    def by_layer(stacks: list[Any]) -> dict[tuple[int, int], torch.Tensor]:
        queries = real(batch)[:, None, :, None]
        return {
            (i, n): layer[queries.expand_as(layer)] for i, stack in enumerate(stacks) for n, layer in enumerate(stack)
        }

    def attentions(reference: Any) -> dict[tuple[int, int], torch.Tensor]:
        result = ask(reference, batch, output_attentions=True)
        stacks = by_stack(result, "attentions")
        return by_layer(stacks if pair.ours.decoder is None else [*stacks, result.cross_attentions])

    with torch.no_grad():
        expected = expect(pair.reference, attentions, dtype)
        stacks = our_stacks(pair.ours.to(dtype), batch, attentions=True)
    kinds = [states.attentions["self"] for states in stacks]
    if pair.ours.decoder is not None:
        kinds.append(stacks[-1].attentions["cross"])
    ours = by_layer(kinds)
    assert ours.keys() == expected.keys()
    for place, layer in expected.items():
        layer.check(ours[place])


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", REFERENCED.values(), ids=named)
def test_flat_inference_equals_the_forward_pass(family: Family, dtype: torch.dtype) -> None:
    encoder = make_pair(family, family.architectures[-1][0]).ours.encoder
    batch = ragged_batch(family.tiny(), lengths=(3, 3, 7, 11, 11, 11))
    assert batch.lengths is not None
    keep = real(batch)

    def layers(encoder: Any) -> dict[int, torch.Tensor]:
        states = encoder(batch)
        return {number: states[number][keep] for number in range(states.depth + 1)}

    with torch.no_grad():
        expected = expect(encoder, layers, dtype)
    encoder.to(dtype)
    segments = None if batch.segments is None else batch.segments[keep]
    rows = PackedRows(batch.pieces[keep], segments, batch.lengths.tolist())
    for settled in (False, True):
        inference = build_inference_encoder(encoder)
        if settled:
            inference.prepare()
        found = inference(rows, "all")
        assert sorted(found) == list(expected)
        for number, layer in found.items():
            expected[number].check(layer)


def our_logits(ours: Bundle, batch: Batch) -> dict[str, torch.Tensor]:
    """What each output returns: logits up to the constant that a softmax does not see."""
    states = our_stacks(ours, batch, layers=[-1])[-1][-1]
    logits: dict[str, torch.Tensor] = {}
    for name, output in ours.outputs.items():
        if name == "pooled":
            logits[name] = output(states[:, 0])
        elif name == "next":
            logits[name] = output.log_probs(ours.outputs["pooled"](states[:, 0]))
        elif name == "replaced":
            logits[name] = output.logits(states)[real(batch)]
        else:
            logits[name] = output.log_probs(states[real(batch)])
    return logits


def their_logits(result: Any, output: str) -> torch.Tensor | None:
    """The same output of the reference; None if its class has it inside and does not return it."""
    return next((result[name] for name in THEIR_NAMES[output] if result.get(name) is not None), None)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("family", "architecture"), ARCHITECTURES, ids=named)
def test_outputs_equal_the_reference(family: Family, architecture: str, dtype: torch.dtype) -> None:
    pair = make_pair(family, architecture)
    outputs = dict(family.architectures)[architecture]
    assert outputs <= set(pair.ours.outputs)
    batch = ragged_batch(family.tiny())

    def logits(reference: Any) -> dict[str, torch.Tensor]:
        result = ask(reference, batch)
        found = {}
        for name in pair.ours.outputs:
            theirs = their_logits(result, name)
            if theirs is None:
                continue
            if name in ("masked", "next", "causal", "permuted"):
                theirs = theirs.log_softmax(-1)
            if name in ("masked", "replaced", "causal", "permuted"):
                theirs = theirs[real(batch)]
            found[name] = theirs
        return found

    with torch.no_grad():
        expected = expect(pair.reference, logits, dtype)
        ours = our_logits(pair.ours.to(dtype), batch)
    assert set(expected) >= outputs - {"pooled"}
    for name, each in expected.items():
        each.check(ours[name])


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
    pair = make_pair(family, architecture)
    batch = ragged_batch(family.tiny())
    generator = torch.Generator().manual_seed(3)
    n_rows, longest = batch.pieces.shape
    outputs = dict(family.architectures)[architecture]
    [output] = outputs & {"masked", "replaced", "causal", "permuted"}
    n_labels = 2 if output == "replaced" else family.tiny().n_pieces
    chosen = real(batch) & (torch.rand(n_rows, longest, generator=generator) < 0.6)
    labels = torch.randint(0, n_labels, (n_rows, longest), generator=generator)[chosen]
    follows = torch.randint(0, 2, (n_rows,), generator=generator)

    def their_loss(reference: Any) -> dict[str, torch.Tensor]:
        result = ask(reference, batch)
        logits = their_logits(result, output)
        assert logits is not None
        logits = logits[chosen]
        if output == "replaced":  # its own loss rounds the labels' product to float32
            loss = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        else:
            loss = F.cross_entropy(logits, labels)
        if "next" in outputs:
            loss = loss + F.cross_entropy(their_logits(result, "next"), follows)
        return {"loss": loss, "logits": logits}

    rules = family.table(family.tiny(), True)
    other_name = {
        alias.theirs.replace("{p}", rules.prefix): alias.same_as.replace("{p}", rules.prefix) for alias in rules.aliases
    }

    def their_gradients(reference: Any) -> dict[str, torch.Tensor]:
        their_loss(reference)["loss"].backward()
        return {
            other_name.get(name, name): each.grad
            for name, each in reference.named_parameters()
            if each.grad is not None
        }

    ours = pair.ours.to(dtype)
    states = our_stacks(ours, batch, layers=[-1])[-1][-1]
    loss = ours.outputs[output].loss(states[chosen], labels).mean()
    if "next" in outputs:
        loss = loss + ours.outputs["next"].loss(ours.outputs["pooled"](states[:, 0]), follows).mean()
    expect(pair.reference, their_loss, dtype)["loss"].check(loss)

    loss.backward()
    gradients = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for name, tensor in (*ours.named_parameters(), *ours.named_buffers())
    }
    converted = table.write(rules, gradients, list(ours.outputs), prefix=True)
    expected = expect_together(pair.reference, their_gradients, dtype)
    assert set(expected) <= set(converted)
    for name, gradient in expected.items():
        gradient.check(converted[name])
