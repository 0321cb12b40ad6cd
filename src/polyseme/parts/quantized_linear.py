"""Linear layers in bf16 and int8 for inference on a CPU: faster where the processor can, the same anywhere.

Sums and norms between the products stay in fp32. Where the instructions are missing, the rounded values are multiplied
in fp32: no faster, but with the results of any other machine (`bf16_is_fast`, `int8_is_fast` tell).

A row's result never depends on its neighbors: int8 activations are scaled row by row.
"""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch import Tensor

from polyseme.parts.feed_forward import Activation
from polyseme.parts.inference_linear import FUSED_GELUS, LinearProduct, Product


class HalfProduct(LinearProduct):
    """The product with x and W rounded to bf16 and summed in fp32; the result in bf16, or fp32 with a residual."""

    def _fill(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        self.weight = weight.bfloat16()
        self.bias = None if bias is None else bias.bfloat16()
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


def to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix as whole numbers from -127 to 127, [out, in], and the scale of each row, [out].

    A scale has 16 binary digits. Whole numbers times scales are therefore exact in fp32, and the same whole numbers and
    scales are found in them again: what is saved in int8 and loaded in fp32 can run in int8, to the last bit.
    """
    weight = weight.float()
    scale = weight.abs().amax(1).clamp(min=1e-12) / 127
    scale = ((scale.view(torch.int32) + 0xFF) & ~0xFF).view(torch.float32)  # up, so that no number exceeds 127
    return (weight / scale[:, None]).round().to(torch.int8), scale


def from_int8(weight: Tensor, scale: Tensor) -> Tensor:
    """The matrix that whole numbers and scales stand for, in fp32."""
    return weight.float() * scale.float()[:, None]


class Int8Product(LinearProduct):
    """The product with W scaled to int8 row by row beforehand, and x row by row as it comes."""

    def _fill(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        self.weight, self.weight_scale = to_int8(weight)
        self.bias = None if bias is None else bias.float()
        self.activation = activation
        self.sums: Sums = PlainSums(self.weight, self.weight_scale)

    def pack(self, n_pieces: int) -> None:
        """Lay the weights out for products of about `n_pieces` rows, in the way that suits this processor."""
        self.sums = sums_in_int8()(self.weight, self.weight_scale)
        self.sums.pack(n_pieces)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        x = x.float()
        scale = torch.maximum(x.amax(1, keepdim=True), x.amin(1, keepdim=True).neg_()).clamp_(min=1e-12).div_(127)
        y = self.sums((x * scale.reciprocal()).round_())
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale, out=y)
        if self.activation is not None:
            y = self.activation(y)
        return y if residual is None else y.add_(residual)


class Sums(Protocol):
    """x·Wᵀ, times the scale of each row of W; x and W hold whole numbers from -127 to 127.

    Integers are summed exactly, whatever other rows there are; in fp32 sums are as near as that comes.
    """

    def __init__(self, weight: Tensor, scale: Tensor) -> None: ...

    def pack(self, n_pieces: int) -> None:
        """Lay the weights out for products of about `n_pieces` rows."""

    def __call__(self, x: Tensor) -> Tensor:
        """Whole numbers as floats [N, in] → fp32 [N, out]."""


ZERO = 128
"""What stands for 0 among unsigned activations."""


class PackedSums:
    """By oneDNN, over packed weights; the scale is put on as the sums are written.

    Activations are moved up to 1 … 255: AVX-512 multiplies unsigned numbers by signed ones, and for two signed ones
    oneDNN has a fast product with AMX only.
    """

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        self.weight = weight
        self.scale = scale
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        self.packed: Tensor | None = None

    def pack(self, n_pieces: int) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(self.weight, [n_pieces, self.weight.shape[1]])

    def __call__(self, x: Tensor) -> Tensor:
        moved = (x + ZERO).to(torch.uint8)
        run = torch.ops.onednn.qlinear_pointwise
        y: Tensor = run(
            moved, 1.0, ZERO, self.packed, self.scale, self.zero, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y


class IntegerSums:
    """By torch's own product of integers."""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        self.weight = weight.T.contiguous()  # [in, out]
        self.scale = scale

    def pack(self, n_pieces: int) -> None:
        """They are laid out."""

    def __call__(self, x: Tensor) -> Tensor:
        return torch._int_mm(x.to(torch.int8), self.weight).float().mul_(self.scale)


class PlainSums:
    """In fp32, without the instructions."""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        self.product = Product.of(weight * scale[:, None], None, None)

    def pack(self, n_pieces: int) -> None:
        self.product.pack(n_pieces)

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)


@functools.cache
def bf16_is_fast() -> bool:
    """Whether this processor multiplies bf16, and torch's packed operator computes what it should."""
    weight = torch.linspace(-1, 1, 32 * 32).reshape(32, 32).bfloat16()
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
        product = torch.ops.mkldnn._linear_pointwise(weight, packed, None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return bool(torch.allclose(product.float(), weight.float() @ weight.float().T, atol=0.1, rtol=0.02))


@functools.cache
def sums_in_int8() -> type[Sums]:
    """The fastest that this processor has instructions for and that computes what it should."""
    is_supported = getattr(torch.cpu, "_is_vnni_supported", None)
    if is_supported is None or not is_supported():
        return PlainSums
    return next((kind for kind in (PackedSums, IntegerSums) if _is_exact(kind)), PlainSums)


def _is_exact(kind: type[Sums]) -> bool:
    """Whether sums come out right, also where the processor adds up in few bits and cuts larger ones."""
    most = torch.full((32, 64), 127, dtype=torch.int8)
    mixed = torch.arange(-127, 128).repeat(9)[: 32 * 64].reshape(32, 64).to(torch.int8)
    scale = torch.full((64,), 2.0)
    for weight in (torch.cat([most, -most]), torch.cat([mixed, most])):
        sums = kind(weight, scale)
        try:
            sums.pack(32)
            if any(
                not torch.equal(sums(x.float()).double(), 2 * (x.double() @ weight.double().T)) for x in (most, mixed)
            ):
                return False
        except (AttributeError, RuntimeError, TypeError):
            return False
    return True


def int8_is_fast() -> bool:
    """Whether this processor has instructions for sums of int8 products, and torch an operator that uses them."""
    return sums_in_int8() is not PlainSums
