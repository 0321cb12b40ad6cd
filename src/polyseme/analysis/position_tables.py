"""The positions of a model as tables of numbers: sinusoids, learned vectors, biases by distance, rotations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.parts.positions import (
    LearnedPositions,
    PositionColumns,
    PositionRows,
    SharedPositions,
    SinusoidalPositions,
)

MAX_POSITIONS = 64
"""Positions that are drawn of a table without a bound."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnPositions:
    """What a stack knows of its first positions, or of the first distances between two."""

    stack: str
    kind: str
    """As the config names it: sinusoidal, learned, buckets, relative, rotary."""
    values: NDArray[np.float64]
    """[n, columns]"""
    first: int
    """The position or distance of the first row."""
    rows: PositionRows
    columns: PositionColumns


def drawn_positions(bundle: Bundle, *, n: int = MAX_POSITIONS) -> list[DrawnPositions]:
    """The positions of each stack that has any, those of two that have the same once; recurrent encoders have none."""
    stacks = {"encoder": bundle.encoder} | ({} if bundle.decoder is None else {"decoder": bundle.decoder})
    drawn: list[DrawnPositions] = []
    for stack, encoder in stacks.items():
        for module in encoder.modules():
            if isinstance(module, (LearnedPositions, SinusoidalPositions, SharedPositions)):
                table = module.as_table(n)
                values = table.values.detach().double().cpu().numpy()
                kind = str(encoder.config.positions)  # type: ignore[attr-defined]  # only Transformers have such parts
                own = DrawnPositions(
                    stack=stack, kind=kind, values=values, first=table.first, rows=table.rows, columns=table.columns
                )
                same = [each for each in drawn if each.kind == kind and np.array_equal(each.values, values)]
                for each in same:
                    drawn[drawn.index(each)] = replace(each, stack=f"{each.stack} and {stack}")
                drawn += [] if same else [own]
    return drawn
