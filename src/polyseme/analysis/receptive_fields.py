"""Receptive fields: which pieces each state of a model depends on, layer by layer.

They are measured, not read from a config: one piece of a row is changed at a time, in float64, and a state that moves
depends on it.

Shapes: T pieces of the row, D width of a layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import behind, decoder_of
from polyseme.embedding.piece_states import batch_of
from polyseme.errors import OptionError
from polyseme.text.documents import to_document
from polyseme.types import Batch, FramedRow, States, Tokenizer

TEXT = "The vase broke at dawn, and news of it broke before the police came. "
MOVED = 1e-12
"""Of a layer's largest number. Rounding in float64 moves a state by less; what a state depends on moves it by more."""
MAX_LENGTH = 256
Part = Literal["encoder", "forward half", "backward half", "decoder", "decoder to source"]
"""Whose states: of a two-way encoder each half by itself; a decoder depends on its own pieces and on its source's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceptiveField:
    """Which pieces the states of some layers depend on, where these are the same for all of the layers."""

    part: Part
    layers: tuple[int, ...]
    pieces: Sequence[str]
    """T: those of the states, and those that they depend on."""
    depends: NDArray[np.bool_]
    """[T, T]: a row per state, a column per piece."""


def receptive_fields(bundle: Bundle, *, length: int) -> list[ReceptiveField]:
    """The receptive fields of every layer, over a row of at most `length` pieces; those of equal layers are one."""
    if not 2 <= length <= MAX_LENGTH:
        raise OptionError(f"The length must be from 2 to {MAX_LENGTH} pieces. Got {length} instead.")
    if bundle.config.window is not None and length > bundle.config.window:
        raise OptionError(f"The model reads {bundle.config.window} pieces at once. Got a length of {length} instead.")
    exact = bundle.copied().double().eval()
    framed = _example(exact.text_tokenizer, length)
    names = exact.text_tokenizer.pieces(framed.ids.tolist())
    row = batch_of(exact, framed)
    changed = _changed(row.pieces[0], exact.config.n_pieces)
    with torch.inference_mode():
        read = exact.encoder(_rows(row, changed))
        layers = [read[number] for number in range(read.depth + 1)]
        fields = _grouped("encoder", names, layers)
        if exact.config.direction == "two-way":
            halves = [layer.chunk(2, dim=-1) for layer in layers[1:]]
            fields += _grouped("forward half", names, [half for half, _ in halves], first=1)
            fields += _grouped("backward half", names, [half for _, half in halves], first=1)
        if exact.decoder is not None:
            fields += _of_decoder(exact, names, changed, read)
    return fields


def _of_decoder(bundle: Bundle, names: Sequence[str], changed: Tensor, read: States) -> list[ReceptiveField]:
    """What the decoder's states depend on: the pieces that it has read itself, then those of its source."""
    top = read[-1]
    unchanged = behind(bundle.first_written, changed[:1].expand_as(changed))
    inputs: dict[Part, tuple[Tensor, Tensor]] = {
        "decoder": (behind(bundle.first_written, changed), top[:1].expand_as(top)),
        "decoder to source": (unchanged, top),
    }
    fields = []
    for part, (written, source) in inputs.items():
        states = decoder_of(bundle)(Batch(written, source=States({read.depth: source}, None, read.depth)))
        layers = [states[number][:, 1:] for number in range(states.depth + 1)]  # without the piece that it begins with
        fields += _grouped(part, names, layers)
    return fields


def _example(tokenizer: Tokenizer, length: int) -> FramedRow:
    """The row that is read: the example text, repeated as often as it takes."""
    room = max(1, length - tokenizer.n_specials)
    text = TEXT
    while len(ids := tokenizer.encode(to_document(text.strip(), 0)).ids) < room:
        text += TEXT
    return tokenizer.frame(ids[:room])


def _changed(row: Tensor, n_pieces: int) -> Tensor:
    """[T] → [1 + T, T]: the row, and the row with each of its pieces changed; of spelled pieces, all characters."""
    rows = row.repeat(len(row) + 1, *[1] * row.dim())
    for place in range(len(row)):
        rows[place + 1, place] = (row[place] + 1) % n_pieces
    return rows


def _rows(row: Batch, changed: Tensor) -> Batch:
    segments = None if row.segments is None else row.segments.expand(len(changed), -1)
    return dataclasses.replace(row, pieces=changed, segments=segments)


def _grouped(part: Part, names: Sequence[str], layers: Sequence[Tensor], *, first: int = 0) -> list[ReceptiveField]:
    """The fields of layers [1 + T, T, D], from the `first` upward; neighbors that depend on the same pieces are one."""
    groups: list[tuple[list[int], NDArray[np.bool_]]] = []
    for number, states in enumerate(layers, start=first):
        depends = _depends(states)
        if groups and np.array_equal(depends, groups[-1][1]):
            groups[-1][0].append(number)
        else:
            groups.append(([number], depends))
    return [
        ReceptiveField(part=part, layers=tuple(numbers), pieces=names, depends=depends) for numbers, depends in groups
    ]


def _depends(states: Tensor) -> NDArray[np.bool_]:
    """[1 + T, T, D], of the unchanged row and of those with a changed piece → [T, T]."""
    moved = (states[1:] - states[:1]).abs().amax(dim=-1)  # [T, T]: the piece that is changed, the state
    depends: NDArray[np.bool_] = (moved > MOVED * states.abs().max()).T.cpu().numpy()
    return depends
