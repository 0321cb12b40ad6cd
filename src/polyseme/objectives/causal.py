"""Causal language modeling: every piece from those before it (Bengio et al. 2003, Radford et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.packed_rows import Packed
from polyseme.cost import forward_flops
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, batch_of, output_flops, shared_arrays
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Example, Needs, Rows


@dataclass(frozen=True, kw_only=True)
class Causal(BaseObjective):
    """Nothing is corrupted. Every piece but a row's first is a target, separators too; padding is not."""

    name: ClassVar[str] = "causal"

    @property
    def needs(self) -> Needs:
        return Needs(directions=("causal",), outputs=("causal",), layout=Packed())

    def corrupt(self, rows: Rows) -> Example:
        pad = self.vocabulary.pad
        targets = rows.pieces[:, 1:]
        n_targets = targets.size if pad is None else int((targets != pad).sum())
        return Example(shared_arrays(rows, rows.pieces), {"causal": float(n_targets)})

    def nets(self, bundle: Bundle) -> nn.Module:
        return CausalNets(bundle, None if self.known_vocabulary is None else self.known_vocabulary.pad)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        nets = cast(CausalNets, nets)
        forward = forward_flops(nets.encoder.config, [length] * n_rows)
        return 3.0 * (forward + output_flops(nets.output, n_rows * (length - 1)))


class CausalNets(Nets):
    """Encoder and output; the states of all pieces but the last predict the piece after them."""

    def __init__(self, bundle: Bundle, pad: int | None) -> None:
        super().__init__(bundle, "causal")
        self.pad = pad

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: pieces [R, T]."""
        pieces = arrays["pieces"].long()
        states = self.encoder(batch_of(arrays, pieces), layers=[-1], memory=memory)
        targets = pieces[:, 1:].flatten()
        losses = self.output.loss(states[-1][:, :-1].flatten(0, 1), targets)
        if self.pad is not None:
            losses = losses * (targets != self.pad)
        return {"causal": losses.sum()}, states.memory
