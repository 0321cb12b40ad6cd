"""Norms, with an identity for a norm that is absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

NormKind = Literal["layer", "layer-no-bias", "rms", "none"]


def norm(kind: NormKind, width: int, epsilon: float) -> nn.Module:
    """The norm of a slot: `layer` (mean and spread, scale and shift), `rms` (size only, scale only), or nothing."""
    if kind in ("layer", "layer-no-bias"):
        return nn.LayerNorm(width, eps=epsilon, bias=kind == "layer")
    if kind == "rms":
        return nn.RMSNorm(width, eps=epsilon)
    return nn.Identity()


@dataclass
class Norm:
    """A norm as kernels read it: by its numbers."""

    kind: str = "none"
    weight: Tensor | None = None
    bias: Tensor | None = None
    epsilon: float = 0.0

    @classmethod
    def of(cls, module: nn.Module) -> Norm:
        """The numbers of a module that `norm` has made."""
        if isinstance(module, nn.LayerNorm):
            bias = None if module.bias is None else module.bias.detach()
            return cls("layer", module.weight.detach(), bias, module.eps)
        if isinstance(module, nn.RMSNorm):
            epsilon = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
            return cls("rms", module.weight.detach(), None, epsilon)
        return cls()
