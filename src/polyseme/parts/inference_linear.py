"""A linear layer for inference with what comes right after it: activation, residual sum.

On a CPU, torch's oneDNN operators run it in one go over weights packed for the processor. They are private, so they
are only used after a trial against `F.linear` in this process, and everything else runs plainly.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.parts.feed_forward import Activation, gelu_tanh

if TYPE_CHECKING:
    from typing_extensions import Self

FUSED_GELUS = {F.gelu: "none", gelu_tanh: "tanh"}
"""Activations that oneDNN applies within the product, with its name for their algorithm."""


class LinearProduct(ABC):
    """act(x·Wᵀ + b), plus a residual where one is given: [N, in] → [N, out]"""

    def __init__(self, linear: nn.Linear, activation: Activation | None = None) -> None:
        self._fill(linear.weight.detach(), None if linear.bias is None else linear.bias.detach(), activation)

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Self:
        """A product of these tensors."""
        product = cls.__new__(cls)
        product._fill(weight, bias, activation)
        return product

    @abstractmethod
    def _fill(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None: ...

    @abstractmethod
    def pack(self, n_pieces: int) -> None:
        """Lay the weights out for products of about `n_pieces` rows, where this machine gains by it."""

    @abstractmethod
    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor: ...


class Product(LinearProduct):
    """The product in the weights' own precision."""

    def _fill(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        self.weight = weight
        self.bias = bias
        self.activation = activation
        self.packed: Tensor | None = None

    def pack(self, n_pieces: int) -> None:
        if self.weight.device.type == "cpu" and self.weight.dtype == torch.float32 and packing_works():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, n_pieces)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.packed is None:
            y = F.linear(x, self.weight, self.bias)
            if self.activation is not None:
                y = self.activation(y)
            return y if residual is None else y.add_(residual)
        return self._packed_product(x, self.packed, residual)

    def _packed_product(self, x: Tensor, packed: Tensor, residual: Tensor | None) -> Tensor:
        run = torch.ops.mkldnn._linear_pointwise
        algorithm = None if self.activation is None else FUSED_GELUS.get(self.activation)
        y: Tensor
        if residual is not None and self.activation is None and fusing_pays():
            y = run.binary(x, residual, packed, self.bias, "add")
            return y
        if algorithm is not None and fusing_pays():
            y = run(x, packed, self.bias, "gelu", [], algorithm)
        else:
            y = run(x, packed, self.bias, "none", [], "")
            if algorithm is not None:
                y = torch.ops.aten.gelu_(y, approximate=algorithm)
            elif self.activation is not None:
                y = self.activation(y)
        return y if residual is None else y.add_(residual)


@functools.cache
def fusing_pays() -> bool:
    """Whether activation and sum are faster within the product: with AVX2 alone, they are not."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def packing_suits_one_row() -> bool:
    """Whether packed weights are also read fastest for a single row: with AVX2 alone, they are not."""
    return fusing_pays() and packing_works()


@functools.cache
def packing_works() -> bool:
    """Whether this torch has the packed operators and they compute what they should."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(32, 48)
    with torch.inference_mode():
        x = torch.randn(16, 32, generator=generator)
        residual = torch.randn(16, 48, generator=generator)
        for activation, added in ((None, None), (None, residual), (F.gelu, None), (gelu_tanh, None)):
            plain = Product(linear, activation)
            fused = Product(linear, activation)
            try:
                fused.packed = torch.ops.mkldnn._reorder_linear_weight(fused.weight, 16)
                if not torch.allclose(fused(x, added), plain(x, added), atol=1e-5):
                    return False
            except (AttributeError, RuntimeError, TypeError):
                return False
    return True
