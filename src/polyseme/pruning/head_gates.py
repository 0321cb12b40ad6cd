"""Gates on attention heads: numbers that the output of each head is multiplied with, before heads are put together.

A head with a gate of 0 is as good as removed. Gates are put on from outside, by hooks, so that nothing of it is in the
encoder's own code; they act where the plain modules run, which is everywhere but in packed inference.

Shapes: R rows, T pieces, H heads, d head width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from polyseme.pruning.head_removal import AttentionPlace, Attentions

GateFor = Callable[[AttentionPlace, int, Tensor], Tensor]
"""Which attention, of how many rows, and a tensor to be like → gates [H] or [R, H]."""


@contextlib.contextmanager
def apply_gates(attentions: Attentions, gate_for: GateFor) -> Iterator[None]:
    """Within this block, the outputs of heads are multiplied with gates."""

    def hook_of(at: AttentionPlace) -> Callable[[Any, tuple[Tensor]], tuple[Tensor]]:
        def hook(module: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
            heads = inputs[0].unflatten(-1, (attentions[at].n_heads, attentions[at].head_width))  # [R, T, H, d]
            gates = gate_for(at, len(heads), heads)
            return ((heads * (gates if gates.dim() == 1 else gates[:, None])[..., None]).flatten(-2),)

        return hook

    handles = [
        attention.output.register_forward_pre_hook(hook_of(at))
        for at, attention in attentions.items()
        if attention.n_heads
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def fixed_gates(gates: Mapping[AttentionPlace, Tensor]) -> GateFor:
    """The same gates for all rows."""
    return lambda at, n_rows, like: gates[at].to(like)


class RowGates:
    """Gates of 1, one set per row, so that the gradient of a loss by them is that of each row by itself."""

    def __init__(self, attentions: Attentions) -> None:
        self.attentions = attentions
        self.gates: dict[tuple[AttentionPlace, int], Tensor] = {}

    def __call__(self, at: AttentionPlace, n_rows: int, like: Tensor) -> Tensor:
        key = at, n_rows
        if key not in self.gates:
            n_heads = self.attentions[at].n_heads
            self.gates[key] = torch.ones(n_rows, n_heads, dtype=like.dtype, device=like.device, requires_grad=True)
        return self.gates[key]

    def gradients(self, loss: Tensor) -> dict[AttentionPlace, list[Tensor]]:
        """[R, H] each: of a sum of losses of rows, the part of every row, for each number of rows that was read."""
        gradients = torch.autograd.grad(loss, list(self.gates.values()), allow_unused=True)
        by_place: dict[AttentionPlace, list[Tensor]] = {}
        for (at, _), gradient in zip(self.gates, gradients, strict=True):
            if gradient is not None:
                by_place.setdefault(at, []).append(gradient)
        return by_place
