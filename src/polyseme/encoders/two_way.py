"""The two-way encoder: a forward and a backward recurrent one over one token layer (ELMo's biLM).

States are [forward; backward]; layer 0 is the token layer twice. Neither half sees what the other has read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyseme.encoders.base import Encoder, Layers
from polyseme.encoders.recurrent import Recurrent, refuse_what_is_not_read
from polyseme.encoders.recurrent_config import TwoWayConfig
from polyseme.errors import ModelError
from polyseme.parts.memory import Memory
from polyseme.parts.recurrence import State
from polyseme.types import Batch, States


@dataclass
class TwoWayState(Memory):
    """The states of both halves: the forward one after a row's last piece, the backward one after its first."""

    onward: State
    back: State


class TwoWay(Encoder):
    """Two recurrent encoders side by side.

    A memory is of both: the backward half, too, begins a row in the state in which it left the row before. So the
    original ran from batch to batch; between texts that have nothing to do with each other it makes no sense, and
    nothing does it unless asked to. To go on with one text, take the `halves`, each with its own memory.
    """

    config: TwoWayConfig

    def __init__(self, config: TwoWayConfig) -> None:
        super().__init__()
        self.config = config
        self.onward = Recurrent(config.half("forwards"))
        self.tokens = self.onward.tokens
        self.back = Recurrent(config.half("backwards"), self.tokens)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        refuse_what_is_not_read(batch, self.config)
        return self.over(self.tokens(batch.pieces), batch.lengths, layers=layers, memory=memory)

    def over(
        self, tokens: Tensor, lengths: Tensor | None, *, layers: Layers = "all", memory: Memory | None = None
    ) -> States:
        """The states above a token layer that is there already, [R, T, D]."""
        if memory is not None and not isinstance(memory, TwoWayState):
            raise ModelError(
                f"A two-way encoder was given a {type(memory).__name__}; its memory is of both halves. Begin with "
                "new_memory, or give each of its halves its own."
            )
        held = (None, None) if memory is None else (memory.onward, memory.back)
        one = self.onward.over(tokens, lengths, layers=layers, memory=held[0])
        other = self.back.over(tokens, lengths, layers=layers, memory=held[1])
        both = {number: torch.cat([one.layers[number], other.layers[number]], dim=-1) for number in one.layers}
        after = None
        if isinstance(one.memory, State) and isinstance(other.memory, State):
            after = TwoWayState(one.memory.lengths, one.memory, other.memory)
        return States(both, lengths, self.config.depth, memory=after)

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        onward, back = (half.new_memory(rows) for half in self.halves())
        if not (isinstance(onward, State) and isinstance(back, State)):
            raise TypeError("Halves of a two-way encoder hand on their states.")
        return TwoWayState(onward.lengths, onward, back)

    def halves(self) -> list[Encoder]:
        return [self.onward, self.back]

    def piece_table(self) -> nn.Parameter | None:
        return self.onward.piece_table()

    def layer_groups(self) -> list[list[nn.Parameter]]:
        shared, *onward = self.onward.layer_groups()
        _, *back = self.back.layer_groups()
        return [shared, *(one + other for one, other in zip(onward, back, strict=True))]
