"""What comes next, by the models there are: `NextPiece` over an encoder and an output.

`StepByStep` reads each piece once and passes on the encoder's memory, of whatever kind that is; a decoder is given its
source at the start, and keeps the source's keys in its memory. `CharacterSteps` does the same where words are read by
their characters. `RereadingSteps` reads the whole row again for every piece, for encoders without a memory and for
masked models, which predict a mask at the end. `QuerySteps` predicts with a query stream.

Shapes: R rows, T pieces, S slots, D width, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyseme.encoders.encoder import Encoder
from polyseme.encoders.inference import Precision, warn_where_slow
from polyseme.errors import ModelError, OptionError
from polyseme.generating.fast_decoder import FastSteps, steps_fast
from polyseme.outputs.output import Output
from polyseme.outputs.pieces import scores_of
from polyseme.parts.masks import Causal
from polyseme.parts.memory_and_cache import Cache, Memory, Segments
from polyseme.text.character_tokenizer import WordTable
from polyseme.types import Batch, NextPiece, States

ROUND_CAPACITY = 128
"""On a GPU, caches are this many slots or a multiple, so that few shapes serve all prompts."""


def log_probs_from(next_piece: NextPiece, scores: Tensor) -> Tensor:
    """The log-probabilities behind scores, [R, V]."""
    return scores if next_piece.normalized else scores.log_softmax(dim=-1)


class StepByStep:
    """A causal encoder with a memory, and the output that reads its top layer."""

    normalized = False

    def __init__(self, encoder: Encoder, output: Output, *, fast: bool = True, precision: Precision = "own") -> None:
        self.encoder = encoder
        self.output = output
        self.steps = FastSteps(encoder, output, precision) if fast and steps_fast(encoder) else None

    def prepare(self, *, kernels: bool | None = None) -> None:
        """Prepare for much work (`FastSteps.prepare`)."""
        if self.steps is not None:
            self.steps.prepare(kernels=kernels)

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        """Read the prompts; only their last pieces reach the vocabulary."""
        if batch.pieces.device.type == "cuda":
            capacity = -(-capacity // ROUND_CAPACITY) * ROUND_CAPACITY
        memory = self.encoder.new_memory(batch.pieces.shape[0], capacity)
        window = self.encoder.config.window
        if isinstance(memory, Segments) and window is not None and batch.pieces.shape[1] > window:
            return self._read_in_segments(batch, memory, window)
        return self._read(batch, memory)

    @torch.no_grad()
    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if self.steps is not None and isinstance(memory, Cache):
            return self.steps(batch.pieces[:, 0], memory)
        return self._read(batch, memory)

    def has_greedy_steps(self, memory: Memory) -> bool:
        """Whether `greedy_steps` continues from this memory."""
        return self.steps is not None and self.steps.greedy and isinstance(memory, Cache)

    @torch.no_grad()
    def greedy_steps(
        self, pieces: Tensor, memory: Memory, forbidden: Tensor, n_new: int
    ) -> tuple[Tensor, Tensor, Memory]:
        """Read `pieces` [R] and `n_new` - 1 more, each the likeliest (`FastSteps.greedy_steps`)."""
        if self.steps is None or not isinstance(memory, Cache):
            raise ModelError("Only an encoder with a fast step and a cache has greedy steps.")
        return self.steps.greedy_steps(pieces, memory, forbidden, n_new)

    def _read(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        states = self.encoder(batch, layers=[-1], memory=memory)
        top = states[-1]  # [R, T, D]
        last = top[:, -1] if batch.lengths is None else _states_at(top, batch.lengths - 1)
        return scores_of(self.output, last), _memory_of(self.encoder, states)

    def _read_in_segments(self, batch: Batch, memory: Memory, window: int) -> tuple[Tensor, Memory]:
        """Segment after segment, each as long as the encoder reads at once; a row's last piece may be in any."""
        longest, lengths = batch.pieces.shape[1], _lengths(batch)
        last: Tensor | None = None
        for begin in range(0, longest, window):
            pieces = batch.pieces[:, begin : begin + window]
            here = (lengths - begin).clamp(0, pieces.shape[1])
            states = self.encoder(Batch(pieces, here), layers=[-1], memory=memory)
            memory = _memory_of(self.encoder, states)
            reached = _states_at(states[-1], (here - 1).clamp(min=0))
            last = reached if last is None else torch.where((here > 0)[:, None], reached, last)
        if last is None:
            raise ModelError("There is nothing to read.")
        return scores_of(self.output, last), memory


def in_precision(next_piece: NextPiece, precision: Precision) -> NextPiece:
    """The same with products in bf16 or int8 in its steps; what is read before the first step is read in fp32."""
    if precision == "own":
        return next_piece
    if not isinstance(next_piece, StepByStep) or next_piece.steps is None:
        raise OptionError(
            f"The model cannot generate in {precision} on a CPU: that takes a Transformer that keeps the keys and "
            "values of earlier pieces (a 'cache'). Load it in fp32 (dtype fp32)."
        )
    warn_where_slow(precision, stacklevel=6)
    return StepByStep(next_piece.encoder, next_piece.output, precision=precision)


class CharacterSteps:
    """Words by number, read by their characters: the forward half of a two-way encoder, and its softmax."""

    normalized = False

    def __init__(self, encoder: Encoder, output: Output, words: WordTable) -> None:
        self.steps = StepByStep(encoder, output)
        self.words = words

    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        return self.steps.start(self._spell(batch), capacity)

    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        return self.steps.step(self._spell(batch), memory)

    def _spell(self, batch: Batch) -> Batch:
        characters = torch.from_numpy(self.words.characters(batch.pieces.cpu().numpy()))
        return Batch(characters.to(batch.pieces.device), batch.lengths)


@dataclass
class PiecesSoFar(Memory):
    """The pieces themselves, to be read again."""

    pieces: Tensor
    """[R, S]; a row's pieces are at the left."""

    @classmethod
    def of(cls, batch: Batch, capacity: int) -> PiecesSoFar:
        n_rows, longest = batch.pieces.shape
        pieces = batch.pieces.new_zeros(n_rows, max(capacity, longest))
        pieces[:, :longest] = batch.pieces
        return cls(_lengths(batch), pieces)

    def grown(self, pieces: Tensor) -> PiecesSoFar:
        """With one more piece in each row, [R, 1]."""
        return PiecesSoFar(self.lengths + 1, self.pieces.scatter(1, self.lengths[:, None], pieces))


class RereadingSteps:
    """Any encoder that sees earlier pieces, without a memory: the row is read again for each piece.

    `after` are pieces put behind the row, a mask first, with their `segments`: the mask is then predicted. With
    none, the state of the row's last piece says what follows.
    """

    normalized = False

    def __init__(
        self, encoder: Encoder, output: Output, *, after: Sequence[int] = (), segments: Sequence[int] = ()
    ) -> None:
        self.encoder = encoder
        self.output = output
        self.after = tuple(after)
        self.segments = tuple(segments) if any(segments) else ()

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        return self._read(PiecesSoFar.of(batch, capacity))

    @torch.no_grad()
    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if not isinstance(memory, PiecesSoFar):
            raise ModelError(f"The memory of a model that rereads is its pieces. Got {type(memory).__name__} instead.")
        return self._read(memory.grown(batch.pieces))

    def _read(self, memory: PiecesSoFar) -> tuple[Tensor, Memory]:
        lengths = memory.lengths
        longest, n_after = int(lengths.max()), len(self.after)
        pieces = memory.pieces.new_zeros(len(lengths), longest + n_after)
        pieces[:, :longest] = memory.pieces[:, :longest]
        segments: Tensor | None = None
        if n_after:
            places = lengths[:, None] + torch.arange(n_after, device=lengths.device)
            pieces.scatter_(1, places, pieces.new_tensor(self.after).expand_as(places))
            if self.segments:
                segments = torch.zeros_like(pieces)
                segments.scatter_(1, places, pieces.new_tensor(self.segments).expand_as(places))
        states = self.encoder(Batch(pieces, lengths + n_after, segments), layers=[-1])[-1]
        return scores_of(self.output, _states_at(states, lengths if n_after else lengths - 1)), memory


class QuerySteps:
    """An encoder with a query stream (XLNet), from left to right: a query is where the next piece will be.

    It knows its place, and sees the pieces before it. Pieces go into the encoder's memory where that keeps
    everything; else the row is read again for each piece.
    """

    normalized = False

    def __init__(self, encoder: Encoder, output: Output) -> None:
        self.encoder = encoder
        self.output = output
        config = encoder.config
        self.remembers = config.memory == "segment" and config.memory_length is None and config.reuse is None

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        if self.remembers:
            return self._read(batch.pieces, _lengths(batch), self.encoder.new_memory(len(batch.pieces)))
        return self._reread(PiecesSoFar.of(batch, capacity))

    @torch.no_grad()
    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if isinstance(memory, PiecesSoFar):
            return self._reread(memory.grown(batch.pieces))
        return self._read(batch.pieces, torch.ones_like(memory.lengths), memory)

    def _reread(self, memory: PiecesSoFar) -> tuple[Tensor, Memory]:
        longest = int(memory.lengths.max())
        return self._read(memory.pieces[:, :longest], memory.lengths, None)[0], memory

    def _read(self, pieces: Tensor, lengths: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Read rows, with a query behind the last piece of each."""
        room = torch.cat([pieces, pieces.new_zeros(len(pieces), 1)], dim=1)
        states = self.encoder(
            Batch(room, lengths, torch.zeros_like(room), mask=Causal(), targets=lengths[:, None]),
            layers=[-1],
            memory=memory,
        )
        scores = scores_of(self.output, states.queries[states.depth][:, 0])
        return scores, Memory(lengths) if memory is None else _memory_of(self.encoder, states)


def _lengths(batch: Batch) -> Tensor:
    n_rows, longest = batch.pieces.shape
    return torch.full((n_rows,), longest, device=batch.pieces.device) if batch.lengths is None else batch.lengths


def _memory_of(encoder: Encoder, states: States) -> Memory:
    if states.memory is None:
        raise ModelError(f"An encoder of kind {encoder.config.kind!r} was given a memory, and returned none.")
    return states.memory


def _states_at(states: Tensor, places: Tensor) -> Tensor:
    """The state at one place of each row: [R, T, D] and [R] → [R, D]"""
    return states.gather(1, places[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]
