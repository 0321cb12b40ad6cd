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
from polyseme.corpus.layout import Layout
from polyseme.corpus.padded_pairs import PaddedPairs
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
    packed: bool = True
    """Whether pairs share rows, each hidden from the others by a mask; else there is one in a row."""

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise OptionError(f"The smoothing of labels must be from 0 to below 1. Got {self.smoothing} instead.")

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        """None: the loss of training is not that of predicting pieces."""
        return ()

    @property
    def needs(self) -> Needs:
        layout: Layout = ParallelPairs() if self.packed else PaddedPairs()
        return Needs(directions=("both", "causal"), outputs=("causal",), layout=layout, two_stacks=True)

    def refuse(self, bundle: Bundle) -> None:
        if self.packed and not bundle.config.follows_masks:
            raise OptionError(
                "Pairs that share a row are hidden from each other by a mask, which an encoder of kind "
                f"{bundle.config.kind!r} cannot follow. Put one into each row (--objective packed=false)."
            )
        refuse_no_first(bundle, self.name, self.vocabulary)

    def corrupt(self, rows: Rows) -> Example:
        target = rows.target
        if target is None:
            raise ValueError("Rows of pairs have a target.")
        arrays = {**shared_arrays(rows, rows.pieces), "targets": target.pieces.astype(np.int32)}
        if target.documents is not None and target.positions is not None:
            real = target.documents >= 0
            arrays["target_documents"] = target.documents.astype(np.int32)
            arrays["target_positions"] = target.positions.astype(np.int32)
        elif target.lengths is not None:
            real = np.arange(target.pieces.shape[1])[None] < target.lengths[:, None]
        else:
            raise ValueError("Targets say which pair each piece is of, or how many pieces they have.")
        return Example({**arrays, "weights": real.astype(np.float32)}, {self.name: float(real.sum())})

    def nets(self, bundle: Bundle) -> nn.Module:
        return TwoStackNets(bundle, self.known_vocabulary, self.name, self.smoothing)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """As if rows were full on both sides."""
        return training_flops(cast(TwoStackNets, nets), n_rows, length, length)
