"""A model of two stacks beside its reference, with a source and a target of their own lengths."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from polyseme.bundle import Bundle
from polyseme.convert import conversion_table as table
from polyseme.types import Batch, States
from references import Pair, assert_close, ragged_batch, real

PRECISIONS = {torch.float64: 1e-10, torch.float32: 1e-5}


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
    """Layers, attentions, logits, the loss and all gradients."""
    tolerance = PRECISIONS[dtype]
    pair = Pair(copy.deepcopy(pair.reference).to(dtype), copy.deepcopy(pair.ours).to(dtype), pair.found)
    source, target = source_and_target(pair.ours.config)
    labels = torch.randint(
        5, pair.ours.config.n_pieces, target.pieces.shape, generator=torch.Generator().manual_seed(3)
    )
    theirs = ask_both(
        pair.reference,
        source,
        target,
        output_hidden_states=True,
        output_attentions=True,
        labels=labels.masked_fill(~real(target), -100),
    )
    for attentions in (False, True):  # fused, and written out
        read, states = read_and_write(pair.ours, source, target, attentions=attentions)
        for ours, layers, batch in (
            (read, theirs.encoder_hidden_states, source),
            (states, theirs.decoder_hidden_states, target),
        ):
            assert ours.depth == len(layers) - 1
            for number, layer in enumerate(layers):
                assert_close(ours[number][real(batch)], layer[real(batch)], tolerance)
    for found, expected, batch in (
        (read.attentions["self"], theirs.encoder_attentions, source),
        (states.attentions["self"], theirs.decoder_attentions, target),
        (states.attentions["cross"], theirs.cross_attentions, target),
    ):
        for our_layer, their_layer in zip(found, expected, strict=True):
            queries = real(batch)[:, None, :, None].expand_as(our_layer)
            assert_close(our_layer[queries], their_layer[queries], tolerance)

    kept, output = states[-1][real(target)], pair.ours.outputs["causal"]
    assert_close(output.logits(kept), theirs.logits[real(target)], tolerance)
    loss = output.loss(kept, labels[real(target)]).mean()
    assert_close(loss, theirs.loss, tolerance)
    loss.backward()
    theirs.loss.backward()
    assert_same_gradients(pair, tolerance, tied=tied)


def assert_same_gradients(pair: Pair, tolerance: float, *, tied: bool = True) -> None:
    """Through the conversion table, backwards, of the largest of the whole model."""
    rules = pair.ours.family.table(pair.ours.config, tied)
    gradients = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for name, tensor in (*pair.ours.named_parameters(), *pair.ours.named_buffers())
    }
    converted = table.write(rules, gradients, list(pair.ours.outputs), prefix=True)
    expected = {name: each.grad for name, each in pair.reference.named_parameters() if each.grad is not None}
    assert expected
    largest = max(float(each.abs().max()) for each in expected.values())
    for name, gradient in expected.items():
        assert_close(converted[name], gradient, tolerance, largest)
