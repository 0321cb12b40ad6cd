"""Encoders as inference runs them: no padding, weights laid out for the machine.

Rows come packed, one after another, equal lengths together, so that nothing is computed for padding. How depends on the
kind of encoder: Transformers run in `packed_transformer`, recurrent ones in `packed_recurrent`, and any other through
its own forward pass. What comes out equals `Encoder.forward` on the same rows (tests hold it to that), without
gradients and dropout.

Shapes: N pieces of all rows, R rows of one length T, D width.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.encoders.encoder import Encoder, Layers
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.extras import LateTable, later
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.quantized_linear import bf16_is_fast, int8_is_fast
from polyseme.types import Batch

Precision = Literal["own", "bf16", "int8"]
"""What products run in: the precision of the weights, or a smaller one with fp32 between them."""


@dataclass
class PackedRows:
    """Rows one after another, none padded; equal lengths are neighbors."""

    pieces: Tensor
    """[N]"""
    segments: Tensor | None
    """[N]"""
    lengths: Sequence[int]

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """Start among the pieces, number of rows, and length of each run of rows of one length."""
        runs = []
        start = 0
        for length, group in itertools.groupby(self.lengths):
            n_rows = sum(1 for _ in group)
            runs.append((start, n_rows, length))
            start += n_rows * length
        return runs

    def places(self) -> PackedPlaces:
        """Where rows and pieces stand, on the device. The host does not wait for it."""
        device = self.pieces.device
        lengths = np.asarray(self.lengths, dtype=np.int32)
        bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        bounds = bounds.to(device, non_blocking=True)
        n_pieces = len(self.pieces)
        row_of = torch.repeat_interleave(bounds.diff(), output_size=n_pieces)
        positions = torch.arange(n_pieces, device=device) - bounds[row_of]
        return PackedPlaces(bounds, row_of, positions)


class PackedPlaces(NamedTuple):
    """Where packed rows and their pieces stand."""

    bounds: Tensor
    """[R + 1]: where each row begins, and the last one ends; int32."""
    row_of: Tensor
    """[N]: the row of each piece."""
    positions: Tensor
    """[N]: 0 … T-1 in every row."""


class InferenceEncoder(Protocol):
    """An encoder ready for inference over packed rows."""

    def __call__(self, rows: PackedRows, layers: Layers) -> dict[int, Tensor]:
        """These layers, by number: [N, D] each."""

    def prepare(self) -> None:
        """Prepare for much work: spend a moment on laying weights out, once."""

    def warm_up(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Read the pieces of all rows of a chunk, before its batches run."""


@runtime_checkable
class CarriesMemory(InferenceEncoder, Protocol):
    """One whose rows can continue where others ended."""

    def carry(self, rows: PackedRows, layers: Layers, memory: Memory | None) -> tuple[dict[int, Tensor], Memory]:
        """These layers, and the memory for the next call."""


InferenceBuilder = Callable[[Any, Precision], InferenceEncoder | None]
"""Encoder and precision → the encoder ready for inference, or None where it cannot run packed."""


def _builder(file: str) -> InferenceBuilder:
    builder: InferenceBuilder = later(f"polyseme.encoders.{file}").build
    return builder


INFERENCE_BUILDERS: Mapping[str, InferenceBuilder] = LateTable(
    {"transformer": "packed_transformer", "recurrent": "packed_recurrent", "two-way": "packed_recurrent"}, _builder
)
"""Kind of encoder → the file of this folder that makes one ready."""


def warn_where_slow(precision: Precision, stacklevel: int) -> None:
    """Warn where this processor gains nothing by a precision."""
    if (precision == "bf16" and not bf16_is_fast()) or (precision == "int8" and not int8_is_fast()):
        warnings.warn(
            f"This processor has no instructions for {precision}; the results are those of one that has them, but come "
            "no sooner than in fp32.",
            PolysemeWarning,
            stacklevel=stacklevel,
        )


def build_inference_encoder(encoder: Encoder, precision: Precision = "own") -> InferenceEncoder:
    """The fastest way to run this encoder that equals its forward pass.

    With another precision than the weights' own, products run in it and everything between them in fp32 (on a CPU).
    """
    warn_where_slow(precision, stacklevel=4)
    kind = encoder.config.kind
    inference = INFERENCE_BUILDERS[kind](encoder, precision) if kind in INFERENCE_BUILDERS else None
    if inference is None and precision != "own":
        raise OptionError(f"An encoder of kind {kind!r} cannot run in {precision} on a CPU. Use fp32.")
    return ByLength(encoder) if inference is None else inference


def padded_layers(inference: InferenceEncoder, batch: Batch, layers: Layers) -> dict[int, Tensor]:
    """These layers of rows that are padded on the right, [R, T, D] each; zeros at the padding."""
    n_rows, n_pieces = batch.pieces.shape[:2]
    device = batch.pieces.device
    lengths = torch.full((n_rows,), n_pieces, device=device) if batch.lengths is None else batch.lengths
    order = lengths.argsort(stable=True)
    row, place = (torch.arange(n_pieces, device=device) < lengths[order, None]).nonzero(as_tuple=True)
    row = order[row]
    segments = None if batch.segments is None else batch.segments[row, place]
    packed = inference(PackedRows(batch.pieces[row, place], segments, lengths[order].tolist()), layers)
    padded = {}
    for number, layer in packed.items():
        padded[number] = layer.new_zeros(n_rows, n_pieces, *layer.shape[1:])
        padded[number][row, place] = layer
    return padded


class ByLength:
    """Any encoder: its own forward pass, over the rows of one length at a time."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def prepare(self) -> None:
        """Nothing to prepare."""

    def warm_up(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Nothing to learn from them."""

    @torch.inference_mode()
    def __call__(self, rows: PackedRows, layers: Layers) -> dict[int, Tensor]:
        layers_by_number: dict[int, list[Tensor]] = {}
        for start, n_rows, length in rows.runs:
            run = slice(start, start + n_rows * length)
            shape = (n_rows, length, *rows.pieces.shape[1:])
            segments = None if rows.segments is None else rows.segments[run].view(n_rows, length)
            states = self.encoder(Batch(rows.pieces[run].view(shape), segments=segments), layers=layers)
            for number, layer in states.layers.items():
                layers_by_number.setdefault(number, []).append(layer.flatten(0, 1))
        return {number: torch.cat(parts) for number, parts in layers_by_number.items()}
