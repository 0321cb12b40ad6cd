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

AHEAD = 8
"""Pieces that are chosen in one graph, where several are; the rest, one by one."""
WARM_UPS = 3
"""Runs before one is captured, in which kernels are compiled and chosen, and room is set aside."""


class Steps(Protocol):
    """What is captured (`fast_decoder.FastSteps`)."""

    def scores(self, pieces: Tensor, memory: Cache, *, n_slots: int) -> Tensor:
        """The scores [R, V] of what follows `pieces` [R]."""

    def choose(
        self, pieces: Tensor, memory: Cache, never: Tensor, chosen: Tensor, likelihoods: Tensor, *, n_slots: int
    ) -> None:
        """Read `pieces`, and write the likeliest of what follows in their place."""


def _keys_and_values(cache: Cache) -> tuple[tuple[Tensor, ...], ...]:
    return cache.keys, cache.values, cache.source_keys, cache.source_values


class Graph:
    """The step for one number of rows and of slots, over buffers that stay where they are.

    On a GPU it is captured when it is first run, and replayed from then on; so are `AHEAD` steps and one with the
    choice of the next piece in them. A cache that is returned is these buffers themselves; one from elsewhere (prompts
    just read, rows picked for a beam) is copied in.
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
        self.never: Tensor | None = None
        self.likeliest = like.lengths.new_zeros(AHEAD, n_rows)
        self.likelihoods = torch.zeros(AHEAD, n_rows, device=like.lengths.device)
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}
        """By the number of pieces that are chosen in it."""
        self._returned: Cache | None = None

    def __call__(self, pieces: Tensor, memory: Cache) -> tuple[Tensor, Cache]:
        self._begin(pieces, memory)
        self._run(0)
        self._returned = dataclasses.replace(self.memory)
        return self.scores.clone(), self._returned

    def chosen(self, pieces: Tensor, memory: Cache, never: Tensor, n_new: int) -> tuple[Tensor, Tensor, Cache]:
        """`FastSteps.chosen`."""
        self._begin(pieces, memory)
        if self.never is None:
            self.never = never.clone()
        else:
            self.never.copy_(never)
        likeliest: list[Tensor] = []
        likelihoods: list[Tensor] = []
        n_left = n_new
        while n_left:
            n_chosen = AHEAD if n_left >= AHEAD else 1
            self._run(n_chosen)
            likeliest.append(self.likeliest[:n_chosen].clone())
            likelihoods.append(self.likelihoods[:n_chosen].clone())
            n_left -= n_chosen
        self._returned = dataclasses.replace(self.memory)
        return torch.cat(likeliest), torch.cat(likelihoods), self._returned

    def _begin(self, pieces: Tensor, memory: Cache) -> None:
        if memory is not self._returned:
            self._take_in(memory)
        self.pieces.copy_(pieces)

    def _take_in(self, memory: Cache) -> None:
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

    def _step(self, n_chosen: int) -> None:
        """One step that ends in scores, or several that end in the choice of a piece."""
        if not n_chosen:
            self.scores = self.steps.scores(self.pieces, self.memory, n_slots=self.n_slots)
            self.memory.lengths.add_(1)
        for number in range(n_chosen):
            assert self.never is not None
            self.steps.choose(
                self.pieces,
                self.memory,
                self.never,
                self.likeliest[number],
                self.likelihoods[number],
                n_slots=self.n_slots,
            )

    def _run(self, n_chosen: int) -> None:
        if self.pieces.device.type != "cuda":
            self._step(n_chosen)
        else:
            with torch.cuda.device(self.pieces.device):
                if n_chosen not in self._captured:
                    self._captured[n_chosen] = self._capture(n_chosen)
                self._captured[n_chosen].replay()

    def _capture(self, n_chosen: int) -> torch.cuda.CUDAGraph:
        """Warm up beside the main stream, then capture. Slots that are written on the way are written again.

        Warm-ups are of all that is captured: kernels are compiled for the alignment of what they are given, which is
        not the same in every step, and none can be loaded during a capture.
        """
        lengths, pieces = self.memory.lengths.clone(), self.pieces.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._step(n_chosen)
                self.memory.lengths.copy_(lengths)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(n_chosen)
        self.memory.lengths.copy_(lengths)
        self.pieces.copy_(pieces)
        return graph
