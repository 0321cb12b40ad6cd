"""Frozen products in bf16 and int8 on a CPU: faster where the processor has the instructions, the same anywhere.

Sums and norms between the products stay in fp32. Where the instructions are missing, the rounded values are multiplied
in fp32: no faster, but what comes out is what another machine computes (`bf16_is_fast`, `int8_is_fast` tell).

A row's result never depends on its neighbours: int8 activations are scaled row by row.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from polyseme.parts.activations import Activation
from polyseme.parts.product import FUSED_GELUS, Product


class HalfProduct:
    """act(x·Wᵀ + b) with x and W rounded to bf16 and summed in fp32; the result in bf16, or fp32 with a residual."""

    def __init__(self, linear: nn.Linear, activation: Activation | None = None) -> None:
        self.weight = linear.weight.detach().bfloat16()
        self.bias = None if linear.bias is None else linear.bias.detach().bfloat16()
        self.activation = activation
        self.packed: Tensor | None = None
        self.plain: Product | None = None

    def pack(self, n_pieces: int) -> None:
        """Lay the weights out for products of about `n_pieces` rows; without the instructions, as fp32."""
        if bf16_is_fast():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, n_pieces)
        else:
            self.plain = self._as_fp32()
            self.plain.pack(n_pieces)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = self._product(x.bfloat16())
        return y if residual is None else residual + y

    def _product(self, x: Tensor) -> Tensor:
        if self.packed is None:
            in_fp32 = self._as_fp32() if self.plain is None else self.plain
            return in_fp32(x.float()).bfloat16()
        run = torch.ops.mkldnn._linear_pointwise
        algorithm = None if self.activation is None else FUSED_GELUS.get(self.activation)
        if algorithm is not None:
            fused: Tensor = run(x, self.packed, self.bias, "gelu", [], algorithm)
            return fused
        plain: Tensor = run(x, self.packed, self.bias, "none", [], "")
        return plain if self.activation is None else self.activation(plain)

    def _as_fp32(self) -> Product:
        """The same product of the rounded values in fp32."""
        bias = None if self.bias is None else self.bias.float()
        return Product.of(self.weight.float(), bias, self.activation)


class Int8Product:
    """act(x·Wᵀ + b) with W scaled to int8 row by row beforehand, and x row by row as it comes."""

    def __init__(self, linear: nn.Linear, activation: Activation | None = None) -> None:
        weight = linear.weight.detach().float()
        self.weight_scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        self.weight = (weight / self.weight_scale[:, None]).round().to(torch.int8).T.contiguous()  # [in, out]
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        self.activation = activation
        self.plain: Tensor | None = None

    def pack(self, n_pieces: int) -> None:
        """Without the instructions, keep the int8 values as fp32."""
        if not int8_is_fast():
            self.plain = self.weight.float()

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        x = x.float()
        scale = x.abs().amax(1, keepdim=True).clamp_(min=1e-12).div_(127)
        rounded = (x * scale.reciprocal()).round_()
        if self.plain is None and int8_is_fast():
            summed = torch._int_mm(rounded.to(torch.int8), self.weight).float()
        else:
            summed = rounded @ (self.weight.float() if self.plain is None else self.plain)
        y = summed.mul_(scale)
        y = y.mul_(self.weight_scale) if self.bias is None else torch.addcmul(self.bias, y, self.weight_scale, out=y)
        if self.activation is not None:
            y = self.activation(y)
        return y if residual is None else y.add_(residual)


@functools.cache
def bf16_is_fast() -> bool:
    """Whether this processor multiplies bf16, and torch's packed operator computes what it should."""
    weight = torch.linspace(-1, 1, 32 * 32).reshape(32, 32).bfloat16()
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
        found = torch.ops.mkldnn._linear_pointwise(weight, packed, None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return bool(torch.allclose(found.float(), weight.float() @ weight.float().T, atol=0.1, rtol=0.02))


@functools.cache
def int8_is_fast() -> bool:
    """Whether this processor has instructions for sums of int8 products, and torch's operator computes them."""
    told = getattr(torch.cpu, "_is_vnni_supported", None)
    if told is None or not told() or not hasattr(torch, "_int_mm"):
        return False
    numbers = torch.arange(-64, 64, dtype=torch.int8).repeat(8).reshape(32, 32)
    expected = numbers.double() @ numbers.double()
    return bool(torch.equal(torch._int_mm(numbers, numbers).double(), expected))
