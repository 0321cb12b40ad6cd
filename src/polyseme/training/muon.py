"""Muon: the optimizer of the matrices inside a stack of layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from polyseme.training.device_group import spread_like, whole


class Muon(torch.optim.Optimizer):
    """Jordan et al. 2024: each matrix moves by its momentum, made orthogonal by five Newton–Schulz iterations.

    m ← μm + (1 - μ)g;  u ← (1 - μ)g + μm (Nesterov), or m;  w ← w · (1 - rate · decay) - rate · 0.2 √max(shape) · NS(u)

    The last factor makes a step as long as one of AdamW (Liu et al. 2025). Equal to `torch.optim.Muon` with
    `match_rms_adamw`, but matrices of one shape are moved together, in few large products instead of many small ones.
    Iterations are in bf16 on a GPU, and in the gradients' own precision on a CPU, where bf16 may be slow.
    """

    COEFFICIENTS = (3.4445, -4.7750, 2.0315)
    ITERATIONS = 5

    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], *, momentum: float = 0.95, nesterov: bool = True
    ) -> None:
        defaults = {"lr": 1e-3, "weight_decay": 0.1, "momentum": momentum, "nesterov": nesterov, "capturable": False}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if not self.state[parameter]:
                        self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                self._move(parameters, shape, group)

    def _move(self, parameters: list[Tensor], shape: torch.Size, group: dict[str, Any]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        momenta = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        directions = self._orthogonal(torch.stack([whole(each) for each in ahead])).to(gradients[0].dtype)
        steps = directions * (group["lr"] * 0.2 * max(shape) ** 0.5)
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        moves = zip(parameters, steps.unbind(), strict=True)
        torch._foreach_sub_(parameters, [spread_like(parameter, each) for parameter, each in moves])

    def _orthogonal(self, matrices: Tensor) -> Tensor:
        """[n, r, c] → the same with all singular values near 1 (between about 0.7 and 1.2)."""
        a, b, c = self.COEFFICIENTS
        x = matrices.bfloat16() if matrices.is_cuda else matrices
        tall = x.shape[1] > x.shape[2]
        x = x.mT if tall else x
        x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-7)
        for _ in range(self.ITERATIONS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x.mT if tall else x
