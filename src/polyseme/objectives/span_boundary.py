"""SpanBERT's boundary objective (Joshi et al. 2020): each piece of a masked span from the states on both sides of it.

Of a span of places s … e, the piece at place i is predicted from the states at s - 1 and e + 1 and the position i - s,
so that the boundaries of a span learn what is in it. A span that a row begins or ends with has no boundary there, and
is left to the masked output, as are pieces beyond the last position (`n_positions`); the paper's program does the same.

Shapes: R rows, T pieces of a row, K targets of a row, D width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.corpus.random_keys import Bools, Ints
from polyseme.errors import OptionError
from polyseme.objectives.objective import Arrays, pick
from polyseme.outputs.boundary import BoundaryOutput
from polyseme.parts.initialization import draw_normal

N_POSITIONS = 20
"""Pieces of a span that are predicted by their position in it."""
POSITION_WIDTH = 200


def boundary_arrays(places: Ints, real: Bools, spans: Ints, n_places: int) -> dict[str, NDArray[np.generic]]:
    """Where the boundaries of each target's span are, its position in the span, and whether it counts: [R, K] each.

    `places` are those of the targets in order, as far as they are `real`; `spans` has one number for each span.
    """
    new = np.ones(real.shape, np.bool_)
    new[:, 1:] = spans[:, 1:] != spans[:, :-1]
    ends = np.ones(real.shape, np.bool_)
    ends[:, :-1] = new[:, 1:] | ~real[:, 1:]
    first = np.maximum.accumulate(np.where(new & real, places, 0), axis=1)
    beyond = np.where(ends & real, places, n_places)
    last = np.minimum.accumulate(beyond[:, ::-1], axis=1)[:, ::-1]
    positions = np.where(real, places - first, 0)
    counts = real & (first > 0) & (last < n_places - 1) & (positions < N_POSITIONS)
    arrays = {"left": first - 1, "right": last + 1, "span_positions": positions}
    return {
        **{name: np.where(counts, array, 0).astype(np.int32) for name, array in arrays.items()},
        "boundary_weights": counts.astype(np.float32),
    }


def new_boundary_output(bundle: Bundle) -> BoundaryOutput:
    """The output for a bundle, with weights as they are first drawn, over the encoder's own table of pieces."""
    table = bundle.encoder.piece_table()
    if table is None:
        raise OptionError(
            "The boundary objective predicts pieces by the encoder's table of them, and this encoder "
            f"({bundle.family.name}) has no single table. Leave out boundary=true, or choose another family."
        )
    config, (n_pieces, table_width) = bundle.config, table.shape
    output = BoundaryOutput(
        config.widths[-1],
        table_width,
        n_pieces,
        n_positions=N_POSITIONS,
        position_width=POSITION_WIDTH,
        epsilon=getattr(config, "norm_epsilon", 1e-12),
    )
    for parameter in output.parameters():
        if parameter.dim() > 1:
            draw_normal(parameter, getattr(config, "init_std", 0.02), getattr(config, "init_cutoff", None))
    for layer in (output.first, output.second):
        nn.init.zeros_(layer.bias)
    output.to(table.device, table.dtype)
    output.tie(table)
    return output


def boundary_loss(output: BoundaryOutput, states: Tensor, arrays: Arrays) -> Tensor:
    """The loss, summed, from the states of all pieces [R, T, D] and the arrays of `boundary_arrays`."""
    left, right = (pick(states, arrays[name].long()) for name in ("left", "right"))
    inputs = output.inputs(left, right, arrays["span_positions"].long().flatten())
    losses = output.loss(inputs, arrays["targets"].long().flatten())
    return (losses * arrays["boundary_weights"].flatten()).sum()
