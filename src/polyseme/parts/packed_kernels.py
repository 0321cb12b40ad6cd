"""Kernels for packed rows on a GPU, in Triton: attention within short rows, and a residual sum with the norm after it.

Flash attention gives every row blocks of 128 queries and keys of its own. Rows of 20 pieces leave five sixths of such a
block empty; here a block is of consecutive pieces, of whichever rows, and each sees the keys of its own row. A residual
sum and its norm read and write the states once instead of twice. Both round as the plain path does; in Triton's
interpreter (TRITON_INTERPRET=1) they run on a CPU, slowly, for tests.

Shapes: N pieces of all rows, R rows, D width, H heads, d head width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

QUERIES, KEYS = 64, 64
"""Pieces of a block."""
LOG2_E = 1.4426950408889634


@triton.jit
def _attend(
    q,
    k,
    v,
    out,
    row_of,
    bounds,
    n_pieces,
    scale,
    q_stride,
    q_head,
    k_stride,
    k_head,
    v_stride,
    v_head,
    out_stride,
    HEAD: tl.constexpr,
    WIDE: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Attention of a block of pieces, for one head.

    `row_of` [N] is each piece's row, and `bounds` [R + 1] is where rows begin, and the last one ends. A piece sees
    `LEFT` pieces to its left and `RIGHT` to its right; -1: all of its row.
    """
    head = tl.program_id(1)
    start = tl.program_id(0) * QUERIES
    queries = start + tl.arange(0, QUERIES)
    is_query = queries < n_pieces
    columns = tl.arange(0, WIDE)
    is_column = columns < HEAD
    row = tl.load(row_of + queries, mask=is_query, other=0)
    begin = tl.load(bounds + row, mask=is_query, other=0)
    end = tl.load(bounds + row + 1, mask=is_query, other=0)
    if LEFT >= 0:
        begin = tl.maximum(begin, queries - LEFT)
    if RIGHT >= 0:
        end = tl.minimum(end, queries + RIGHT + 1)
    first = tl.min(tl.where(is_query, begin, n_pieces), axis=0)
    last = tl.max(end, axis=0)

    places = queries.to(tl.int64)
    there = is_query[:, None] & is_column[None, :]
    query = tl.load(q + places[:, None] * q_stride + head * q_head + columns[None, :], mask=there, other=0.0)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    attended = tl.zeros([QUERIES, WIDE], tl.float32)
    for key_start in range(first, last, KEYS):
        keys = key_start + tl.arange(0, KEYS)
        at = keys.to(tl.int64)
        is_key = (keys < last)[:, None] & is_column[None, :]
        key = tl.load(k + at[:, None] * k_stride + head * k_head + columns[None, :], mask=is_key, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale
        seen = (keys[None, :] >= begin[:, None]) & (keys[None, :] < end[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        shares = tl.exp2(scores - safe[:, None])
        before = tl.exp2(largest - safe)
        value = tl.load(v + at[:, None] * v_stride + head * v_head + columns[None, :], mask=is_key, other=0.0)
        total = total * before + tl.sum(shares, axis=1)
        attended = attended * before[:, None] + tl.dot(shares.to(value.dtype), value)
        largest = new
    attended = attended / tl.where(total == 0.0, 1.0, total)[:, None]
    to = out + places[:, None] * out_stride + head * HEAD + columns[None, :]
    tl.store(to, attended.to(out.dtype.element_ty), mask=there)


def attend(
    q: Tensor, k: Tensor, v: Tensor, row_of: Tensor, bounds: Tensor, *, scale: float, window: tuple[int, int]
) -> Tensor:
    """Queries, keys and values [N, H, d], the row of each piece [N] and where rows begin and end [R + 1] → [N, H·d]."""
    n_pieces, n_heads, width = q.shape
    q, k, v = (each if each.stride(2) == 1 else each.contiguous() for each in (q, k, v))
    out = q.new_empty(n_pieces, n_heads * width)
    with torch.cuda.device_of(q):  # Triton starts kernels on the current device
        _attend[(triton.cdiv(n_pieces, QUERIES), n_heads)](
            q,
            k,
            v,
            out,
            row_of,
            bounds,
            n_pieces,
            scale * LOG2_E,
            *q.stride()[:2],
            *k.stride()[:2],
            *v.stride()[:2],
            out.stride(0),
            HEAD=width,
            WIDE=max(16, triton.next_power_of_2(width)),
            LEFT=window[0],
            RIGHT=window[1],
            QUERIES=QUERIES,
            KEYS=KEYS,
            num_warps=4,
            num_stages=2,
        )
    return out


@triton.jit
def _add_and_norm(
    x,
    residual,
    weight,
    bias,
    summed,
    out,
    n_rows,
    epsilon,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BIAS: tl.constexpr,
    RMS: tl.constexpr,
    SUM: tl.constexpr,
):
    """The sum of `x` and `residual`, rounded as a sum in their precision is, and its norm."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDE)
    is_column = columns < WIDTH
    there = (rows < n_rows)[:, None] & is_column[None, :]
    places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    total = tl.load(x + places, mask=there, other=0.0).to(tl.float32)
    total += tl.load(residual + places, mask=there, other=0.0).to(tl.float32)
    rounded = total.to(out.dtype.element_ty)
    if SUM:
        tl.store(summed + places, rounded, mask=there)
    total = rounded.to(tl.float32)
    if not RMS:
        mean = tl.sum(total, axis=1) / WIDTH
        total = tl.where(there, total - mean[:, None], 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(total * total, axis=1) / WIDTH + epsilon)
    total = total * spread[:, None] * tl.load(weight + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        total += tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
    tl.store(out + places, total.to(out.dtype.element_ty), mask=there)


def add_and_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, *, rms: bool, summed: bool
) -> tuple[Tensor, Tensor]:
    """The sum of two [N, D], in the place of `x`, if it is wanted (`summed`), and its norm."""
    x, residual = x.contiguous(), residual.contiguous()
    n_rows, width = x.shape
    out = torch.empty_like(x)
    wide = triton.next_power_of_2(width)
    at_once = max(1, 2048 // wide)
    with torch.cuda.device_of(x):
        _add_and_norm[(triton.cdiv(n_rows, at_once),)](
            x,
            residual,
            weight,
            weight if bias is None else bias,
            x,
            out,
            n_rows,
            epsilon,
            WIDTH=width,
            WIDE=wide,
            ROWS=at_once,
            BIAS=bias is not None,
            RMS=rms,
            SUM=summed,
            num_warps=4,
        )
    return x, out
