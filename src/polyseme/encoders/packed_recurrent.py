"""Recurrent encoders as inference runs them: rows of like length together, long ones in stretches.

A recurrent encoder has no window: its state goes on. A long row is read a stretch at a time, by the forward half from
the start and by the backward half from the end, each with its own memory, so that only the requested layers are held
for the whole row. Words that are spelled in characters get their vectors once for each word, not at each place.

Shapes: N pieces of all rows, R rows, T pieces of a row, D width, C characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyseme.encoders.encoder import Encoder, Layers, wanted_layers
from polyseme.encoders.inference import PackedRows, Precision
from polyseme.encoders.recurrent import Recurrent, TwoWay, TwoWayState
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.recurrence import State

PIECES_AT_ONCE = {"cpu": 2048, "cuda": 65536}
"""Pieces of all rows in a stretch."""
WORDS_AT_ONCE = {"cpu": 256, "cuda": 4096}
"""Words whose characters are looked at together."""
MOST_PADDING = 0.25
"""The share of a row that may be padding, where rows of several lengths run together."""


def build(encoder: Encoder, precision: Precision) -> PackedRecurrent | None:
    """A recurrent or two-way encoder in the precision of its weights, or None."""
    return PackedRecurrent(encoder) if isinstance(encoder, (Recurrent, TwoWay)) and precision == "own" else None


@dataclass
class _Types:
    """Words by their characters, and their vectors."""

    known: NDArray[Any]
    """[n], sorted: the characters of each word as one value."""
    table: Tensor
    """[n, D]"""


class PackedRecurrent:
    """A recurrent or two-way encoder, ready for inference over flat rows (`encoders.inference.InferenceEncoder`)."""

    def __init__(self, encoder: Recurrent | TwoWay) -> None:
        self.encoder = encoder
        self._types: _Types | None = None

    def prepare(self) -> None:
        """Nothing to prepare."""

    @torch.inference_mode()
    def warm_up(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Look at the characters of every word that a chunk has, once.

        Words of other chunks are forgotten, so that a vector never depends on earlier chunks, to the bit.
        """
        if self.encoder.config.spelled and rows:
            self._types = self._compute_types(np.unique(np.concatenate([np.unique(_as_values(row)) for row in rows])))

    @torch.inference_mode()
    def __call__(self, rows: PackedRows, layers: Layers) -> dict[int, Tensor]:
        return self._run(rows, layers, None)[0]

    @torch.inference_mode()
    def carry(self, rows: PackedRows, layers: Layers, memory: Memory | None) -> tuple[dict[int, Tensor], Memory]:
        """The same, each row going on from what the memory holds for it, as the original ELMo ran.

        Where there are fewer rows than the memory has, the others stay as they are; where there are more, those begin
        with a new one. This holds for both halves of a two-way encoder.
        """
        held = self.encoder.new_memory(max(len(rows.lengths), 0 if memory is None else memory.lengths.shape[0]))
        if memory is not None:
            held = held.put(torch.arange(memory.lengths.shape[0], device=held.lengths.device), memory)
        states_by_layer, after = self._run(rows, layers, held)
        return states_by_layer, held if after is None else after

    def _run(self, rows: PackedRows, layers: Layers, memory: Memory | None) -> tuple[dict[int, Tensor], Memory | None]:
        config = self.encoder.config
        numbers, table = self._number_words(rows.pieces)
        like = next(self.encoder.parameters())
        states_by_layer = {
            number: like.new_empty(len(numbers), config.widths[number])
            for number in sorted(wanted_layers(layers, config.depth))
        }
        device = numbers.device
        starts = np.cumsum([0, *rows.lengths])[:-1]
        for group in _alike(rows.lengths):
            chosen = torch.tensor(group, device=device)
            lengths = torch.tensor([rows.lengths[row] for row in group], device=device)
            first = torch.from_numpy(starts[group]).to(device)
            here = torch.arange(int(max(rows.lengths[row] for row in group)), device=device)
            places = first[:, None] + torch.minimum(here[None], lengths[:, None] - 1)  # [R, T]; padding is the last
            held = None if memory is None else memory.select(chosen)
            after = self._read(numbers[places], table, lengths, places, states_by_layer, held)
            if memory is not None and after is not None:
                memory = memory.put(chosen, after)
        return states_by_layer, memory

    def _read(
        self,
        pieces: Tensor,
        table: Tensor | None,
        lengths: Tensor,
        places: Tensor,
        states_by_layer: dict[int, Tensor],
        memory: Memory | None,
    ) -> Memory | None:
        """Read rows [R, T] that are padded, and put the states where they belong."""
        longest = pieces.shape[1]
        step = max(PIECES_AT_ONCE.get(pieces.device.type, 2048) // max(len(pieces), 1), 1)
        if isinstance(self.encoder, Recurrent) and self.encoder.config.n_ways == 2:
            step = longest  # each layer reads the whole of the one below
        after: list[Memory | None] = []
        column = dict.fromkeys(states_by_layer, 0)
        for half, held in self._halves(memory):
            if held is None and longest > step:
                held = half.new_memory(len(pieces))
            spans = [(begin, min(begin + step, longest)) for begin in range(0, longest, step)]
            for begin, end in reversed(spans) if half.config.reads == "backwards" else spans:
                here = (lengths - begin).clamp(0, end - begin)
                full = bool((here == end - begin).all())
                here_read = pieces[:, begin:end]
                tokens = half.tokens(here_read) if table is None else F.embedding(here_read, table)
                states = half.over(tokens, None if full else here, layers=list(states_by_layer), memory=held)
                held = states.memory
                real = None if full else torch.arange(end - begin, device=here.device)[None] < here[:, None]
                into = places[:, begin:end].flatten() if real is None else places[:, begin:end][real]
                for layer, vectors in states_by_layer.items():
                    part = states[layer].flatten(0, 1) if real is None else states[layer][real]
                    vectors[into, column[layer] : column[layer] + part.shape[-1]] = part
            for layer in states_by_layer:
                column[layer] += half.config.widths[layer]
            after.append(held)
        if isinstance(memory, TwoWayState) and isinstance(after[0], State) and isinstance(after[1], State):
            return TwoWayState(after[0].lengths, after[0], after[1])
        return None if memory is None else after[0]

    def _halves(self, memory: Memory | None) -> list[tuple[Recurrent, Memory | None]]:
        """What reads in one direction each, with its memory."""
        if isinstance(self.encoder, Recurrent):
            return [(self.encoder, memory)]
        held = (memory.forwards, memory.backwards) if isinstance(memory, TwoWayState) else (None, None)
        return [(self.encoder.forwards, held[0]), (self.encoder.backwards, held[1])]

    # --- the token layer ----------------------------------------------------------------------------------------------

    def _number_words(self, pieces: Tensor) -> tuple[Tensor, Tensor | None]:
        """Spelled words as numbers into a table of their vectors, [N] and [n, D]; other pieces as they are."""
        if not self.encoder.config.spelled:
            return pieces, None
        values = _as_values(pieces.cpu().numpy())
        types = self._types
        if types is None or not np.isin(values, types.known).all():
            types = self._compute_types(np.unique(values))
        numbers = torch.from_numpy(np.searchsorted(types.known, values))
        return numbers.to(pieces.device), types.table

    def _compute_types(self, values: NDArray[Any]) -> _Types:
        ids = torch.from_numpy(values.view(">u2").reshape(len(values), -1).astype(np.int64))  # [n, C]
        like = next(self.encoder.parameters())
        at_once = WORDS_AT_ONCE.get(like.device.type, 256)
        parts = [self.encoder.tokens(part.to(like.device).long()) for part in ids.split(at_once)]
        return _Types(values, torch.cat(parts) if parts else like.new_zeros(0, self.encoder.config.token_width))


def _alike(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows in groups of like length, so that little of a group is padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    group: list[int] = []
    for row in reversed(order):
        if group and lengths[row] < (1 - MOST_PADDING) * lengths[group[0]]:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _as_values(rows: NDArray[np.int64]) -> NDArray[Any]:
    """[n, C] → [n]: the characters of each word as one value that can be sorted."""
    packed = np.ascontiguousarray(rows.astype(">u2"))
    return packed.view(f"S{2 * packed.shape[1]}").reshape(-1)
