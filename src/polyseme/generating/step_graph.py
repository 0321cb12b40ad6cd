"""The steps of decoding as CUDA graphs: captured once for each number of rows and slots, and replayed.

Shapes: R rows, S slots, V pieces in the vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.parts.memory_and_cache import Cache

GREEDY_STEPS = 8
"""Greedy steps in one graph. What is left of a number that is no multiple runs step by step."""
WARM_UPS = 3
"""Runs before a capture, in which kernels are compiled and selected, and memory is allocated."""


class Steps(Protocol):
    """What is captured (`fast_decoder.FastSteps`)."""

    def scores(self, pieces: Tensor, memory: Cache, *, n_slots: int) -> Tensor:
        """The scores [R, V] of what follows `pieces` [R]."""

    def greedy_step(
        self, pieces: Tensor, memory: Cache, forbidden: Tensor, chosen: Tensor, likelihoods: Tensor, *, n_slots: int
    ) -> None:
        """Read `pieces`, and write the likeliest of what follows in their place."""


def _keys_and_values(cache: Cache) -> tuple[tuple[Tensor, ...], ...]:
    return cache.keys, cache.values, cache.source_keys, cache.source_values


class Graph:
    """The step for one number of rows and of slots, over buffers that stay where they are.

    On a GPU it is captured when it first runs, and replayed from then on. So are one greedy step, which chooses the
    next piece, and `GREEDY_STEPS` of them. A cache that is returned is these buffers themselves; one from elsewhere
    (prompts just read, rows picked for a beam) is copied in.
    """

    def __init__(self, steps: Steps, like: Cache) -> None:
        self.steps = steps
        n_rows, _, self.n_slots, _ = like.keys[0].shape
        self.pieces = like.lengths.new_zeros(n_rows)
        keys, values, source_keys, source_values = (
            tuple(torch.zeros_like(each) for each in tensors) for tensors in _keys_and_values(like)
        )
        source_lengths = None if like.source_lengths is None else torch.zeros_like(like.source_lengths)
        self.memory = Cache(torch.zeros_like(like.lengths), keys, values, source_keys, source_values, source_lengths)
        self.scores: Tensor
        self.forbidden: Tensor | None = None
        self.likeliest = like.lengths.new_zeros(GREEDY_STEPS, n_rows)
        self.likelihoods = torch.zeros(GREEDY_STEPS, n_rows, device=like.lengths.device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """By the number of greedy steps in it; 0: one step that ends in scores."""
        self._returned: Cache | None = None

    def __call__(self, pieces: Tensor, memory: Cache) -> tuple[Tensor, Cache]:
        self._copy_inputs(pieces, memory)
        self._run(0)
        self._returned = dataclasses.replace(self.memory)
        return self.scores.clone(), self._returned

    def greedy_steps(
        self, pieces: Tensor, memory: Cache, forbidden: Tensor, n_new: int
    ) -> tuple[Tensor, Tensor, Cache]:
        """`FastSteps.greedy_steps`."""
        self._copy_inputs(pieces, memory)
        if self.forbidden is None:
            self.forbidden = forbidden.clone()
        else:
            self.forbidden.copy_(forbidden)
        likeliest: list[Tensor] = []
        likelihoods: list[Tensor] = []
        n_left = n_new
        while n_left:
            n_steps = GREEDY_STEPS if n_left >= GREEDY_STEPS else 1
            self._run(n_steps)
            likeliest.append(self.likeliest[:n_steps].clone())
            likelihoods.append(self.likelihoods[:n_steps].clone())
            n_left -= n_steps
        self._returned = dataclasses.replace(self.memory)
        return torch.cat(likeliest), torch.cat(likelihoods), self._returned

    def _copy_inputs(self, pieces: Tensor, memory: Cache) -> None:
        if memory is not self._returned:
            self._copy_memory(memory)
        self.pieces.copy_(pieces)

    def _copy_memory(self, memory: Cache) -> None:
        if memory.keys[0].data_ptr() == self.memory.keys[0].data_ptr():
            raise ModelError(
                "This memory is spent: its rows have been read on from, or others have taken their place. Continue "
                "with the memory that the last step returned, or keep a copy of it (memory.select)."
            )
        self.memory.lengths.copy_(memory.lengths)
        for ours, theirs in zip(_keys_and_values(self.memory), _keys_and_values(memory), strict=True):
            if ours:
                torch._foreach_copy_(list(ours), list(theirs))
        if self.memory.source_lengths is not None and memory.source_lengths is not None:
            self.memory.source_lengths.copy_(memory.source_lengths)

    def _step(self, n_greedy: int) -> None:
        """So many greedy steps; 0: one step that ends in scores."""
        if not n_greedy:
            self.scores = self.steps.scores(self.pieces, self.memory, n_slots=self.n_slots)
            self.memory.lengths.add_(1)
        for number in range(n_greedy):
            assert self.forbidden is not None
            self.steps.greedy_step(
                self.pieces,
                self.memory,
                self.forbidden,
                self.likeliest[number],
                self.likelihoods[number],
                n_slots=self.n_slots,
            )

    def _run(self, n_greedy: int) -> None:
        if self.pieces.device.type != "cuda":
            self._step(n_greedy)
        else:
            with torch.cuda.device(self.pieces.device):
                if n_greedy not in self._graphs:
                    self._graphs[n_greedy] = self._capture(n_greedy)
                self._graphs[n_greedy].replay()

    def _capture(self, n_greedy: int) -> torch.cuda.CUDAGraph:
        """Warm up beside the main stream, then capture. Slots that are written on the way are written again.

        Warm-ups are of all that is captured: kernels are compiled for the alignment of what they are given, which is
        not the same in every step, and none can be loaded during a capture.
        """
        lengths, pieces = self.memory.lengths.clone(), self.pieces.clone()
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(WARM_UPS):
                self._step(n_greedy)
                self.memory.lengths.copy_(lengths)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(n_greedy)
        self.memory.lengths.copy_(lengths)
        self.pieces.copy_(pieces)
        return graph
