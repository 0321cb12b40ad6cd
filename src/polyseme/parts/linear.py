"""x·Wᵀ + b: as torch computes it, or by oneDNN where that is much faster.

On x86 torch leaves products in fp32 to MKL, which takes its AVX2 code on processors of other makers than Intel, also
where they have AVX-512. oneDNN looks at the instructions alone; with it a product, and both products of its backward
pass, take about half of the time there. torch offers it as a private operator, so it is only used after a trial against
torch's own product in this process. Which one runs depends on the processor and on shapes, never on a clock, so that a
run that is resumed takes the same one.

Shapes: N rows (any leading dimensions), I inputs, O outputs.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

MIN_OPERATIONS = 1 << 21
"""N · I · O from which on oneDNN's product is worth the calls around it."""
CPUINFO = Path("/proc/cpuinfo")


class Linear(nn.Linear):
    """`torch.nn.Linear` with the faster of both products."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """States x [N, I] · weight [O, I] + bias: [N, O]."""
    if torch.compiler.is_compiling() or not _suits(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = OneDNNProduct.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return y
    return _product(x, weight, bias)


def _suits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN's product takes these tensors, and pays."""
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() * weight.shape[0] >= MIN_OPERATIONS
        and type(x) is Tensor
        and type(weight) in (Tensor, nn.Parameter)
        and (bias is None or bias.dtype == torch.float32)
        and not torch.is_autocast_enabled("cpu")
        # An exported graph must have products that other programs know.
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and onednn_pays()
    )


class OneDNNProduct(torch.autograd.Function):
    """The product, and those of its gradients, by oneDNN."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows, above_rows = x.reshape(-1, x.shape[-1]), above.reshape(-1, above.shape[-1])
        # A gradient of the gradient needs operators that have one.
        product = F.linear if torch.is_grad_enabled() else _product
        return (
            product(above_rows, weight.t(), None).view(x.shape) if of_x else None,
            product(above_rows.t(), rows.t(), None) if of_weight else None,
            above_rows.sum(0) if of_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


@functools.cache
def onednn_pays() -> bool:
    """Whether this processor gains by it, and this torch has it and computes what it should."""
    has_avx512 = "AVX512" in torch.backends.cpu.get_cpu_capability()
    return has_avx512 and torch.backends.mkl.is_available() and _maker() == "AuthenticAMD" and _works()


def _maker() -> str:
    """Of the processor, as it calls itself; empty where that is not known."""
    try:
        lines = CPUINFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def _works() -> bool:
    """A trial of the operator, with weights as they are and transposed."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((17, 32), (48, 32), (48,)))
        above = torch.randn(17, 48, generator=generator)
        for trial in ((x, weight, bias), (x, weight, None), (above, weight.t(), None), (above.t(), x.t(), None)):
            try:
                if not torch.allclose(_product(*trial), F.linear(*trial), atol=1e-4, rtol=1e-5):
                    return False
            except (AttributeError, RuntimeError, TypeError):
                return False
    return True
