"""The second stack of a recurrent sequence-to-sequence model: a stack that begins in the last state of its source.

Without attention that state is all that it has of the source, however long the source is (Sutskever et al. 2014).
With attention there is one layer more, which combines each state h with the context that it finds in the source:

    none           h_t = stack(y_t)                  c_t = context(h_t)        a_t = tanh(W [c_t; h_t])
    attentional    h_t = stack([y_t; a_{t-1}])       c_t = context(h_t)        a_t = tanh(W [c_t; h_t])
    context        h_t = stack([y_t; c_t])           c_t = context(h_{t-1})    a_t = tanh(W [c_t; h_t])

The first two rows are Luong et al. 2015, without and with input feeding, the third is Bahdanau et al. 2015. What is fed
back makes a loop over the pieces; without it, the stack reads all pieces at once, and attention then does the same.

Shapes: R rows, T pieces, S pieces of the source, D width of the states, E width of the source.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from polyseme.encoders.encoder import Encoder, Layers, check_rows, wanted_layers
from polyseme.encoders.recurrent import PieceTokens, Recurrent, refuse_what_is_not_read
from polyseme.encoders.recurrent_config import RecurrentDecoderConfig
from polyseme.errors import ModelError
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.recurrence import State
from polyseme.parts.source_attention import SourceAttention
from polyseme.types import Batch, States


@dataclass
class SourceState(Memory):
    """A decoder's state, and what it reads of its source at every step."""

    state: State | None = None
    """None: no source has been read yet."""
    fed: Tensor | None = None
    """[R, …]: what the last piece feeds to the next one."""
    keys: Tensor | None = None
    """[R, S, D]: the source as attention scores it."""
    values: Tensor | None = None
    """[R, S, E]: the source's states."""
    source_lengths: Tensor | None = None


class RecurrentDecoder(Encoder):
    """A recurrent stack, the bridge from the source's last state to its first one, and attention where there is any."""

    config: RecurrentDecoderConfig

    def __init__(self, config: RecurrentDecoderConfig) -> None:
        super().__init__()
        self.config = config
        tokens = PieceTokens(config.n_pieces, config.token_width, config.init_std)
        self.stack = Recurrent(config.stack, tokens)
        width, n_cells = sum(config.state_widths), sum(config.cell_widths)
        self.bridge = nn.Linear(config.source_width, width + n_cells)
        self.attention: SourceAttention | None = None
        if config.attention != "none":
            self.attention = SourceAttention(config.attention, config.state_widths[-1], config.source_width)
            joined = config.source_width + config.state_widths[-1]
            self.combine = nn.Linear(joined, config.token_width, bias=False)
        self.dropout = nn.Dropout(config.dropout_rate)
        nn.init.zeros_(self.bridge.bias)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        refuse_what_is_not_read(batch, self.config, ("mask", "targets", "source_mask"))
        numbers = wanted_layers(layers, self.config.depth)
        before = self._start_state(batch, memory)
        # Without a memory to carry on, states at padding harm nobody, and all rows can be read as if they were full.
        lengths = None if memory is None else batch.lengths
        tokens = self.stack.tokens(batch.pieces)
        if self.config.feeding == "none":
            states, weights, after = self._at_once(tokens, lengths, before)
        else:
            states, weights, after = self._piece_by_piece(tokens, lengths, before)
        states[0] = states[0][..., : self.config.token_width]
        return States(
            layers={number: states[number] for number in sorted(numbers)},
            lengths=batch.lengths,
            depth=self.config.depth,
            attentions={"cross": [weights[:, None]]} if attentions and weights is not None else {},
            memory=None if memory is None else after,
        )

    def _at_once(
        self, tokens: Tensor, lengths: Tensor | None, before: SourceState
    ) -> tuple[dict[int, Tensor], Tensor | None, SourceState]:
        read = self.stack.over(tokens, lengths, memory=before.state)
        states, weights = dict(read.layers), None
        if self.attention is not None:
            context, weights = self._attend(read[-1], before)
            states[self.config.depth] = self._combine(context, read[-1])
        return states, weights, _advance(before, read)

    def _piece_by_piece(
        self, tokens: Tensor, lengths: Tensor | None, before: SourceState
    ) -> tuple[dict[int, Tensor], Tensor | None, SourceState]:
        collected: list[dict[int, Tensor]] = []
        weights: list[Tensor] = []
        for time in range(tokens.shape[1]):
            here = None if lengths is None else (lengths - time).clamp(0, 1)
            if self.config.feeding == "context":
                asking = cast(State, before.state).outputs[-1][:, None]
                context, weight = self._attend(asking, before)
                read = self._read(tokens[:, time : time + 1], context, here, before)
            else:
                read = self._read(tokens[:, time : time + 1], cast(Tensor, before.fed)[:, None], here, before)
                context, weight = self._attend(read[-1], before)
            top = self._combine(context, read[-1])
            collected.append({**read.layers, self.config.depth: top})
            weights.append(weight)
            before = _advance(before, read)
            if before.fed is not None:
                fed = top[:, 0].to(before.fed.dtype)
                before.fed = fed if here is None else torch.where((here > 0)[:, None], fed, before.fed)
        joined = {number: torch.cat([each[number] for each in collected], dim=1) for number in collected[0]}
        return joined, torch.cat(weights, dim=1), before

    def _read(self, tokens: Tensor, fed: Tensor, lengths: Tensor | None, before: SourceState) -> States:
        return self.stack.over(torch.cat([tokens, fed.to(tokens.dtype)], dim=-1), lengths, memory=before.state)

    def _attend(self, queries: Tensor, before: SourceState) -> tuple[Tensor, Tensor]:
        context, weights = cast(SourceAttention, self.attention)(
            queries, before.keys, before.values, before.source_lengths
        )
        return context, weights

    def _combine(self, context: Tensor, states: Tensor) -> Tensor:
        joined = torch.cat([context.to(states.dtype), states], dim=-1)
        combined: Tensor = self.dropout(torch.tanh(self.combine(joined)))
        return combined

    # --- the source, and memory ---------------------------------------------------------------------------------------

    def _start_state(self, batch: Batch, memory: Memory | None) -> SourceState:
        """The state to continue from: the memory's, or the one that a source gives."""
        if memory is not None and not isinstance(memory, SourceState):
            raise ModelError(
                f"A recurrent decoder was given a {type(memory).__name__} as its memory. Begin with new_memory."
            )
        if memory is not None:
            check_rows(memory, batch.pieces.shape[0])
            if memory.state is not None:
                return memory
        if batch.source is None:
            raise ModelError("This encoder reads a source, and the batch has none.")
        source, config = batch.source, self.config
        values = source[-1]
        state = self._first_state(values, source.lengths)
        if self.attention is None:
            return SourceState(state.lengths, state)
        fed = values.new_zeros(len(values), config.token_width) if config.feeding == "attentional" else None
        keys = self.attention.score.keys(values)
        return SourceState(state.lengths, state, fed, keys, values, source.lengths)

    def _first_state(self, source: Tensor, lengths: Tensor | None) -> State:
        """From the last state of the source: of one that is read both ways, the last in either direction."""
        config = self.config
        if lengths is None:
            last = source[:, -1]
        else:
            at = (lengths - 1).clamp(min=0)[:, None, None]
            last = source.gather(1, at.expand(-1, 1, source.shape[2]))[:, 0]
        if config.source_ways == 2:
            forwards, _ = last.chunk(2, dim=-1)
            last = torch.cat([forwards, source[:, 0].chunk(2, dim=-1)[1]], dim=-1)
        bridged = self.bridge(last).to(self.bridge.weight.dtype)
        outputs, cells = bridged.split([sum(config.state_widths), sum(config.cell_widths)], dim=-1)
        nothing = torch.zeros(len(source), dtype=torch.long, device=source.device)
        first = tuple(each.contiguous() for each in torch.tanh(outputs).split(config.state_widths, dim=-1))
        return State(nothing, first, tuple(each.contiguous() for each in cells.split(config.cell_widths, dim=-1)))

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        """Of nothing: the first call reads the source. It takes no more room, however much is written."""
        return SourceState(torch.zeros(rows, dtype=torch.long, device=self.bridge.weight.device))

    # --- parameters ---------------------------------------------------------------------------------------------------

    def layer_modules(self) -> list[nn.Module]:
        return [*self.stack.layer_modules(), *([] if self.attention is None else [self.dropout])]

    def piece_table(self) -> nn.Parameter | None:
        return self.stack.piece_table()

    def tie(self, table: nn.Parameter) -> None:
        self.stack.tokens.table = table

    def layer_groups(self) -> list[list[nn.Parameter]]:
        tokens, *layers = self.stack.layer_groups()
        layers[0] = [*self.bridge.parameters(), *layers[0]]
        if self.attention is not None:
            above = [*self.attention.parameters(), *self.combine.parameters()]
            if self.config.feeding == "none":
                layers.append(above)
            else:
                layers[0] += above
        return [tokens, *layers]


def _advance(before: SourceState, read: States) -> SourceState:
    """The same with the state after what was read."""
    state = cast(State, read.memory)
    return dataclasses.replace(before, lengths=state.lengths, state=state)
