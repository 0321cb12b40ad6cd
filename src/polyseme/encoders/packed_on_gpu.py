"""Which parts of packed inference run by the kernels of `parts/packed_kernels.py`, after a trial on this GPU.

The plain path is the specification. It runs where there are no kernels, where they do not run, and where their results
differ; the reason is reported once (`parts/kernel_trials.py`).

Shapes: N pieces of all rows, R rows, D width, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.parts.kernel_trials import try_kernels
from polyseme.parts.norms import Norm

WIDEST_HEAD = 128
WIDEST = 8192
"""States beyond which a norm does not fit into registers."""
TRIAL_LENGTHS = (1, 2, 5, 17, 40, 64, 70)
MOST_DIFFERENT = {torch.bfloat16: 0.02, torch.float16: 0.004}
"""Of the largest value, on trial."""


@dataclass(frozen=True)
class PackedKernels:
    """Kernels that have passed a trial for an encoder."""

    module: ModuleType
    max_mean_length: int = 64
    """Pieces per row, on the mean of a batch, up to which rows share blocks: flash attention has blocks of 128."""

    def suits(self, lengths: Sequence[int], n_pieces: int) -> bool:
        """Whether these rows are short enough for the attention kernel."""
        return n_pieces <= self.max_mean_length * len(lengths)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, row_of: Tensor, bounds: Tensor, scale: float, window: tuple[int, int]
    ) -> Tensor:
        """[N, H, d] → [N, H·d]: each piece sees those of its own row, as far as its window goes."""
        attended: Tensor = self.module.attend(q, k, v, row_of, bounds, scale=scale, window=window)
        return attended

    def add_and_norm(self, x: Tensor, residual: Tensor, norm: Norm, *, summed: bool) -> tuple[Tensor, Tensor]:
        """The sum of both and its norm. The sum takes the place of `x`, and is only valid with `summed`."""
        assert norm.weight is not None
        result: tuple[Tensor, Tensor] = self.module.add_and_norm(
            x, residual, norm.weight, norm.bias, norm.epsilon, rms=norm.kind == "rms", summed=summed
        )
        return result


def kernels_for(encoder: Transformer) -> PackedKernels | None:
    """Kernels for this encoder on its GPU, after a trial; None where they do not fit, or do not run."""
    if not kernels_fit(encoder):
        return None
    like = next(encoder.embeddings.parameters())
    module = try_kernels(
        "Packed inference",
        "polyseme.parts.packed_kernels",
        like.device,
        lambda module: difference(PackedKernels(module), encoder),
        MOST_DIFFERENT[like.dtype],
    )
    return None if module is None else PackedKernels(module)


def kernels_fit(encoder: Transformer) -> bool:
    """Whether all states are in half precision, and no narrower or wider than the kernels take."""
    layers = [cast(TransformerLayer, layer) for layer in encoder.layers]
    dtypes = {each.dtype for each in encoder.parameters()}
    heads = {layer.attention.head_width for layer in layers}
    return (
        len(dtypes) == 1
        and dtypes <= MOST_DIFFERENT.keys()
        and encoder.config.width <= WIDEST
        and max(heads, default=WIDEST_HEAD + 1) <= WIDEST_HEAD
    )


def difference(kernels: PackedKernels, encoder: Transformer) -> float:
    """How far the kernels are from torch in single precision, as a share of the largest value."""
    layer = cast(TransformerLayer, encoder.layers[0])
    like = next(encoder.embeddings.parameters())
    generator = torch.Generator(like.device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=like.device).to(like.dtype)

    n_pieces, width = sum(TRIAL_LENGTHS), layer.attention.head_width
    fused = drawn(n_pieces, 3, 2, width)
    q, k, v = fused.unbind(1)
    counts = torch.tensor(TRIAL_LENGTHS, device=like.device)
    row_of = torch.repeat_interleave(counts)
    bounds = F.pad(counts.cumsum(0), (1, 0)).int()
    attended = kernels.attend(q, k, v, row_of.int(), bounds, width**-0.5, (-1, -1))
    hidden = torch.zeros(n_pieces, n_pieces, device=like.device)
    hidden = hidden.masked_fill(row_of[:, None] != row_of, float("-inf"))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * width**-0.5
    expected = torch.einsum("hqk,khd->qhd", (scores + hidden).softmax(-1), v.float()).flatten(1)
    worst = [_relative_error(attended, expected)]
    norm = Norm.of(layer.feed_forward_norm)
    if norm.weight is not None:
        x, residual = drawn(n_pieces, encoder.config.width), drawn(n_pieces, encoder.config.width)
        expected_sum = x + residual
        expected = layer.feed_forward_norm(expected_sum)
        total, normed = kernels.add_and_norm(x, residual, norm, summed=True)
        worst += [_relative_error(total, expected_sum), _relative_error(normed, expected)]
    return max(worst)


def _relative_error(result: Tensor, expected: Tensor) -> float:
    difference = (result.float() - expected.float()).abs().max() / expected.float().abs().max()
    return float(difference.detach().nan_to_num(float("inf")))
