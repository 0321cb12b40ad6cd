"""The first neural language model's encoder: a fixed context of words, concatenated, below one tanh layer.

    x = [C(w_t); C(w_{t-1}); …; C(w_{t-n+2})]        the last n - 1 words, the nearest first
    h = tanh(d + H x)

so that an output over h, or over [h; x] with direct connections, is y = b + W x + U h of Bengio et al. 2003. A place
before the beginning of a row, and of what its memory holds, is a vector of zeros. The memory is the last n - 2 pieces
themselves: gradients reach the vectors of all of them, in whatever row they were read.

Shapes: R rows, T pieces, m width of a word's vector, D width of the top layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from polyseme.config import Direction, EncoderConfig, MemoryKind
from polyseme.encoders.encoder import Encoder, Layers, check_rows, wanted_layers
from polyseme.encoders.recurrent import PieceTokens
from polyseme.errors import ModelError
from polyseme.parts.memory_and_cache import Memory, keep_last
from polyseme.types import Batch, States

LONGEST_ROW = 4096
"""Pieces read at once. Windows overlap by more than a context: they bound the memory of long documents and change
nothing."""
ABSENT = -1
"""In a memory, a place before the beginning of the text."""


@dataclass(frozen=True, kw_only=True)
class FixedContextConfig(EncoderConfig):
    """A table of pieces and one layer over the last few of them."""

    kind: ClassVar[str] = "fixed-context"

    memory: MemoryKind = "state"

    token_width: int
    """Of the vector of a word, m in the paper."""
    width: int
    """Of the tanh layer, h in the paper."""
    order: int = 5
    """n: a word is predicted from the n - 1 before it, as in an n-gram model."""
    direct: bool = False
    """Whether the top layer also has the vectors of the context, for direct connections to the output."""

    output_cutoffs: tuple[int, ...] = ()
    """Where the clusters of rare pieces begin in the softmax above, if that is an adaptive one; none: it is full."""

    dropout_rate: float = 0.0
    """Of the tanh layer."""
    embedding_dropout_rate: float = 0.0
    """Of the token layer."""
    init_std: float = 0.1
    """Of the table of pieces and of the output; the tanh layer is drawn as torch draws linear layers."""

    def __post_init__(self) -> None:
        for name, least in (("n_pieces", 1), ("token_width", 1), ("width", 1), ("order", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ModelError(
                    f"The '{name}' of an encoder with a fixed context must be a whole number from {least} on. Got "
                    f"{value!r} instead." + (" A word is predicted from order - 1 words." if name == "order" else "")
                )
        if not isinstance(self.direct, bool):
            raise ModelError(f"The 'direct' connections are there or not: true or false. Got {self.direct!r} instead.")
        for name in ("dropout_rate", "embedding_dropout_rate"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ModelError(f"The '{name}' must be a number from 0 to below 1. Got {value!r} instead.")
        if self.memory not in ("state", "none"):
            raise ModelError(f"An encoder with a fixed context has memory 'state' or 'none'. Got {self.memory!r}.")

    @property
    def n_read(self) -> int:
        """How many words a state has seen, n - 1."""
        return self.order - 1

    @property
    def direction(self) -> Direction:
        return "causal"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.token_width, self.width + self.direct * self.n_read * self.token_width)

    @property
    def window(self) -> int | None:
        return max(LONGEST_ROW, 4 * self.order) if self.max_positions is None else self.max_positions

    @property
    def matrix_weights(self) -> int:
        return self.n_read * self.token_width * self.width


@dataclass
class LastPieces(Memory):
    """The last n - 2 pieces of each row, the latest on the right."""

    pieces: Tensor
    """[R, n - 2]; `ABSENT` before the beginning."""


class FixedContext(Encoder):
    """Layer 0 is C, a vector for each word; layer 1 what is made of the last n - 1 of them."""

    config: FixedContextConfig

    def __init__(self, config: FixedContextConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = PieceTokens(config.n_pieces, config.token_width, config.init_std)
        self.dropout_of_tokens = nn.Dropout(config.embedding_dropout_rate)
        self.hidden = nn.Linear(config.n_read * config.token_width, config.width)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        for name in ("mask", "source", "targets"):
            if getattr(batch, name) is not None:
                raise ModelError(f"The batch has a {name}, which an encoder with a fixed context cannot read.")
        numbers = wanted_layers(layers, 1)
        earlier = self._earlier(memory, batch.pieces)
        tokens = self.dropout_of_tokens(self.tokens(batch.pieces))  # [R, T, m]
        states = {0: tokens} if 0 in numbers else {}
        if 1 in numbers:
            x = self._contexts(tokens, earlier)
            h = self.dropout(torch.tanh(self.hidden(x)))
            states[1] = torch.cat([h, x], dim=-1) if self.config.direct else h
        after = None
        if memory is not None:
            n_read = batch.pieces.shape[1] if batch.lengths is None else batch.lengths
            last = keep_last(earlier[..., None], batch.pieces[..., None], batch.lengths, earlier.shape[1])[..., 0]
            after = LastPieces(memory.lengths + n_read, last)
        return States(states, batch.lengths, 1, memory=after)

    def _contexts(self, tokens: Tensor, earlier: Tensor) -> Tensor:
        """[R, T, (n - 1) · m]: of each place the vector of its piece, then of the piece before it, and so on."""
        n_read, n_times = self.config.n_read, tokens.shape[1]
        before = self.dropout_of_tokens(self.tokens(earlier.clamp(min=0)))
        before = before.masked_fill((earlier == ABSENT)[..., None], 0.0)
        both = torch.cat([before, tokens], dim=1)  # [R, n - 2 + T, m]
        return torch.cat([both[:, back : back + n_times] for back in reversed(range(n_read))], dim=-1)

    def _earlier(self, memory: Memory | None, pieces: Tensor) -> Tensor:
        """[R, n - 2]: the pieces before the rows."""
        if memory is None:
            return pieces.new_full((pieces.shape[0], self.config.n_read - 1), ABSENT)
        if self.config.memory != "state" or not isinstance(memory, LastPieces):
            raise ModelError(
                f"An encoder with a fixed context and memory {self.config.memory!r} was given a "
                f"{type(memory).__name__}. Begin with new_memory of the same encoder."
            )
        check_rows(memory, pieces.shape[0])
        return memory.pieces

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        """No piece yet; it takes no more room, however much is read."""
        if self.config.memory != "state":
            return super().new_memory(rows, capacity)
        lengths = torch.zeros(rows, dtype=torch.long, device=self.tokens.table.device)
        return LastPieces(lengths, lengths.new_full((rows, self.config.n_read - 1), ABSENT))

    def piece_table(self) -> nn.Parameter | None:
        return self.tokens.table

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.tokens.table], list(self.hidden.parameters())]
