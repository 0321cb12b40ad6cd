"""An LSTM with clips on a GPU, for inference: two products and two kernels per step (`lstm_kernels`).

cuDNN has no clips of the states. What is read and the last states lie side by side, so that one product makes the gates
of both; its result stays in the GPU's cache until the first kernel reads it. `Reader._step_by_step` is the
specification, and what training runs.

Shapes: R rows, T pieces, D width of what is read, H cells, P width of the states.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from polyseme.parts.kernel_trials import KernelModule

KERNELS = KernelModule("An LSTM", "polyseme.parts.lstm_kernels")
MOST_DIFFERENT = {torch.bfloat16: 0.05, torch.float16: 0.01, torch.float32: 2e-3}
"""Of the largest state, on trial; fp32 may be as coarse as what torch's own products are set to."""
BLOCK = 1024


def kernels_for(x: Tensor, trial: Callable[[ModuleType], float]) -> ModuleType | None:
    """The kernels, where they run on this device in the precision of `x`, by a `trial` the first time; else None.

    The trial returns how far the kernels are from the loop, as a share of the largest state.
    """
    if x.dtype not in MOST_DIFFERENT:
        return None
    return KERNELS.try_once(x.device, x.dtype, trial, MOST_DIFFERENT[x.dtype])


def run(
    kernels: ModuleType,
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor, Tensor | None],
    h: Tensor,
    c: Tensor,
    stops: Tensor | None,
    *,
    cell_clip: float | None,
    projection_clip: float | None,
    forget_bias: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """[R, T, D] → states [R, T, P], the last state and the cells, as `Reader` has them.

    `weights` are those of the input [4·H, D] and of the state [4·H, P], the bias [4·H], and the projection [P, H] or
    None. `stops` [R]: pieces after which a row keeps its state.
    """
    of_input, recurrent, bias, projection = weights
    (n_rows, n_times, below), (_, width), n_cells = x.shape, h.shape, c.shape[1]
    joined = x.new_empty(n_times + 1, n_rows, below + width)
    joined[:-1, :, :below] = x.transpose(0, 1)
    joined[0, :, below:] = h
    both = torch.cat([of_input, recurrent], dim=1).t()  # [D + P, 4·H]
    gates, hidden = x.new_empty(n_rows, 4 * n_cells), x.new_empty(n_rows, n_cells)
    new = hidden if projection is None else x.new_empty(n_rows, width)
    cells = c.clone(memory_format=torch.contiguous_format)
    ends = cells if stops is None else stops
    has_stops = stops is not None
    states_clip = None if projection is None else projection_clip
    grid_of_cells, grid_of_states = (n_rows, -(-n_cells // BLOCK)), (n_rows, -(-width // BLOCK))
    states = joined[:, :, below:]  # [T + 1, R, P]
    with torch.cuda.device_of(x):  # Triton starts kernels on the current device
        for time in range(n_times if n_rows else 0):
            torch.mm(joined[time], both, out=gates)
            kernels.new_cells[grid_of_cells](
                gates, bias, cells, hidden, ends, time, n_cells, forget_bias, float(cell_clip or 0),
                CLIPPED=cell_clip is not None, STOPS=has_stops, BLOCK=BLOCK, num_warps=4,
            )  # fmt: skip
            if projection is not None:
                torch.mm(hidden, projection.t(), out=new)
            kernels.new_states[grid_of_states](
                new, states[time], states[time + 1], ends, time, width, below + width, float(states_clip or 0),
                CLIPPED=states_clip is not None, STOPS=has_stops, BLOCK=BLOCK, num_warps=4,
            )  # fmt: skip
    return states[1:].transpose(0, 1), states[-1].clone(), cells
