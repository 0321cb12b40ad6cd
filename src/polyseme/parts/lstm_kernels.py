"""Kernels, in Triton, for a step of an LSTM whose cells and states are clipped: all of it but the two products.

In Triton's interpreter (TRITON_INTERPRET=1) they run on a CPU, slowly, for tests.

Shapes: R rows, H cells, P width of the states.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit(do_not_specialize=["time"])
def new_cells(
    gates,
    bias,
    cells,
    hidden,
    stops,
    time,
    n_cells,
    forget_bias,
    clip,
    CLIPPED: tl.constexpr,
    STOPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gates i, f, g, o, [R, 4·H], their bias still to be added → new cells, in place, and σ(o) · tanh(c) [R, H].

    STOPS: rows of at most `time` pieces keep their cells.
    """
    row = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = n < n_cells
    of_row = gates + row.to(tl.int64) * (4 * n_cells)
    i = tl.load(of_row + n, mask=there, other=0.0).to(tl.float32)
    f = tl.load(of_row + n_cells + n, mask=there, other=0.0).to(tl.float32)
    g = tl.load(of_row + 2 * n_cells + n, mask=there, other=0.0).to(tl.float32)
    o = tl.load(of_row + 3 * n_cells + n, mask=there, other=0.0).to(tl.float32)
    i += tl.load(bias + n, mask=there, other=0.0).to(tl.float32)
    f += tl.load(bias + n_cells + n, mask=there, other=0.0).to(tl.float32)
    g += tl.load(bias + 2 * n_cells + n, mask=there, other=0.0).to(tl.float32)
    o += tl.load(bias + 3 * n_cells + n, mask=there, other=0.0).to(tl.float32)
    places = row.to(tl.int64) * n_cells + n
    c = tl.load(cells + places, mask=there, other=0.0).to(tl.float32)
    c = c / (1.0 + tl.exp(-(f + forget_bias))) + _tanh(g) / (1.0 + tl.exp(-i))
    if CLIPPED:
        c = tl.minimum(tl.maximum(c, -clip, propagate_nan=tl.PropagateNan.ALL), clip, propagate_nan=tl.PropagateNan.ALL)
    n_written = n_cells
    if STOPS:
        n_written = tl.where(time < tl.load(stops + row), n_cells, 0)
    tl.store(cells + places, c.to(cells.dtype.element_ty), mask=n < n_written)
    tl.store(hidden + places, (_tanh(c) / (1.0 + tl.exp(-o))).to(hidden.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["time"])
def new_states(
    new,
    before,
    after,
    stops,
    time,
    width,
    stride,
    clip,
    CLIPPED: tl.constexpr,
    STOPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """New states [R, P], clipped, to `after`, rows `stride` apart; those `before` where a row has ended."""
    row = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = n < width
    place = row.to(tl.int64) * stride + n
    h = tl.load(new + row.to(tl.int64) * width + n, mask=there, other=0.0).to(tl.float32)
    if CLIPPED:
        h = tl.minimum(tl.maximum(h, -clip, propagate_nan=tl.PropagateNan.ALL), clip, propagate_nan=tl.PropagateNan.ALL)
    if STOPS:
        h = tl.where(time < tl.load(stops + row), h, tl.load(before + place, mask=there, other=0.0).to(tl.float32))
    tl.store(after + place, h.to(after.dtype.element_ty), mask=there)
