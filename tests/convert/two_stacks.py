"""A model of two stacks beside its reference, with a source and a target of their own lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.convert import conversion_table as table
from polyseme.types import Batch, States
from references import Pair, ragged_batch, real
from tolerance import expect, expect_together

PRECISIONS = (torch.float64, torch.float32)


def source_and_target(config: Any) -> tuple[Batch, Batch]:
    """Ragged on both sides, and longer than the far buckets."""
    source = ragged_batch(config, seed=1, lengths=(17, 1, 6))
    return source, ragged_batch(config, seed=2, lengths=(5, 14, 9))


def read_and_write(bundle: Bundle, source: Batch, target: Batch, **options: Any) -> tuple[States, States]:
    """The states of both stacks."""
    assert bundle.decoder is not None
    read = bundle.encoder(source, **options)
    return read, bundle.decoder(dataclasses.replace(target, source=read), **options)


def ask_both(reference: Any, source: Batch, target: Batch, **options: Any) -> Any:
    return reference(
        input_ids=source.pieces,
        attention_mask=real(source).long(),
        decoder_input_ids=target.pieces,
        decoder_attention_mask=real(target).long(),
        **options,
    )


def assert_both_sides_equal(pair: Pair, dtype: torch.dtype, *, tied: bool = True) -> None:
    """Layers, attentions, logits, the loss and all gradients, of a pair in float64 that is compared in `dtype`."""
    ours = pair.ours.to(dtype)
    source, target = source_and_target(ours.config)
    labels = torch.randint(5, ours.config.n_pieces, target.pieces.shape, generator=torch.Generator().manual_seed(3))

    def ask_all(reference: Any) -> dict[Any, Tensor]:
        theirs = ask_both(
            reference,
            source,
            target,
            output_hidden_states=True,
            output_attentions=True,
            labels=labels.masked_fill(~real(target), -100),
        )
        stacks = {
            "read": (theirs.encoder_hidden_states, source),
            "written": (theirs.decoder_hidden_states, target),
            "read by itself": (theirs.encoder_attentions, source),
            "written by itself": (theirs.decoder_attentions, target),
            "across": (theirs.cross_attentions, target),
        }
        by_layer = {(name, n): kept(x, batch) for name, (xs, batch) in stacks.items() for n, x in enumerate(xs)}
        return {**by_layer, "logits": theirs.logits[real(target)], "loss": theirs.loss}

    with torch.no_grad():
        expected = expect(pair.reference, ask_all, dtype)
    for attentions in (False, True):  # fused, and written out
        read, states = read_and_write(ours, source, target, attentions=attentions)
        stacks = {"read": (read, source), "written": (states, target)}
        layers = {(name, n): (each[n], batch) for name, (each, batch) in stacks.items() for n in range(each.depth + 1)}
        assert layers.keys() == {place for place in expected if place[0] in stacks}
        for place, (layer, batch) in layers.items():
            expected[place].check(kept(layer, batch))
    for name, weights, batch in (
        ("read by itself", read.attentions["self"], source),
        ("written by itself", states.attentions["self"], target),
        ("across", states.attentions["cross"], target),
    ):
        assert len(weights) == sum(place[0] == name for place in expected)
        for number, layer in enumerate(weights):
            expected[name, number].check(kept(layer, batch))

    top, output = states[-1][real(target)], ours.outputs["causal"]
    expected["logits"].check(output.logits(top))
    loss = output.loss(top, labels[real(target)]).mean()
    expected["loss"].check(loss)
    loss.backward()
    assert_same_gradients(pair, lambda reference: ask_all(reference)["loss"], dtype, tied=tied)


def kept(layer: Tensor, batch: Batch) -> Tensor:
    """States [R, T, D] or attentions [R, H, Tq, T], without the padding."""
    return layer[real(batch)] if layer.dim() == 3 else layer[real(batch)[:, None, :, None].expand_as(layer)]


def assert_same_gradients(
    pair: Pair, their_loss: Callable[[Any], Tensor], dtype: torch.dtype, *, tied: bool = True
) -> None:
    """Through the conversion table, backwards, of the largest of the whole model."""
    rules = pair.ours.family.table(pair.ours.config, tied)
    gradients = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for name, tensor in (*pair.ours.named_parameters(), *pair.ours.named_buffers())
    }
    converted = table.write(rules, gradients, list(pair.ours.outputs), prefix=True)

    def their_gradients(reference: Any) -> dict[str, Tensor]:
        their_loss(reference).backward()
        return {name: each.grad for name, each in reference.named_parameters() if each.grad is not None}

    for name, gradient in expect_together(pair.reference, their_gradients, dtype).items():
        gradient.check(converted[name])
