"""What comes next by models without an encoder: an n-gram model, and a mixture of several models.

Shapes: R rows, T pieces, O the order, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.generating.next_piece import log_probs_from
from polyseme.ngrams.model_folder import NGramModel
from polyseme.ngrams.tables import Ints
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, NextPiece


@dataclass
class NGramMemory(Memory):
    """The state of each row: the n-grams that its last pieces are."""

    states: Tensor
    """[R, O - 1]"""


class NGramSteps:
    """An n-gram model, step by step."""

    normalized = True

    def __init__(self, model: NGramModel) -> None:
        self.tables = model.tables

    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        pieces = batch.pieces.cpu().numpy()
        lengths = np.full(len(pieces), pieces.shape[1]) if batch.lengths is None else batch.lengths.cpu().numpy()
        states = self.tables.new_states(len(pieces))
        for place in range(pieces.shape[1]):
            further = self.tables.advance(states, pieces[:, place])
            states = np.where((place < lengths)[:, None], further, states)
        return self._advance(states, torch.from_numpy(lengths), batch)

    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if not isinstance(memory, NGramMemory):
            raise ModelError(f"The memory of an n-gram model is its own. Got {type(memory).__name__} instead.")
        states = self.tables.advance(memory.states.cpu().numpy(), batch.pieces[:, 0].cpu().numpy())
        return self._advance(states, memory.lengths + 1, batch)

    def _advance(self, states: Ints, lengths: Tensor, batch: Batch) -> tuple[Tensor, Memory]:
        device = batch.pieces.device
        log_probs = torch.from_numpy(self.tables.all_log_probs(states)).float()
        return log_probs.to(device), NGramMemory(lengths.to(device), torch.from_numpy(states).to(device))


@dataclass
class MixtureMemory(Memory):
    """The memories of all models."""

    parts: tuple[Memory, ...]


class MixtureSteps:
    """Several models over the same pieces, step by step, mixed."""

    normalized = True

    def __init__(self, parts: Sequence[NextPiece], weights: Sequence[float], n_pieces: int) -> None:
        self.parts = parts
        self.weights = weights
        self.n_pieces = n_pieces

    def start(self, batch: Batch, capacity: int) -> tuple[Tensor, Memory]:
        return self._mix([part.start(batch, capacity) for part in self.parts])

    def step(self, batch: Batch, memory: Memory) -> tuple[Tensor, Memory]:
        if not isinstance(memory, MixtureMemory):
            raise ModelError(f"The memory of a mixture is its own. Got {type(memory).__name__} instead.")
        return self._mix([part.step(batch, before) for part, before in zip(self.parts, memory.parts, strict=True)])

    def _mix(self, results: Sequence[tuple[Tensor, Memory]]) -> tuple[Tensor, Memory]:
        weights = results[0][0].new_tensor(self.weights).log()
        parts = zip(self.parts, results, strict=True)
        each = torch.stack([log_probs_from(part, scores)[:, : self.n_pieces] for part, (scores, _) in parts])
        log_probs = (each + weights[:, None, None]).logsumexp(dim=0)
        return log_probs, MixtureMemory(results[0][1].lengths, tuple(memory for _, memory in results))
