"""Gates that are learned (Voita et al. 2019, Analyzing Multi-Head Self-Attention): hard concrete (Louizos et al. 2018).

Every head has a gate that is drawn for each row, stretched beyond 0 and 1 and cut off there, so that it is often
exactly 0 or 1. Training minimizes the loss plus a price for the expected number of open gates, for as long as more are
open than requested. Other than in the paper, only the gates are trained: the weights stay as they are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.pruning.head_gates import apply_gates
from polyseme.pruning.head_removal import AttentionPlace, HeadPlace, attentions_of, heads_of
from polyseme.pruning.pruning_subject import Subject
from polyseme.types import Progress

TEMPERATURE, LOW, HIGH = 0.5, -0.1, 1.1
"""Of the distribution: β, γ and ζ of Louizos et al."""
LEARNING_RATE = 0.1
PRICE = 10.0
"""What the loss of a label or piece rises by if all gates were open instead of as many as requested."""
OPEN = 2.0
"""Where log α begins: gates are open nearly always."""


def drawn(log_alpha: Tensor, n_rows: int, generator: torch.Generator) -> Tensor:
    """[H] → [R, H]: gates from 0 to 1, both included."""
    u = torch.rand(n_rows, len(log_alpha), generator=generator).clamp(1e-6, 1 - 1e-6).to(log_alpha)
    s = torch.sigmoid((u.log() - (1 - u).log() + log_alpha) / TEMPERATURE)
    return (s * (HIGH - LOW) + LOW).clamp(0.0, 1.0)


def open_probability(log_alpha: Tensor) -> Tensor:
    """[H]: how likely each gate is more than 0."""
    return torch.sigmoid(log_alpha - TEMPERATURE * math.log(-LOW / HIGH))


def gate_importance(
    subject: Subject, bundle: Bundle, n_remove: int, *, steps: int, seed: int = 0, progress: Progress | None = None
) -> dict[HeadPlace, float]:
    """How open each gate is after training on `train` until about `n_remove` of them are closed."""
    attentions = attentions_of(bundle, subject.parts)
    alphas = {
        at: torch.full((each.n_heads,), OPEN, device=bundle.device, requires_grad=True)
        for at, each in attentions.items()
        if each.n_heads
    }
    total = sum(each.n_heads for each in attentions.values())
    optimizer = torch.optim.Adam(alphas.values(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    batches = subject.batches("train")

    def gate_for(at: AttentionPlace, n_rows: int, like: Tensor) -> Tensor:
        return drawn(alphas[at], n_rows, generator).to(like)

    order: list[int] = []
    for step in range(steps):
        if progress is not None:
            progress(step, steps)
        order = order or torch.randperm(len(batches), generator=generator).tolist()
        with apply_gates(attentions, gate_for):
            loss = subject.loss(bundle, batches[order.pop()])
        still_open = torch.cat([open_probability(each) for each in alphas.values()]).sum() / total
        price = PRICE * (still_open - (total - n_remove) / total).clamp(min=0.0)
        gradients = torch.autograd.grad(loss.total / loss.n_targets + price, list(alphas.values()), allow_unused=True)
        for alpha, gradient in zip(alphas.values(), gradients, strict=True):
            alpha.grad = gradient
        optimizer.step()
    return {
        HeadPlace(at, head): float(value)
        for at, alpha in alphas.items()
        for head, value in zip(heads_of(attentions[at]), open_probability(alpha.detach()), strict=True)
    }
