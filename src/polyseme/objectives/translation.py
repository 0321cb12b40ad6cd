"""Translation (Vaswani et al. 2017): from texts in pairs, the target piece by piece, with label smoothing.

Whatever the two sides are, a language and another, long texts and short ones: one is read and the other is written.

Shapes: R rows, T pieces of a row, on either side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.parallel_text import ParallelPairs
from polyseme.errors import OptionError
from polyseme.objectives.objective import BaseObjective, TwoStackNets, refuse_no_first, shared_arrays, training_flops
from polyseme.types import Example, Needs, Rows


@dataclass(frozen=True, kw_only=True)
class Translation(BaseObjective):
    """Every piece of a target is predicted, its end too; padding is not."""

    name: ClassVar[str] = "translation"

    smoothing: float = 0.1
    """The share of a target's probability that is spread evenly over all pieces, in training."""

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise OptionError(f"The smoothing of labels must be from 0 to below 1. Got {self.smoothing} instead.")

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        """None: the loss of training is not that of predicting pieces."""
        return ()

    @property
    def needs(self) -> Needs:
        return Needs(directions=("both",), outputs=("causal",), layout=ParallelPairs(), two_stacks=True)

    def refuse(self, bundle: Bundle) -> None:
        refuse_no_first(bundle, self.name, self.vocabulary)

    def corrupt(self, rows: Rows) -> Example:
        target = rows.target
        if target is None or target.documents is None or target.positions is None:
            raise ValueError("Rows of pairs have a target, and say which pair each piece is of.")
        real = target.documents >= 0
        arrays = {
            **shared_arrays(rows, rows.pieces),
            "targets": target.pieces.astype(np.int32),
            "weights": real.astype(np.float32),
            "target_documents": target.documents.astype(np.int32),
            "target_positions": target.positions.astype(np.int32),
        }
        return Example(arrays, {self.name: float(real.sum())})

    def nets(self, bundle: Bundle) -> nn.Module:
        return TwoStackNets(bundle, self.known_vocabulary, self.name, self.smoothing)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """As if rows were full on both sides."""
        return training_flops(cast(TwoStackNets, nets), n_rows, length, length)
