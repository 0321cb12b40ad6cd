"""Recurrent encoders: a token layer and a stack of layers that read their rows from one end, or from both.

The two-way encoder is a forward and a backward one, over one token layer (ELMo's biLM) or one each (Flair).

States of a row stop at its length, so that a memory is the state after its last real piece; a backward stack begins
there. What it carries from call to call is what was read before, in the order of reading.

Shapes: R rows, T pieces, D width of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyseme.encoders.encoder import Encoder, Layers, check_rows, wanted_layers
from polyseme.encoders.recurrent_config import RecurrentConfig, StackConfig, TwoWayConfig
from polyseme.errors import ModelError
from polyseme.parts.character_cnn import CharacterTokens
from polyseme.parts.dropout import LockedDropout, WordDropout
from polyseme.parts.memory_and_cache import Memory
from polyseme.parts.recurrence import Reader, State
from polyseme.types import Batch, States


class PieceTokens(nn.Module):
    """A table of pieces: [R, T] → [R, T, D]."""

    def __init__(self, n_pieces: int, width: int, spread: float, dropout_rate: float = 0.0) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_pieces, width))
        self.dropout = WordDropout(n_pieces, dropout_rate)
        nn.init.normal_(self.table, std=spread)

    def forward(self, pieces: Tensor) -> Tensor:
        vectors: Tensor = self.dropout(nn.functional.embedding(pieces, self.table), pieces)
        return vectors


class MarkedTokens(PieceTokens):
    """A table of pieces without the last two, the markers of a row's ends, which are read as pieces of the table."""

    def __init__(self, n_pieces: int, width: int, spread: float, markers: tuple[int, int]) -> None:
        super().__init__(n_pieces - 2, width, spread)
        self.markers = markers

    def forward(self, pieces: Tensor) -> Tensor:
        for marker, read in enumerate(self.markers, start=self.table.shape[0]):
            pieces = pieces.masked_fill(pieces == marker, read)
        return super().forward(pieces)


def token_layer(config: StackConfig) -> PieceTokens | CharacterTokens:
    """A table of pieces, or filters over the characters in which they are spelled."""
    if not config.spelled:
        return PieceTokens(config.n_pieces, config.token_width, config.init_std, config.word_dropout_rate)
    return CharacterTokens(
        config.n_pieces,
        config.character_width,
        filter_widths=config.filter_widths,
        filter_counts=config.filter_counts,
        n_highways=config.n_highways,
        width=config.token_width,
        activation=config.filter_activation,
    )


class Recurrent(Encoder):
    """Stacked recurrent layers. As a half of a two-way encoder it is given the token layer that both share."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, tokens: PieceTokens | CharacterTokens | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = token_layer(config) if tokens is None else tokens
        dropout = LockedDropout if config.locked_dropout else nn.Dropout
        top_rate = config.dropout_rate if config.output_dropout_rate is None else config.output_dropout_rate
        self.dropout_of_tokens = dropout(config.embedding_dropout_rate)
        self.dropout = dropout(config.dropout_rate)
        self.dropout_of_top = dropout(top_rate)
        directions = {"forwards": [False], "backwards": [True], "both": [False, True]}[config.reads]
        self.layers = nn.ModuleList()
        for below, width in zip(config.widths, config.state_widths, strict=False):
            self.layers.append(nn.ModuleList(self._reader(below, width, backwards) for backwards in directions))

    def _reader(self, below: int, width: int, backwards: bool) -> Reader:
        config = self.config
        return Reader(
            below,
            width,
            inner_width=config.inner_width,
            kind=config.cells,
            backwards=backwards,
            cell_clip=config.cell_clip,
            projection_clip=config.projection_clip,
            forget_bias=config.forget_bias,
            weight_dropout_rate=config.weight_dropout_rate,
        )

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        refuse_what_is_not_read(batch, self.config)
        return self.over(self.tokens(batch.pieces), batch.lengths, layers=layers, memory=memory)

    def over(
        self, tokens: Tensor, lengths: Tensor | None, *, layers: Layers = "all", memory: Memory | None = None
    ) -> States:
        """The states above a token layer that is there already, [R, T, D]."""
        config = self.config
        numbers = wanted_layers(layers, config.n_layers)
        state = self._state(memory, tokens.shape[0])
        x = self.dropout_of_tokens(tokens)
        states = {0: x} if 0 in numbers else {}
        outputs: list[Tensor] = []
        cells: list[Tensor] = []
        undropped = None
        for index in range(config.n_layers if memory is not None else max(numbers, default=0)):
            below, read = x, []
            for reader in self._readers(index):
                held = None if state is None else self._held_state(reader, state, index)
                out, h, c = reader(below, lengths, held, carried=memory is not None)
                read.append(out)
            outputs.append(h)
            cells.append(c)
            x = read[0] if len(read) == 1 else torch.cat(read, dim=-1)
            if config.skip and index > 0:
                x = x + below
            if index + 1 < config.n_layers:
                x = self.dropout(x)
            else:
                undropped, x = x, self.dropout_of_top(x)
            if index + 1 in numbers:
                states[index + 1] = x
        after = None
        if state is not None:
            n_read = tokens.shape[1] if lengths is None else lengths
            of_cells = tuple(cells) if config.cells == "lstm" else ()
            after = State(state.lengths + n_read, tuple(outputs), of_cells)
        return States(states, lengths, config.n_layers, memory=after, undropped=undropped)

    def _readers(self, index: int) -> Sequence[Reader]:
        return self.layers[index]  # type: ignore[return-value]

    def _held_state(self, reader: Reader, state: State, index: int) -> tuple[Tensor, Tensor]:
        cells = state.cells[index] if state.cells else reader.start(state.lengths.shape[0])[1]
        return state.outputs[index], cells

    def _state(self, memory: Memory | None, n_rows: int) -> State | None:
        if memory is None:
            return None
        if self.config.memory != "state" or not isinstance(memory, State):
            raise ModelError(
                f"A recurrent encoder with memory {self.config.memory!r} was given a {type(memory).__name__}. Begin "
                "with new_memory of the same encoder."
            )
        check_rows(memory, n_rows)
        return memory

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        """The state before anything was read; it takes no more room, however much is."""
        if self.config.memory != "state":
            return super().new_memory(rows, capacity)
        starts = [self._readers(index)[0].start(rows) for index in range(self.config.n_layers)]
        like = next(self.parameters())
        lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        cells = tuple(c for _, c in starts) if self.config.cells == "lstm" else ()
        return State(lengths, tuple(h for h, _ in starts), cells)

    def layer_modules(self) -> list[nn.Module]:
        """The dropouts: what they return is a layer's states, with what skips it and in both directions."""
        return [self.tokens, *[self.dropout] * (self.config.n_layers - 1), self.dropout_of_top]

    def token_modules(self) -> list[nn.Module]:
        return [self.tokens]

    def piece_table(self) -> nn.Parameter | None:
        return None if self.config.spelled else self.tokens.table

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [list(self.tokens.parameters()), *(list(layer.parameters()) for layer in self.layers)]


def refuse_what_is_not_read(
    batch: Batch, config: StackConfig, unread: Sequence[str] = ("mask", "source", "targets")
) -> None:
    """A mask, a source or targets would be passed over in silence."""
    for name in unread:
        if getattr(batch, name) is not None:
            raise ModelError(f"The batch has a {name}, which a recurrent encoder cannot read.")
    n_axes = 3 if config.spelled else 2
    if batch.pieces.dim() != n_axes:
        raise ModelError(
            f"The pieces of this encoder come as {'[rows, pieces, characters]' if config.spelled else '[rows, pieces]'}"
            f". Got {batch.pieces.dim()} axes instead."
        )


@dataclass
class TwoWayState(Memory):
    """The states of both halves: the forward one after a row's last piece, the backward one after its first."""

    forwards: State
    backwards: State


class TwoWay(Encoder):
    """Two recurrent encoders side by side.

    A memory is of both: the backward half, too, begins a row in the state in which it left the row before. So the
    original ran from batch to batch; between texts that have nothing to do with each other it makes no sense, and
    nothing does it by default. To continue one text, take the `halves`, each with its own memory.
    """

    config: TwoWayConfig

    def __init__(self, config: TwoWayConfig) -> None:
        super().__init__()
        self.config = config
        first, last = _own_tokens(config) if config.own_tokens else (token_layer(config),) * 2
        self.forwards = Recurrent(config.half("forwards"), first)
        self.backwards = Recurrent(config.half("backwards"), last)

    @property
    def tokens(self) -> PieceTokens | CharacterTokens:
        """The token layer of both halves, where it is one."""
        return self.forwards.tokens

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        refuse_what_is_not_read(batch, self.config)
        lengths = batch.lengths
        if memory is not None and not isinstance(memory, TwoWayState):
            raise ModelError(
                f"A two-way encoder was given a {type(memory).__name__}; its memory is of both halves. Begin with "
                "new_memory, or give each of its halves its own."
            )
        held = (None, None) if memory is None else (memory.forwards, memory.backwards)
        tokens = self.forwards.tokens(batch.pieces)
        one = self.forwards.over(tokens, lengths, layers=layers, memory=held[0])
        if self.config.own_tokens:
            tokens = self.backwards.tokens(batch.pieces)
        other = self.backwards.over(tokens, lengths, layers=layers, memory=held[1])
        both = {number: torch.cat([one.layers[number], other.layers[number]], dim=-1) for number in one.layers}
        after = None
        if isinstance(one.memory, State) and isinstance(other.memory, State):
            after = TwoWayState(one.memory.lengths, one.memory, other.memory)
        return States(both, lengths, self.config.depth, memory=after)

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        forwards, backwards = (half.new_memory(rows) for half in self.halves())
        if not (isinstance(forwards, State) and isinstance(backwards, State)):
            raise TypeError("Halves of a two-way encoder return their states.")
        return TwoWayState(forwards.lengths, forwards, backwards)

    def halves(self) -> list[Encoder]:
        return [self.forwards, self.backwards]

    def token_modules(self) -> list[nn.Module]:
        return [
            half.tokens for half in ([self.forwards, self.backwards] if self.config.own_tokens else [self.forwards])
        ]

    def piece_table(self) -> nn.Parameter | None:
        return None if self.config.own_tokens else self.forwards.piece_table()

    def layer_groups(self) -> list[list[nn.Parameter]]:
        groups = zip(self.forwards.layer_groups(), self.backwards.layer_groups(), strict=True)
        return [list(dict.fromkeys(one + other)) for one, other in groups]


def _own_tokens(config: TwoWayConfig) -> tuple[PieceTokens | CharacterTokens, PieceTokens | CharacterTokens]:
    """A table of pieces for each half; markers of a row's ends are read in the direction of the half."""
    if config.edges is None:
        return token_layer(config), token_layer(config)
    first, last = config.edges
    shape = config.n_pieces, config.token_width, config.init_std
    return MarkedTokens(*shape, (first, last)), MarkedTokens(*shape, (last, first))
