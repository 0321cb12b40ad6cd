"""Norms, with an identity for a norm that is absent."""

from __future__ import annotations

from typing import Literal

from torch import nn

NormKind = Literal["layer", "layer-no-bias", "rms", "none"]


def norm(kind: NormKind, width: int, epsilon: float) -> nn.Module:
    """The norm of a slot: `layer` (mean and spread, scale and shift), `rms` (size only, scale only), or nothing."""
    if kind in ("layer", "layer-no-bias"):
        return nn.LayerNorm(width, eps=epsilon, bias=kind == "layer")
    if kind == "rms":
        return nn.RMSNorm(width, eps=epsilon)
    return nn.Identity()
