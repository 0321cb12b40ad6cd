"""What comes next, by the models there are: `NextPiece` over an encoder and an output.

`StepByStep` reads each piece once and hands on the encoder's memory, of whatever kind that is. `Rereading` reads the
whole row again for every piece; it is for encoders without a memory, and for masked models, which guess a mask that
stands at the end.

Shapes: R rows, T pieces, S slots, D width, V pieces in the vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.decode.fast import FastSteps, log_probs_of, steps_fast
from polyseme.encoders.base import Encoder
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.outputs.base import Output
from polyseme.parts.memory import Cache, Memory
from polyseme.types import Batch, NextPiece

ROUND_CAPACITY = 128
"""On a GPU, caches are this many slots or a multiple, so that few shapes serve all prompts."""


class StepByStep:
    """A causal encoder with a memory, and the output that reads its top layer."""

    def __init__(self, encoder: Encoder, output: Output, *, fast: bool = True) -> None:
        self.encoder = encoder
        self.output = output
        self.steps = FastSteps(encoder, output) if fast and steps_fast(encoder) else None

    def settle(self) -> None:
        """Prepare for much work."""
        if self.steps is not None:
            self.steps.settle()

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        """Read the prompts; only their last pieces reach the vocabulary."""
        if batch.pieces.device.type == "cuda":
            capacity = -(-capacity // ROUND_CAPACITY) * ROUND_CAPACITY
        return self._read(batch, self.encoder.new_memory(batch.pieces.shape[0], capacity))

    @torch.no_grad()
    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if self.steps is not None and isinstance(memory, Cache):
            return self.steps(batch.pieces[:, 0], memory)
        return self._read(batch, memory)

    def _read(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        states = self.encoder(batch, layers=[-1], memory=memory)
        if states.memory is None:
            raise ModelError(f"An encoder of kind {self.encoder.config.kind!r} was given a memory, and handed none on.")
        top = states[-1]  # [R, T, D]
        last = top[:, -1] if batch.lengths is None else _at(top, batch.lengths - 1)
        return log_probs_of(self.output, last), states.memory


@dataclass
class PiecesSoFar(Memory):
    """The pieces themselves, to be read again."""

    pieces: Tensor
    """[R, S]; a row's pieces stand at the left."""


class Rereading:
    """Any encoder that sees what stands to the left, without a memory: the row is read anew for each piece.

    `after` are pieces put behind the row, a mask first, with their `segments`: what is guessed is then the mask. With
    none, the state of the row's last piece says what follows.
    """

    def __init__(
        self, encoder: Encoder, output: Output, *, after: Sequence[int] = (), segments: Sequence[int] = ()
    ) -> None:
        self.encoder = encoder
        self.output = output
        self.after = tuple(after)
        self.segments = tuple(segments) if any(segments) else ()

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        n_rows, longest = batch.pieces.shape
        pieces = batch.pieces.new_zeros(n_rows, max(capacity, longest))
        pieces[:, :longest] = batch.pieces
        lengths = batch.lengths
        if lengths is None:
            lengths = torch.full((n_rows,), longest, device=pieces.device)
        return self._read(PiecesSoFar(lengths, pieces))

    @torch.no_grad()
    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if not isinstance(memory, PiecesSoFar):
            raise ModelError(f"The memory of a model that rereads is its pieces. Got {type(memory).__name__} instead.")
        pieces = memory.pieces.scatter(1, memory.lengths[:, None], batch.pieces)
        return self._read(PiecesSoFar(memory.lengths + 1, pieces))

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
        return log_probs_of(self.output, _at(states, lengths if n_after else lengths - 1)), memory


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A bundle as decoding sees it."""

    next_piece: NextPiece
    n_pieces: int
    device: torch.device
    before: tuple[int, ...] = ()
    """Pieces of the frame, put before whatever is read."""
    room: int | None = None
    """How many pieces can be read at once, those of the frame left out; None: any number."""
    end: int | None = None
    """The piece that ends a text."""
    forbidden: tuple[int, ...] = ()
    """Pieces that are never written: those of no text, such as padding and masks, and rows without a piece."""

    def settle(self) -> None:
        """Prepare for much work, where that means anything."""
        if isinstance(self.next_piece, StepByStep):
            self.next_piece.settle()


def language_model(bundle: Bundle) -> LanguageModel:
    """What a bundle has to write on with; refused where it has nothing. Directions decide, never families."""
    if bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a prompt.")
    encoder = bundle.encoder.halves()[0]
    config, tokenizer = encoder.config, bundle.tokenizer
    framed = tokenizer.frame(np.zeros(0, dtype=np.int64))
    before = tuple(framed.ids[: framed.offset].tolist())
    n_around = len(before)
    next_piece: NextPiece
    if config.direction == "causal" and isinstance(output := _output(bundle, "causal"), Output):
        next_piece = Rereading(encoder, output) if config.memory == "none" else StepByStep(encoder, output)
    elif (
        config.direction == "both"
        and "mask" in tokenizer.specials
        and isinstance(output := _output(bundle, "masked"), Output)
    ):
        after = [tokenizer.specials["mask"], *framed.ids[framed.offset :].tolist()]
        segments = [0, *framed.segments[framed.offset :].tolist()]
        next_piece = Rereading(encoder, output, after=after, segments=segments)
        n_around += len(after)
        warnings.warn(
            "The model has learnt to fill masks, not to write on. A mask at the end of the text is filled again and "
            "again, and the whole text is read for each: expect little of it, and no speed.",
            PolysemeWarning,
            stacklevel=3,
        )
    else:
        has = ", ".join(bundle.outputs) or "none"
        raise ModelError(
            f"The model cannot generate: it sees {config.direction!r} and has the outputs: {has}. That takes a "
            "'causal' output over what stands before a piece, or a 'masked' one and a mask piece. Take a checkpoint "
            "that was saved with it."
        )
    return LanguageModel(
        next_piece=next_piece,
        n_pieces=bundle.encoder.config.n_pieces,
        device=bundle.device,
        before=before,
        room=None if config.max_positions is None else config.max_positions - n_around,
        end=tokenizer.specials.get("end"),
        forbidden=_forbidden(bundle),
    )


def _at(states: Tensor, places: Tensor) -> Tensor:
    """The state at one place of each row: [R, T, D] and [R] → [R, D]"""
    return states.gather(1, places[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


def _output(bundle: Bundle, name: str) -> object:
    return dict(bundle.outputs.items()).get(name)


def _forbidden(bundle: Bundle) -> tuple[int, ...]:
    if bundle.tokenizer is None:
        return ()
    specials = bundle.tokenizer.specials
    never = {specials[role] for role in ("start", "pad", "mask") if role in specials} - {specials.get("end")}
    return (*sorted(never), *range(bundle.tokenizer.n_pieces, bundle.encoder.config.n_pieces))
