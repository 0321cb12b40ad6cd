"""Products for a few rows on a GPU, as `row_kernels` runs them: inputs, what follows a product, and sizes of blocks.

Shapes: R rows, D width, N results and K inputs of a product, V pieces in the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.parts.norms import Norm

FEW = 4
"""Rows for which a product holds its weights in registers."""


def power_of_two(number: int) -> int:
    """The next power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()


def row_bucket(n_rows: int) -> int:
    """The number of rows that the kernels for so many rows are compiled for."""
    return n_rows if n_rows <= FEW else max(power_of_two(n_rows), 16)


@dataclass
class State:
    """States [R, D] that a norm is still to be applied to."""

    raw: Tensor
    norm: Norm = field(default_factory=Norm)


@dataclass
class Choice:
    """What is forbidden, and where each block of the vocabulary writes its likeliest piece."""

    forbidden: Tensor
    """[V]: 1 for pieces that are forbidden."""
    best: Tensor
    piece: Tensor
    top: Tensor
    total: Tensor


class Launcher:
    """Starts the kernels; `early`: each while the one before it still runs."""

    def __init__(self, kernels: ModuleType, *, early: bool) -> None:
        self.kernels = kernels
        self.start_early(early)

    def start_early(self, early: bool) -> None:
        """Whether each kernel starts while the one before it still runs."""
        self.early = early
        self.options: dict[str, Any] = {"launch_pdl": True} if early else {}

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int, stages: int = 3, **sizes: Any
    ) -> None:
        kernel[grid](*arguments, **sizes, EARLY=self.early, num_warps=warps, num_stages=stages, **self.options)


class RowsProduct:
    """act(norm(x)·Wᵀ + b) + residual for a few rows, in one kernel."""

    def __init__(
        self,
        launch: Launcher,
        weight: Tensor,
        bias: Tensor | None,
        activation: str = "none",
        *,
        gated: bool = False,
        head: int = 1,
        scale: float = 1.0,
    ) -> None:
        self.launch = launch
        self.weight = weight
        self.bias = bias
        self.activation = activation
        self.gated = gated
        self.head = head
        self.scale = scale
        self.n_results, self.n_inputs = weight.shape[0] // (2 if gated else 1), weight.shape[1]

    def blocks(self, n_rows: int) -> dict[str, int]:
        """How the product is cut, and how many warps and stages a block has."""
        whole = power_of_two(self.n_inputs)
        if n_rows <= FEW:
            most = 16384 if self.n_results > 16384 else 8192
            block = max(power_of_two(self.n_results // 256 + 1), 4096 // whole)
            block = max(min(block, most // whole // (2 if self.gated else 1), max(16, 4096 // whole)), 1)
            return {
                "WHOLE": whole,
                "BLOCK_N": block,
                "BLOCK_K": 1,
                "warps": 4 if block * whole <= 4096 else 8,
                "stages": 1,
            }
        rows = row_bucket(n_rows)
        is_large = self.n_results > 16384
        block = 64 if is_large or self.n_inputs <= 64 else 16
        inputs = 128 if self.n_inputs % 128 == 0 else 64
        size = 4 if self.weight.dtype == torch.float32 else 2
        if rows == 16 and block == 16 and size == 2 and self.n_inputs % 256 == 0:
            inputs = 256  # few blocks: each must have much on its way
        stages = 4 if rows * size <= 64 else 2
        return {
            "WHOLE": rows,
            "BLOCK_N": block,
            "BLOCK_K": inputs,
            "warps": 8 if is_large and size == 2 else 4,
            "stages": stages,
        }

    def __call__(
        self,
        x: State,
        residual: State | None = None,
        *,
        cache: tuple[Tensor, Tensor, Tensor] | None = None,
        scores: Tensor | None = None,
        choice: Choice | None = None,
    ) -> Tensor:
        """[R, N]; with a `cache` of keys, values and lengths, queries alone are returned."""
        raw, norm = x.raw, x.norm
        n_rows = len(raw)
        blocks = self.blocks(n_rows)
        end = "write" if cache is None else "cache"
        keys, values, lengths = cache or (raw, raw, raw)
        if scores is not None:
            end, values = "scores", scores
        elif choice is not None:
            end = "choose"
        of_blocks = Choice(raw, raw, raw, raw, raw) if choice is None else choice
        n_written = self.n_results // 3 if end == "cache" else 0 if end not in ("write", "cache") else self.n_results
        out = raw.new_empty(n_rows, n_written)
        added = Norm() if residual is None else residual.norm
        n_read = max(self.n_inputs if norm.kind != "none" else 1, self.n_results if added.kind != "none" else 1)
        statistics = (
            min(power_of_two(n_read), max(16384 // blocks["WHOLE"], 64)) if n_rows > FEW else power_of_two(n_read)
        )
        warps, stages = blocks.pop("warps"), blocks.pop("stages")
        self.launch(
            self.launch.kernels.product,
            (-(-self.n_results // blocks["BLOCK_N"]),),
            raw,
            _or_stand_in(norm.weight, raw),
            _or_stand_in(norm.bias, raw),
            self.weight,
            _or_stand_in(self.bias, raw),
            raw if residual is None else residual.raw,
            _or_stand_in(added.weight, raw),
            _or_stand_in(added.bias, raw),
            out,
            keys,
            values,
            lengths,
            of_blocks.forbidden,
            of_blocks.best,
            of_blocks.piece,
            of_blocks.top,
            of_blocks.total,
            norm.epsilon if norm.kind != "none" else added.epsilon,
            self.scale,
            0 if cache is None else keys.stride(0),
            0 if cache is None else keys.stride(1),
            0 if cache is None else keys.stride(2),
            n_rows,
            R=n_rows if n_rows <= FEW else 0,
            N=self.n_results,
            K=self.n_inputs,
            NORM=norm.kind,
            NORM_BIAS=norm.bias is not None,
            SCALED=self.scale != 1.0,
            BIAS=self.bias is not None,
            ACTIVATION=self.activation,
            GATED=self.gated,
            RESIDUAL="" if residual is None else "plain" if added.kind == "none" else "normed",
            RESIDUAL_NORM=added.kind,
            RESIDUAL_NORM_BIAS=added.bias is not None,
            STATISTICS=statistics,
            END=end,
            HEAD=self.head,
            FEW=n_rows <= FEW,
            **blocks,
            warps=warps,
            stages=stages,
        )
        return out


def normalize(x: State) -> Tensor:
    """States with their norm applied."""
    norm, width = x.norm, x.raw.shape[1:]
    if norm.kind == "layer":
        return F.layer_norm(x.raw, width, norm.weight, norm.bias, norm.epsilon)
    return F.rms_norm(x.raw, width, norm.weight, norm.epsilon) if norm.kind == "rms" else x.raw


def _or_stand_in(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """A tensor for a kernel; where there is none, one that it does not read."""
    return stand_in if tensor is None else tensor
