"""The stacks of a model that a task runs: the encoder alone, or the decoder, too, which reads what the encoder read.

Shapes: R rows, T pieces.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle, new_bundle
from polyseme.config import EncoderConfig
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.encoders.encoder import Encoder, Layers
from polyseme.types import Batch, States


def config_of(bundle: Bundle, stack: str) -> EncoderConfig:
    """Of the stack whose layers are read."""
    return decoder_of(bundle).config if stack == "decoder" else bundle.config


def run_stack(bundle: Bundle, stack: str, batch: Batch, layers: Layers) -> States:
    """The states of a stack; the decoder's with the text on both sides, shifted right where the decoder reads it.

    So the state at a place is the one from which the original predicts what stands there.
    """
    if stack == "encoder":
        states: States = bundle.encoder(batch, layers=layers)
        return states
    source = bundle.encoder(batch, layers=[-1])
    shifted = Batch(after(bundle.first_written, batch.pieces), batch.lengths, source=source)
    states = decoder_of(bundle)(shifted, layers=layers)
    return states


def after(first: int, pieces: Tensor) -> Tensor:
    """[R, T] → [R, T]: shifted right, behind the piece that a decoder begins with; the last piece is not read."""
    return torch.cat([torch.full_like(pieces[:, :1], first), pieces[:, :-1]], dim=1)


def groups_of(bundle: Bundle, *, with_decoder: bool) -> list[list[nn.Parameter]]:
    """The layer groups of the stacks that run, the encoder's first; what both share is in the encoder's."""
    stacks: list[Encoder] = [bundle.encoder, *([decoder_of(bundle)] if with_decoder else [])]
    seen: set[nn.Parameter] = set()
    groups = []
    for group in (group for stack in stacks for group in stack.layer_groups()):
        groups.append([parameter for parameter in group if parameter not in seen])
        seen.update(group)
    return groups


def fresh_bundle(bundle: Bundle) -> Bundle:
    """A model like this one, drawn anew from torch's present seed."""
    return new_bundle(bundle.family, bundle.config, list(bundle.outputs), tied=bundle.tied)
