"""Small real encoders for the parts of the contract that no family uses yet.

`Recurrent` is an LSTM that carries its state from call to call; read backwards, it is the other half of `TwoWay`, two
of them over one token layer. Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from polyseme.config import Direction, EncoderConfig
from polyseme.encoders.encoder import Encoder, Layers, wanted_layers
from polyseme.errors import ModelError
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, States


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(EncoderConfig):
    kind: ClassVar[str] = "small recurrent"
    layer_widths: tuple[int, ...]
    """The token layer's first."""
    backwards: bool = False

    @property
    def direction(self) -> Direction:
        return "causal"  # in the order in which it reads

    @property
    def widths(self) -> tuple[int, ...]:
        return self.layer_widths

    @property
    def matrix_weights(self) -> int:
        below = zip(self.layer_widths, self.layer_widths[1:], strict=False)
        return sum(4 * width * (lower + width) for lower, width in below)


@dataclass
class RecurrentState(Memory):
    outputs: tuple[Tensor, ...]
    """One [R, D] a layer."""
    cells: tuple[Tensor, ...]


class Recurrent(Encoder):
    """Stacked LSTMs. A row's state stops at its last real piece; a backward one begins there."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, tokens: nn.Embedding | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_pieces, config.widths[0]) if tokens is None else tokens
        below = zip(config.widths, config.widths[1:], strict=False)
        self.cells = nn.ModuleList(nn.LSTMCell(lower, width) for lower, width in below)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        wanted = wanted_layers(layers, self.config.depth)
        n_rows, n_pieces = batch.pieces.shape
        lengths = torch.full((n_rows,), n_pieces) if batch.lengths is None else batch.lengths
        state = memory if isinstance(memory, RecurrentState) else self.new_memory(n_rows)
        order = self._reading_order(lengths, n_pieces)

        x = self.tokens(batch.pieces)
        found = {0: x} if 0 in wanted else {}
        x = _rearranged(x, order)
        outputs, cells = [], []
        for index in range(self.config.depth if memory is not None else max(wanted, default=0)):
            h, c = state.outputs[index], state.cells[index]
            read = []
            for time in range(n_pieces):
                going = (time < lengths)[:, None]
                new_h, new_c = self.cells[index](x[:, time], (h, c))
                h, c = torch.where(going, new_h, h), torch.where(going, new_c, c)
                read.append(h)
            outputs.append(h)
            cells.append(c)
            x = torch.stack(read, dim=1)
            if index + 1 in wanted:
                found[index + 1] = _rearranged(x, order)  # an order of reading undoes itself
        after = None if memory is None else RecurrentState(state.lengths + lengths, tuple(outputs), tuple(cells))
        return States(found, batch.lengths, self.config.depth, memory=after)

    def _reading_order(self, lengths: Tensor, n_pieces: int) -> Tensor:
        """[R, T]: which piece is read at each time; padding stays where it is."""
        here = torch.arange(n_pieces)[None].expand(len(lengths), -1)
        if not self.config.backwards:
            return here
        mirrored = lengths[:, None] - 1 - here
        return torch.where(mirrored >= 0, mirrored, here)

    def new_memory(self, rows: int, capacity: int | None = None) -> RecurrentState:
        empty = tuple(self.tokens.weight.new_zeros(rows, width) for width in self.config.widths[1:])
        return RecurrentState(torch.zeros(rows, dtype=torch.long), empty, empty)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [list(self.tokens.parameters()), *(list(cell.parameters()) for cell in self.cells)]


@dataclass(frozen=True, kw_only=True)
class TwoWayConfig(EncoderConfig):
    kind: ClassVar[str] = "small two-way"
    layer_widths: tuple[int, ...]
    """Of either half, the token layer's first."""

    @property
    def direction(self) -> Direction:
        return "two-way"

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(2 * width for width in self.layer_widths)

    @property
    def matrix_weights(self) -> int:
        return 2 * self.half(backwards=False).matrix_weights

    def half(self, *, backwards: bool) -> RecurrentConfig:
        return RecurrentConfig(
            n_pieces=self.n_pieces, layer_widths=self.layer_widths, backwards=backwards, memory="state"
        )


class TwoWay(Encoder):
    """A forward and a backward encoder over one token layer; states are [forward; backward]."""

    config: TwoWayConfig

    def __init__(self, config: TwoWayConfig) -> None:
        super().__init__()
        self.config = config
        self.onward = Recurrent(config.half(backwards=False))
        self.back = Recurrent(config.half(backwards=True), self.onward.tokens)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        if memory is not None:
            raise ModelError("A two-way encoder reads from both ends; a memory belongs to one of its halves.")
        one, other = (half(batch, layers=layers) for half in self.halves())
        both = {number: torch.cat([one.layers[number], other.layers[number]], dim=-1) for number in one.layers}
        return States(both, batch.lengths, self.config.depth)

    def halves(self) -> list[Encoder]:
        return [self.onward, self.back]

    def layer_groups(self) -> list[list[nn.Parameter]]:
        shared, *onward = self.onward.layer_groups()
        _, *back = self.back.layer_groups()
        return [shared, *(one + other for one, other in zip(onward, back, strict=True))]


def _rearranged(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order[:, :, None].expand_as(x))
