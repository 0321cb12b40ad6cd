"""Kernels for a few rows on a GPU, in Triton: a product with its norm before and all that comes after, attention over a
cache, and the choice of a piece.

With one new piece per row nearly all time goes into starting kernels, so each does as much as can be done before all
of its inputs must be there. They compute what `FastSteps.run` does, with the same roundings.

A kernel may start while the one before it runs (`EARLY`): it reads weights ahead, and waits before it reads anything
else. In Triton's interpreter (TRITON_INTERPRET=1) the kernels run on a CPU, slowly, for tests.

Shapes: R rows, N results and K inputs of a product, H heads, S slots, d head width.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def _activate(y, KIND: tl.constexpr):
    """Each activation of `parts.feed_forward`, in single precision."""
    if KIND == "gelu":
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    elif KIND == "gelu_new":
        inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        y = 0.5 * y * (2.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0))
    elif KIND == "gelu_sigmoid":
        y = y / (1.0 + tl.exp(-1.702 * y))
    elif KIND == "relu":
        y = tl.maximum(y, 0.0)
    elif KIND == "silu":
        y = y / (1.0 + tl.exp(-y))
    elif KIND == "tanh":
        y = 1.0 - 2.0 / (tl.exp(2.0 * y) + 1.0)
    return y


@triton.jit
def _round_like(y, like):
    """Rounded as a tensor of `like` would be."""
    return y.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def _mean_and_spread(x, rows, is_row, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr):
    """Mean and 1 / spread of each row of `x` [R, WIDTH]; with RMS norm the mean is 0."""
    starts = x + rows[:, None] * WIDTH
    columns = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([rows.shape[0]], tl.float32)
    if NORM != "rms":
        for first in tl.static_range(0, WIDTH, BLOCK):
            there = is_row[:, None] & (first + columns < WIDTH)
            total += tl.sum(tl.load(starts + first + columns, mask=there, other=0.0).to(tl.float32), axis=1)
    mean = total / WIDTH
    squares = tl.zeros([rows.shape[0]], tl.float32)
    for first in tl.static_range(0, WIDTH, BLOCK):
        there = is_row[:, None] & (first + columns < WIDTH)
        part = tl.load(starts + first + columns, mask=there, other=0.0).to(tl.float32) - mean[:, None]
        squares += tl.sum(tl.where(there, part * part, 0.0), axis=1)
    return mean, 1.0 / tl.sqrt(squares / WIDTH + epsilon)


@triton.jit
def _normalize(part, mean, spread, norm_weight, norm_bias, columns, there, NORM_BIAS: tl.constexpr):
    """Part of rows, [rows, columns], with scale and shift."""
    part = (part - mean[:, None]) * spread[:, None]
    part = part * tl.load(norm_weight + columns, mask=there, other=0.0).to(tl.float32)[None, :]
    if NORM_BIAS:
        part += tl.load(norm_bias + columns, mask=there, other=0.0).to(tl.float32)[None, :]
    return part


@triton.jit
def _finish(
    y,
    up,
    rows,
    is_row,
    n,
    norm_weight,
    norm_bias,
    bias,
    residual,
    out,
    keys,
    values,
    lengths,
    never,
    best,
    piece,
    top,
    total,
    epsilon,
    row_stride,
    head_stride,
    slot_stride,
    N: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    NORM: tl.constexpr,
    NORM_BIAS: tl.constexpr,
    STATISTICS: tl.constexpr,
    END: tl.constexpr,
    HEAD: tl.constexpr,
):
    """What comes after a product `y` [rows, n]: bias, activation, residual; the cache; the likeliest piece."""
    is_result = n < N
    there = is_row[:, None] & is_result[None, :]
    if BIAS:
        y += tl.load(bias + n, mask=is_result, other=0.0).to(tl.float32)[None, :]
        if GATED:
            up += tl.load(bias + N + n, mask=is_result, other=0.0).to(tl.float32)[None, :]
    y = _round_like(y, out)
    if ACTIVATION != "none":
        y = _round_like(_activate(y, ACTIVATION), out)
    if GATED:
        y = _round_like(y * _round_like(up, out), out)
    if RESIDUAL != "":
        added = tl.load(residual + rows[:, None] * N + n[None, :], mask=there, other=0.0).to(tl.float32)
        if RESIDUAL == "normed":
            mean, spread = _mean_and_spread(residual, rows, is_row, epsilon, N, STATISTICS, NORM)
            added = _round_like(_normalize(added, mean, spread, norm_weight, norm_bias, n, is_result, NORM_BIAS), out)
        y += added
    if END == "write":
        tl.store(out + rows[:, None] * N + n[None, :], y.to(out.dtype.element_ty), mask=there)
    if END == "cache":
        third = N // 3
        kind, inner = n // third, n % third
        tl.store(out + rows[:, None] * third + inner[None, :], y, mask=there & (kind == 0)[None, :])
        slots = tl.load(lengths + rows, mask=is_row, other=0)
        place = rows[:, None].to(tl.int64) * row_stride + ((inner // HEAD) * head_stride + inner % HEAD)[None, :]
        place += slots[:, None] * slot_stride
        tl.store(keys + place, y, mask=there & (kind == 1)[None, :])
        tl.store(values + place, y, mask=there & (kind == 2)[None, :])
    if END == "scores":
        tl.store(values + rows[:, None].to(tl.int64) * N + n[None, :], y, mask=there)
    if END == "choose":
        n_blocks = tl.num_programs(0)
        block = rows * n_blocks + tl.program_id(0)
        allowed = is_result & (tl.load(never + n, mask=is_result, other=1) == 0)
        real = tl.where(is_result[None, :], y, float("-inf"))
        highest = tl.max(real, axis=1)
        tl.store(top + block, highest, mask=is_row)
        tl.store(total + block, tl.sum(tl.exp(real - highest[:, None]), axis=1), mask=is_row)
        open_to_all = tl.where(allowed[None, :], y, float("-inf"))
        likeliest = tl.max(open_to_all, axis=1)
        first = tl.min(tl.where((open_to_all == likeliest[:, None]) & allowed[None, :], n[None, :], N), axis=1)
        tl.store(best + block, likeliest, mask=is_row)
        tl.store(piece + block, first, mask=is_row)


@triton.jit(do_not_specialize=["n_rows"])
def product(
    x,
    norm_weight,
    norm_bias,
    weight,
    bias,
    residual,
    residual_weight,
    residual_bias,
    out,
    keys,
    values,
    lengths,
    never,
    best,
    piece,
    top,
    total,
    epsilon,
    scale,
    row_stride,
    head_stride,
    slot_stride,
    n_rows,
    R: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    NORM: tl.constexpr,
    NORM_BIAS: tl.constexpr,
    SCALED: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RESIDUAL_NORM: tl.constexpr,
    RESIDUAL_NORM_BIAS: tl.constexpr,
    STATISTICS: tl.constexpr,
    END: tl.constexpr,
    HEAD: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FEW: tl.constexpr,
    EARLY: tl.constexpr,
):
    """act(norm(x)·Wᵀ + b) + residual, BLOCK_N results to a block.

    FEW: for R rows, up to 4, a block holds its WHOLE inputs' weights in registers; otherwise `n_rows`, up to WHOLE, run
    on the matrix units.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if EARLY:
        cuda.gdc_launch_dependents()
    if FEW:
        k = tl.arange(0, WHOLE)
        is_input = k < K
        places = weight + n.to(tl.int64)[:, None] * K + k[None, :]
        there = (n < N)[:, None] & is_input[None, :]
        matrix = tl.load(places, mask=there, other=0.0)
        second = matrix
        if GATED:
            second = tl.load(places + N * K, mask=there, other=0.0)
        if EARLY:
            cuda.gdc_wait()
        for row in tl.static_range(R):
            rows = row + tl.arange(0, 1)
            is_row = rows < R
            inputs = tl.load(x + row * K + k[None, :], mask=is_input[None, :], other=0.0).to(tl.float32)  # [1, K]
            if NORM != "none":
                mean = tl.sum(inputs, axis=1) / K
                if NORM == "rms":
                    mean = mean * 0.0
                centered = tl.where(is_input[None, :], inputs - mean[:, None], 0.0)
                spread = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=1) / K + epsilon)
                inputs = _normalize(inputs, mean, spread, norm_weight, norm_bias, k, is_input, NORM_BIAS)
                inputs = _round_like(inputs, x)
            if SCALED:
                inputs = _round_like(inputs * scale, x)
            y = tl.sum(matrix.to(tl.float32) * inputs, axis=1)[None, :]  # [1, BLOCK_N]
            up = y
            if GATED:
                up = tl.sum(second.to(tl.float32) * inputs, axis=1)[None, :]
            _finish(
                y, up, rows, is_row, n, residual_weight, residual_bias, bias, residual, out, keys, values, lengths,
                never, best, piece, top, total, epsilon, row_stride, head_stride, slot_stride, N, BIAS, ACTIVATION,
                GATED, RESIDUAL, RESIDUAL_NORM, RESIDUAL_NORM_BIAS, STATISTICS, END, HEAD,
            )  # fmt: skip
    else:
        rows = tl.arange(0, WHOLE)
        is_row = rows < n_rows
        is_result = n < N
        if EARLY:
            cuda.gdc_wait()
        mean = tl.zeros([WHOLE], tl.float32)
        spread = mean
        if NORM != "none":
            mean, spread = _mean_and_spread(x, rows, is_row, epsilon, K, STATISTICS, NORM)
        y = tl.zeros([WHOLE, BLOCK_N], tl.float32)
        up = tl.zeros([WHOLE, BLOCK_N], tl.float32)
        places = weight + n.to(tl.int64)[:, None] * K
        for first in tl.range(0, K, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            is_input = k < K
            there = is_result[:, None] & is_input[None, :]
            inputs = tl.load(x + rows[:, None] * K + k[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0)
            matrix = tl.load(places + k[None, :], mask=there, other=0.0)
            if NORM != "none":
                inputs = inputs.to(tl.float32)
                inputs = _normalize(inputs, mean, spread, norm_weight, norm_bias, k, is_input, NORM_BIAS)
                inputs = inputs.to(x.dtype.element_ty)
            if SCALED:
                inputs = (inputs.to(tl.float32) * scale).to(x.dtype.element_ty)
            y = tl.dot(inputs, tl.trans(matrix), y, input_precision="ieee")
            if GATED:
                second = tl.load(places + N * K + k[None, :], mask=there, other=0.0)
                up = tl.dot(inputs, tl.trans(second), up, input_precision="ieee")
        _finish(
            y, up, rows, is_row, n, residual_weight, residual_bias, bias, residual, out, keys, values, lengths,
            never, best, piece, top, total, epsilon, row_stride, head_stride, slot_stride, N, BIAS, ACTIVATION,
            GATED, RESIDUAL, RESIDUAL_NORM, RESIDUAL_NORM_BIAS, STATISTICS, END, HEAD,
        )  # fmt: skip


@triton.jit
def attend(
    queries,
    keys,
    values,
    lengths,
    biases,
    out,
    scale,
    width,
    n_slots,
    query_stride,
    row_stride,
    head_stride,
    slot_stride,
    n_distances,
    HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    OWN: tl.constexpr,
    ALL: tl.constexpr,
    BIASED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One query per row and head over the slots of a cache: [R, H·d].

    OWN: the row's own pieces, up to the one just written at its length, no farther back than `width`. Otherwise a
    source's, all of them (ALL) or as many as `lengths` says. `biases` [H, n_distances] are added by distance.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    if EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    e = tl.arange(0, HEAD_BLOCK)
    is_part = e < HEAD
    query = tl.load(queries + row * query_stride + head * HEAD + e, mask=is_part, other=0.0).to(tl.float32)
    n_seen = n_slots
    first = 0
    if not ALL:
        n_seen = tl.load(lengths + row).to(tl.int32)
        if OWN:
            n_seen += 1
            first = tl.maximum(n_seen - width, 0)
    start = row.to(tl.int64) * row_stride + head * head_stride
    highest = float("-inf")
    total = 0.0
    answer = tl.zeros([HEAD_BLOCK], tl.float32)
    block = (first // BLOCK) * BLOCK
    while block < n_seen:
        slots = block + tl.arange(0, BLOCK)
        is_seen = (slots >= first) & (slots < n_seen)
        places = start + slots[:, None].to(tl.int64) * slot_stride + e[None, :]
        there = is_seen[:, None] & is_part[None, :]
        key = tl.load(keys + places, mask=there, other=0.0).to(tl.float32)
        value = tl.load(values + places, mask=there, other=0.0).to(tl.float32)
        scores = tl.sum(key * query[None, :], axis=1) * scale
        if BIASED:
            back = tl.maximum(n_seen - 1 - slots, 0)
            scores += tl.load(biases + head * n_distances + back, mask=is_seen, other=0.0).to(tl.float32)
        scores = tl.where(is_seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        lowered = tl.exp(highest - higher)
        shares = tl.exp(scores - higher)
        total = total * lowered + tl.sum(shares, axis=0)
        answer = answer * lowered + tl.sum(shares[:, None] * value, axis=0)
        highest = higher
        block += BLOCK
    answer = tl.where(total > 0, answer / total, 0.0)
    tl.store(out + (row * HEADS + head) * HEAD + e, answer.to(out.dtype.element_ty), mask=is_part)


@triton.jit(do_not_specialize=["n_blocks", "chosen", "likelihoods"])
def choose(
    best,
    piece,
    top,
    total,
    pieces,
    chosen,
    likelihoods,
    lengths,
    n_blocks,
    BLOCKS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The likeliest piece of each row, from what every block of the vocabulary has found, and its log-probability.

    It is written as the next one to read, and rows are one piece longer.
    """
    row = tl.program_id(0)
    if EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    blocks = tl.arange(0, BLOCKS)
    is_block = blocks < n_blocks
    places = row * n_blocks + blocks
    likeliest = tl.load(best + places, mask=is_block, other=float("-inf"))
    highest = tl.max(likeliest, axis=0)
    numbers = tl.load(piece + places, mask=is_block, other=2147483647)
    number = tl.min(tl.where(likeliest == highest, numbers, 2147483647), axis=0)
    tops = tl.load(top + places, mask=is_block, other=float("-inf"))
    peak = tl.max(tops, axis=0)
    whole = tl.sum(tl.load(total + places, mask=is_block, other=0.0) * tl.exp(tops - peak), axis=0)
    tl.store(chosen + row, number.to(tl.int64))
    tl.store(pieces + row, number.to(tl.int64))
    tl.store(likelihoods + row, highest - peak - tl.log(whole))
    tl.store(lengths + row, tl.load(lengths + row) + 1)
