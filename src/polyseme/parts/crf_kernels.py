"""The sums of a conditional random field on a GPU, in Triton: all words of a row in one kernel.

`parts.crf` adds up word by word, in some ten small kernels for each, which take longer to begin than to run. Here a
program has a row and the table of transitions, and goes through the words itself. In Triton's interpreter
(TRITON_INTERPRET=1) the kernels run on a CPU, slowly, for tests.

Shapes: R rows, W words of the longest row, L tags.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

NOTHING = tl.constexpr(-1e30)
"""The score of tags that are not there."""


@triton.jit
def _forwards(
    scores,
    mask,
    first,
    between,
    out,
    n_words,
    score_row,
    score_word,
    mask_row,
    N_TAGS: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = tl.program_id(0)
    tags = tl.arange(0, WIDE)
    is_tag = tags < N_TAGS
    steps = tl.load(
        between + tags[:, None] * N_TAGS + tags[None, :], mask=is_tag[:, None] & is_tag[None, :], other=NOTHING
    )
    here = scores + row * score_row + tags
    to = out + row * n_words * N_TAGS + tags
    so_far = tl.load(first + tags, mask=is_tag, other=NOTHING) + tl.load(here, mask=is_tag, other=0.0)
    tl.store(to, so_far, mask=is_tag)
    for word in range(1, n_words):
        is_real = tl.load(mask + row * mask_row + word) != 0
        score = tl.load(here + word * score_word, mask=is_tag, other=0.0)
        coming = so_far[:, None] + steps
        largest = tl.max(coming, axis=0)
        new = largest + tl.log(tl.sum(tl.exp(coming - largest[None, :]), axis=0)) + score
        so_far = tl.where(is_real, new, so_far)
        tl.store(to + word * N_TAGS, so_far, mask=is_tag)


@triton.jit
def _backwards(
    scores, mask, between, last, out, n_words, score_row, score_word, mask_row, N_TAGS: tl.constexpr, WIDE: tl.constexpr
):
    row = tl.program_id(0)
    tags = tl.arange(0, WIDE)
    is_tag = tags < N_TAGS
    steps = tl.load(
        between + tags[:, None] * N_TAGS + tags[None, :], mask=is_tag[:, None] & is_tag[None, :], other=NOTHING
    )
    here = scores + row * score_row + tags
    to = out + row * n_words * N_TAGS + tags
    to_come = tl.load(last + tags, mask=is_tag, other=NOTHING)
    tl.store(to + (n_words - 1) * N_TAGS, to_come, mask=is_tag)
    for back in range(1, n_words):
        word = n_words - back
        is_real = tl.load(mask + row * mask_row + word) != 0
        score = tl.load(here + word * score_word, mask=is_tag, other=0.0)
        coming = steps + (score + to_come)[None, :]
        largest = tl.max(coming, axis=1)
        new = largest + tl.log(tl.sum(tl.exp(coming - largest[:, None]), axis=1))
        to_come = tl.where(is_real, new, to_come)
        tl.store(to + (word - 1) * N_TAGS, to_come, mask=is_tag)


def _run(kernel, scores: Tensor, mask: Tensor, one: Tensor, other: Tensor) -> Tensor:
    n_rows, n_words, n_tags = scores.shape
    scores = scores if scores.stride(2) == 1 else scores.contiguous()
    seen = mask.contiguous().view(torch.uint8)
    out = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)
    wide = max(16, triton.next_power_of_2(n_tags))
    with torch.cuda.device_of(scores):  # Triton starts kernels on the current device
        kernel[(n_rows,)](
            scores,
            seen,
            one.contiguous(),
            other.contiguous(),
            out,
            n_words,
            scores.stride(0),
            scores.stride(1),
            seen.stride(0),
            N_TAGS=n_tags,
            WIDE=wide,
            num_warps=1 if wide <= 32 else 4,
        )
    return out


def forwards(scores: Tensor, mask: Tensor, first: Tensor, between: Tensor) -> Tensor:
    """`parts.crf` defines it; in single precision: [R, W, L]."""
    return _run(_forwards, scores, mask, first, between)


def backwards(scores: Tensor, mask: Tensor, between: Tensor, last: Tensor) -> Tensor:
    """`parts.crf` defines it; in single precision: [R, W, L]."""
    return _run(_backwards, scores, mask, between, last)
