"""Long rows read in chunks by a recurrent encoder (ULMFiT's BPT3C, backpropagation through time for classification).

A chunk begins in the state in which the one before it ended, so that every state has seen all of the text before it.
Gradients end where a chunk begins. The states of the last pieces of a row are read out; chunks before them make the
state and nothing else, without gradients. Of the chunks that are read out, only the states are kept: everything between
them is computed again for the gradients, so that memory hardly grows with the length of a text.

A row's state past its own end is never read, and is left to run on over padding. An encoder that reads backwards has
its first chunk at the end of a row.

Shapes: R rows, T pieces of the longest, D width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from polyseme.encoders.encoder import Encoder
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.recurrence import reverse_rows
from polyseme.types import Batch, States


class Chunks(NamedTuple):
    """How rows are read."""

    length: int
    """Pieces of a chunk."""
    read_last: int | None = None
    """How many of the last pieces of a row are read out; None: all."""


def chunked_states(encoder: Encoder, batch: Batch, layers: Sequence[int], chunks: Chunks) -> States:
    """The states of rows; zeros in chunks of which no row reads anything out."""
    n_rows, longest = batch.pieces.shape[:2]
    ends = [longest] if batch.lengths is None else set(batch.lengths.tolist())
    backwards = encoder.config.reads_backwards
    as_read = reverse_rows(batch.pieces, batch.lengths) if backwards else batch.pieces
    parts: dict[int, list[Tensor]] = {}
    memory: Memory | None = encoder.new_memory(n_rows)
    for start in range(0, longest, chunks.length):
        pieces = as_read[:, start : start + chunks.length]
        is_read = any(start < end and start + chunks.length > end - (chunks.read_last or end) for end in ends)
        if backwards:
            pieces = pieces.flip(1)
        with contextlib.nullcontext() if is_read else torch.no_grad():
            if torch.is_grad_enabled() and longest > chunks.length:
                states = checkpoint(_read, pieces, encoder, layers, memory, use_reentrant=False)
            else:
                states = _read(pieces, encoder, layers, memory)
        memory = None if states.memory is None else states.memory.detach()
        for number, layer in states.layers.items():
            as_read_layer = layer.flip(1) if backwards else layer
            parts.setdefault(number, []).append(as_read_layer if is_read else torch.zeros_like(layer))
    joined = {number: torch.cat(each, dim=1) for number, each in parts.items()}
    if backwards:
        joined = {number: reverse_rows(each, batch.lengths) for number, each in joined.items()}
    return States(joined, batch.lengths, encoder.config.depth)


def _read(pieces: Tensor, encoder: Encoder, layers: Sequence[int], memory: Memory | None) -> States:
    """The states of a chunk. The pieces come first, by themselves: PyTorch keeps the random state of their device."""
    states: States = encoder(Batch(pieces), layers=layers, memory=memory)
    return states


def read_places(states: Tensor, lengths: Tensor | None, last: int | None = None) -> Tensor:
    """[R, T]: which states are of no padding; of these the last ones alone, where `last` says how many."""
    here = torch.arange(states.shape[1], device=states.device)[None]
    ends = lengths if lengths is not None else torch.full_like(states[:, 0, 0], states.shape[1], dtype=torch.long)
    real = here < ends[:, None]
    return real if last is None else real & (here >= ends[:, None] - last)
