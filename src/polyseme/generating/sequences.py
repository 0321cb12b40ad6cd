"""Texts that are being decoded: their pieces so far, the model's memory of them, and where and why they end.

Where a row has filled the positions, what is read of it moves on by a stride: the rest is read again as if the text
began there. Where that happens depends on the row's own length alone, so that rows are independent of their neighbors.
A stop string may begin in one piece and end in another, so that it is looked for in the text.

Shapes: R rows, S pieces at most, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import Tensor

from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import StepByStep, log_probs_from
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, States


class Lines:
    """Rows that are written side by side; `start` reads the prompts, `advance` one more piece each."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        max_new: int,
        *,
        stride: int | None = None,
        sources: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.model = model
        self.stride = stride
        self.sources = sources
        """What each row reads before it is written, where the model has a source."""
        self.sizes = [len(prompt) for prompt in prompts]
        """How many pieces each row has."""
        longest = max(self.sizes, default=0)
        self.pieces = torch.zeros(len(prompts), longest + max_new, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            self.pieces[row, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
        self.pieces = self.pieces.to(model.device)
        self.lengths = torch.tensor(self.sizes, device=model.device)
        self.firsts = [self._first_read(size) for size in self.sizes]
        """Where what is read of each row begins."""
        most = longest + max_new
        self.capacity = len(model.before) + (most if model.room is None else min(most, model.room))
        self.memory: Memory

    def start(self) -> Tensor:
        """Read the sources, if there are any, and the prompts; scores [R, V] of what follows each."""
        source = None if self.sources is None else self.model.read_source(self.sources)
        scores, self.memory = self._reread(range(len(self.sizes)), source)
        return scores

    def log_probs(self, scores: Tensor) -> Tensor:
        """The log-probabilities behind the scores of `start` and `advance`."""
        return log_probs_from(self.model.next_piece, scores)

    def whole(self) -> tuple[Tensor, Tensor]:
        """What the rows have been so far, the pieces before them included, [R, T], and their lengths [R]."""
        before = self.pieces.new_tensor(self.model.before).expand(len(self.pieces), -1)
        return torch.cat([before, self.pieces[:, : max(self.sizes)]], dim=1), self.lengths + before.shape[1]

    def select(self, rows: Sequence[int]) -> None:
        """Continue with these rows, in this order; a row may be picked more than once."""
        if list(rows) == list(range(len(self.sizes))):
            return
        index = torch.tensor(rows, device=self.pieces.device)
        self.pieces = self.pieces.index_select(0, index)
        self.lengths = self.lengths.index_select(0, index)
        self.memory = self.memory.select(index)
        self.sizes = [self.sizes[row] for row in rows]
        self.firsts = [self.firsts[row] for row in rows]

    def advance(self, chosen: Tensor) -> Tensor:
        """Write one piece per row, `chosen` [R], and read it; scores [R, V] of what follows."""
        if self.stride is not None:
            self._move([row for row, size in enumerate(self.sizes) if self._first_read(size + 1) != self.firsts[row]])
        self.write(chosen)
        scores, self.memory = self.model.next_piece.step(Batch(chosen[:, None]), self.memory)
        return scores

    def has_greedy_steps(self) -> bool:
        """Whether `greedy_steps` can continue: the model has such steps, and no row is read again from farther on."""
        model = self.model.next_piece
        return self.stride is None and isinstance(model, StepByStep) and model.has_greedy_steps(self.memory)

    def greedy_steps(self, latest: Tensor, forbidden: Tensor, n_new: int) -> tuple[Tensor, Tensor]:
        """Write and read `latest` [R], then the likeliest piece each time, until `n_new` pieces are chosen.

        The chosen pieces [n_new, R], of which the last is not written, and their log-probabilities. `forbidden` [V] is
        1 for pieces that are forbidden.
        """
        model = cast(StepByStep, self.model.next_piece)
        chosen, likelihoods, self.memory = model.greedy_steps(latest, self.memory, forbidden, n_new)
        written = torch.cat([latest[None], chosen[:-1]]).T  # [R, n_new]
        places = self.lengths[:, None] + torch.arange(n_new, device=written.device)
        self.pieces.scatter_(1, places, written)
        self.lengths = self.lengths + n_new
        self.sizes = [size + n_new for size in self.sizes]
        return chosen, likelihoods

    def write(self, chosen: Tensor) -> None:
        """Write one piece per row, without reading it."""
        self.pieces.scatter_(1, self.lengths[:, None], chosen[:, None])
        self.lengths = self.lengths + 1
        self.sizes = [size + 1 for size in self.sizes]

    def _first_read(self, size: int) -> int:
        """Where what is read of a row of this size begins."""
        room = self.model.room
        if room is None or self.stride is None or size <= room:
            return 0
        return self.stride * -(-(size - room) // self.stride)

    def _move(self, rows: Sequence[int]) -> None:
        """Let what is read of these rows begin farther on, so that one more piece has a position."""
        if not rows:
            return
        for row in rows:
            self.firsts[row] = self._first_read(self.sizes[row] + 1)
        _, memory = self._reread(rows)
        self.memory = self.memory.put(torch.tensor(rows, device=self.pieces.device), memory)

    def _reread(self, rows: Sequence[int], source: States | None = None) -> tuple[Tensor, Memory]:
        before = self.model.before
        stretches = [(row, self.firsts[row], self.sizes[row]) for row in rows]
        lengths = [len(before) + size - first for _, first, size in stretches]
        batch = self.pieces.new_zeros(len(stretches), max(lengths))
        batch[:, : len(before)] = self.pieces.new_tensor(before)
        for number, (row, first, size) in enumerate(stretches):
            batch[number, len(before) : lengths[number]] = self.pieces[row, first:size]
        level = min(lengths) == max(lengths)
        read = Batch(batch, None if level else torch.tensor(lengths, device=batch.device), source=source)
        return self.model.next_piece.start(read, self.capacity)


# --- results ----------------------------------------------------------------------------------------------------------


Ending = Literal["end", "stop", "length", "forbidden"]
"""The model ended the text; a stop string did; it has all the pieces it may have; every further piece was forbidden."""

TextOf = Callable[[int, Sequence[int]], str]
"""The text that some pieces add to a prompt, which is known by its number."""
OnPiece = Callable[[int, int, "GeneratedText"], None]
"""Called after every piece: prompt, number of the text, and the text as far as it is written."""


@dataclass
class GeneratedText:
    """One text, without its prompt."""

    pieces: list[int] = field(default_factory=list)
    """As they were written, the end piece left out."""
    log_probability: float = 0.0
    """Of the pieces, the end piece included, by the model itself; in a beam, as repetition control has changed it."""
    score: float = 0.0
    """In a beam, the log-probability by length; elsewhere the log-probability."""
    ending: Ending | None = None
    """Why the text ended; None while it is being written."""
    text: str | None = None
    """Where a stop string has ended it: the text before that."""


# --- stop strings -----------------------------------------------------------------------------------------------------


UNFINISHED = "\ufffd"
"""What a character decodes to while some of its bytes are still to come."""


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins, if there is one.

    >>> first_stop("Dawn broke. The end.", [" The", "."])
    10
    """
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=None)


def n_final(text: str, stops: Sequence[str]) -> int:
    """How much of a text that is still being written will stay, whatever comes: its end may begin a stop string.

    >>> n_final("Dawn broke. Th", [" The"])
    11
    """
    whole = len(text.rstrip(UNFINISHED))
    n_sure = whole
    for stop in stops:
        sizes = range(min(len(stop) - 1, whole), 0, -1)
        held = next((size for size in sizes if text.endswith(stop[:size], 0, whole)), 0)
        n_sure = min(n_sure, whole - held)
    return n_sure
