"""Which model vectors are of: with equal fingerprints they can be compared, with others they cannot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import Stack, decoder_of
from polyseme.encoders.inference import Precision


def fingerprint(bundle: Bundle, precision: Precision = "own", stack: Stack = "encoder") -> dict[str, str]:
    """What a model's word vectors depend on, part by part, so that messages can name the part that differs.

    Outputs and heads have no say in word vectors and are left out, and so is a decoder, unless they are its own
    (`stack`). `precision` is what is multiplied in.
    """
    encoder = bundle.encoder
    own = str(next(encoder.parameters()).dtype).removeprefix("torch.")
    config = json.dumps({"kind": encoder.config.kind, **encoder.config.to_json()}, sort_keys=True)
    return {
        "tokenizer": bundle.text_tokenizer.fingerprint,
        "config": hashlib.sha256(config.encode()).hexdigest(),
        "precision": own if precision == "own" else precision,
        "weights": _digest(dict(encoder.named_parameters())),
        **({"decoder": _digest(dict(decoder_of(bundle).named_parameters()))} if stack == "decoder" else {}),
    }


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The parts in which two fingerprints differ. Weights of another precision differ by that alone.

    >>> differences({"config": "a", "weights": "b"}, {"config": "a", "weights": "c"})
    ['weights']
    """
    parts = [part for part in {**one, **other} if one.get(part) != other.get(part)]
    return [part for part in parts if part != "weights" or "precision" not in parts]


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """A hash of every number of every tensor, with its name and shape."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def outputs_fingerprint(bundle: Bundle) -> str:
    """A hash of the outputs' numbers, and of a decoder's, those left out that are the encoder's own."""
    own = {id(parameter) for parameter in bundle.encoder.parameters()}
    digest = hashlib.sha256()
    decoder = bundle.decoder
    further = [] if decoder is None else [(f"decoder.{name}", each) for name, each in decoder.named_parameters()]
    for name, parameter in sorted([*bundle.outputs.named_parameters(), *further]):
        digest.update(f"{name} {tuple(parameter.shape)} ".encode())
        if id(parameter) not in own:
            digest.update(parameter.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()
