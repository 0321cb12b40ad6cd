"""The decoder's states of a text that stands on both sides: the encoder reads it, and the decoder reads on.

The decoder reads the row that the encoder reads, behind the piece that it begins with. A piece's state is the one at
which the decoder has just read it, having seen all of the text through the encoder.

Shapes: N pieces of all rows, R rows of one length T, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle, new_bundle
from polyseme.config import EncoderConfig
from polyseme.encoders.encoder import Encoder, Layers
from polyseme.encoders.inference import InferenceEncoder, PackedRows
from polyseme.errors import ModelError, OptionError, nearest
from polyseme.types import Batch, States

Stack = Literal["encoder", "decoder"]
"""Whose layers are meant."""


def check_stack(bundle: Bundle, stack: str) -> None:
    """Refuse a stack that there is not."""
    if stack not in get_args(Stack):
        raise OptionError(f"There is no stack {stack!r}. {nearest(str(stack), get_args(Stack))}")
    if stack == "decoder" and bundle.decoder is None:
        raise ModelError(
            "The model has one stack, and no decoder. Leave the stack out, or take a model that has two, such as BART "
            "or T5."
        )


def decoder_of(bundle: Bundle) -> Encoder:
    """The second stack of a model that has two."""
    check_stack(bundle, "decoder")
    return bundle.decoder  # type: ignore[return-value]


class BothSides:
    """Rows through both stacks (`InferenceEncoder`), of which the decoder's layers are given back."""

    def __init__(self, bundle: Bundle, encoder: InferenceEncoder) -> None:
        self.encoder = encoder
        self.decoder = decoder_of(bundle)
        self.first = bundle.first_written
        self.top = bundle.config.depth

    def prepare(self) -> None:
        """Prepare the encoder for much work."""
        self.encoder.prepare()

    def warm_up(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Nothing to learn from them."""

    @torch.inference_mode()
    def __call__(self, rows: PackedRows, layers: Layers) -> dict[int, Tensor]:
        read = self.encoder(rows, [-1])[self.top]  # [N, D]
        collected: dict[int, list[Tensor]] = {}
        for start, n_rows, length in rows.runs:
            run = slice(start, start + n_rows * length)
            pieces = rows.pieces[run].view(n_rows, length)
            source = States({self.top: read[run].view(n_rows, length, -1)}, None, self.top)
            states = self.decoder(Batch(behind(self.first, pieces), source=source), layers=layers)
            for number, layer in states.layers.items():
                collected.setdefault(number, []).append(layer[:, 1:].flatten(0, 1))
        return {number: torch.cat(parts) for number, parts in collected.items()}


def behind(first: int, pieces: Tensor) -> Tensor:
    """[R, T] → [R, T + 1]: with the piece that a decoder begins with before each row."""
    return torch.cat([torch.full_like(pieces[:, :1], first), pieces], dim=1)


# --- stacks that a task model trains ----------------------------------------------------------------------------------


def config_of(bundle: Bundle, stack: str) -> EncoderConfig:
    """Of the stack whose layers are read."""
    return decoder_of(bundle).config if stack == "decoder" else bundle.config


def run_stack(bundle: Bundle, stack: str, batch: Batch, layers: Layers) -> States:
    """The states of a stack; the decoder's with the text on both sides, shifted right where the decoder reads it.

    So the state at a place is the one from which the original predicts the piece there.
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
    """A model like this one, its weights drawn from torch's present seed."""
    fresh = new_bundle(bundle.family, bundle.config, list(bundle.outputs), bundle.tokenizer, tied=bundle.tied)
    fresh.foreign = dict(bundle.foreign)
    return fresh
