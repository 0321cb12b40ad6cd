"""Linear probes: multinomial logistic regression with a squared penalty, of all layers at once, at its optimum.

A probe minimizes Σ cross-entropy + l2/2 · ‖weights‖² over standardized features; its optimum is unique, so that a
result depends on no seed, no learning rate and no number of epochs. It is that of scikit-learn's `LogisticRegression`
with C = 1/l2 (which has a single set of weights for two labels, and so another penalty there).

All layers take their steps together: L-BFGS, with the inverse of an approximate Hessian that has the features'
covariance and each label's own curvature in it, so that tens of passes over the data are enough. The first steps are
taken on growing parts of the data.

Shapes: L layers, N examples, F features, C labels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

TOLERANCE = 1e-4
"""Largest component of the gradient of the mean loss at which a probe counts as converged; scikit-learn's, too."""
MAX_STEPS = 300
CHUNK = 4096
"""Examples that are multiplied at once on a CPU."""
CHUNK_CUDA = 65_536
CHUNK_CUDA_BYTES = 1 << 29
"""Features that are put together at once on a GPU."""
MEASURED = 32_768
"""Examples that means, standard deviations and covariances are measured on at most; they are evenly spaced."""
SMALLEST_SPREAD = 1e-6
LAYER_EXAMPLES = 65_536
"""Of more examples than that, a CPU fits the layers one after another: none then waits for the slowest."""
FIRST_PART = 4096
"""Examples that a fit begins with at least; then four times as many, until it has all."""
ROUGH, ROUGH_STEPS = 1e-3, 60
"""The tolerance on parts of the examples, and the most steps on each."""
_HISTORY = 20
_DECREASE = 1e-4


History = deque[tuple[Tensor, Tensor, Tensor]]
"""Steps, the changes of the gradient in them, and the inverses of their products; what one part of the examples taught
holds for the next."""


class Design(Protocol):
    """Features of examples, of every layer."""

    shape: tuple[int, int, int]
    """(L, N, F)"""
    device: torch.device

    def rows(self, numbers: Tensor | slice) -> Tensor:
        """[L, n, F] of these examples."""

    def of_layers(self, layers: slice) -> Design:
        """The same of some layers."""


@dataclass
class Standard:
    """What brings features to mean 0 and standard deviation 1."""

    center: Tensor
    """[L, F]"""
    spread: Tensor
    """[L, F]; 1 where a feature never changes."""
    directions: Tensor
    """[L, F + 1, F + 1]: eigenvectors of the covariance of standardized features and the constant 1."""
    variances: Tensor
    """[L, F + 1]: their eigenvalues."""

    @classmethod
    def of(cls, design: Design, numbers: Tensor) -> Standard:
        """Measured on these examples, on `MEASURED` of them at most."""
        sample = numbers[:: max(1, -(-len(numbers) // MEASURED))]
        n_layers, _, width = design.shape
        total = torch.zeros(n_layers, width + 1, width + 1, dtype=torch.float64, device=design.device)
        for part in sample.split(_chunk(design)):
            rows = _with_ones(design.rows(part))
            total += (rows.transpose(1, 2) @ rows).double()
        total /= len(sample)
        center = total[:, :-1, -1].clone()
        variance = total[:, :-1, :-1].diagonal(dim1=1, dim2=2) - center.square()
        spread = variance.clamp(min=0).sqrt()
        spread = torch.where(spread > SMALLEST_SPREAD, spread, 1.0)
        variances = total.new_zeros(n_layers, width + 1)
        for layer, whole in enumerate(total):  # in place: these matrices are large, and there is one of each layer
            whole[:-1, :-1] -= torch.outer(center[layer], center[layer])
            whole[:-1, :-1] /= torch.outer(spread[layer], spread[layer])
            whole[:-1, -1] = whole[-1, :-1] = 0.0
            whole[-1, -1] = 1.0
            variances[layer], total[layer] = torch.linalg.eigh(whole)
        return cls(center, spread, total, variances.clamp(min=0))

    def of_layers(self, layers: slice) -> Standard:
        """The same of some layers."""
        return Standard(self.center[layers], self.spread[layers], self.directions[layers], self.variances[layers])

    def fold(self, weights: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Weights [L, F + 1, C] of standardized features as those of the features themselves, and their biases."""
        own = weights[:, :-1] / self.spread[:, :, None]
        bias = weights[:, -1] - torch.einsum("lf,lfc->lc", self.center, own)
        return own.to(dtype), bias.to(dtype)[:, None]

    def unfold(self, gradient: Tensor, of_bias: Tensor) -> Tensor:
        """The gradient by weights of standardized features, from that by the folded ones."""
        own = (gradient - self.center[:, :, None] * of_bias[:, None]) / self.spread[:, :, None]
        return torch.cat([own, of_bias[:, None]], dim=1)


@dataclass
class LinearProbes:
    """A fitted probe of every layer."""

    standard: Standard
    weights: Tensor
    """[L, F + 1, C] over standardized features; the last row is the bias."""
    gradient: Tensor
    """[L]: the largest component of the gradient of the mean loss where the steps ended."""
    tolerance: float = TOLERANCE
    steps: int = 0

    def log_probs(self, design: Design, numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Examples and what is predicted of them, [L, n, C], part by part."""
        dtype = design.rows(numbers[:1]).dtype
        own, bias = self.standard.fold(self.weights, dtype)
        for part in numbers.split(_chunk(design)):
            yield part, torch.log_softmax(torch.baddbmm(bias, design.rows(part), own), dim=-1)


def fit_linear(
    design: Design,
    labels: Tensor,
    numbers: Tensor,
    *,
    n_labels: int,
    l2: float,
    standard: Standard | None = None,
    start: Tensor | None = None,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
    bias_l2: float | None = None,
) -> LinearProbes:
    """Fit the probes of all layers.

    Args:
        design: the features.
        labels: [N] of all examples.
        numbers: those examples that are learned from.
        n_labels: how many labels there are.
        l2: the penalty, against the loss summed over examples.
        standard: how features are standardized; None: as these examples are.
        start: weights to begin with; the optimum does not depend on them.
        tolerance: largest component of the gradient of the mean loss.
        max_steps: most steps on all of the examples.
        bias_l2: the penalty of the biases; None: that of the weights. With 0, a label that no example has would have no
            probability at all.
    """
    standard = standard or Standard.of(design, numbers)
    n_layers = design.shape[0]
    at_once = n_layers if design.device.type != "cpu" else max(1, LAYER_EXAMPLES // len(numbers))
    fits = []
    for first in range(0, n_layers, at_once):
        layers = slice(first, first + at_once)
        part, begin = design.of_layers(layers), None if start is None else start[layers]
        sizes = [len(numbers)] if start is not None else _parts(len(numbers))
        fits.append(_fit(part, labels, numbers, standard.of_layers(layers), begin, sizes, n_labels=n_labels, l2=l2,
                         bias_l2=bias_l2, tolerance=tolerance, max_steps=max_steps))  # fmt: skip
    weights, gradients, steps = zip(*fits, strict=True)
    return LinearProbes(standard, torch.cat(weights), torch.cat(gradients), tolerance, max(steps))


def _fit(
    design: Design, labels: Tensor, numbers: Tensor, standard: Standard, start: Tensor | None, sizes: Sequence[int], *,
    n_labels: int, l2: float, bias_l2: float | None, tolerance: float, max_steps: int,
) -> tuple[Tensor, Tensor, int]:  # fmt: skip
    """Weights, the largest components of their gradients, and the number of steps, of layers fitted together."""
    weights = _first_weights(design, labels[numbers], n_labels) if start is None else start
    history: History = deque(maxlen=_HISTORY)
    steps = 0
    for size in sizes:
        part = numbers[:: max(1, len(numbers) // size)] if size < len(numbers) else numbers
        task = _Task(design, labels, part, standard, n_labels, l2 / len(numbers), bias_l2)
        whole = size == sizes[-1]
        weights, gradient, done = _minimize(
            task,
            weights,
            history,
            tolerance=tolerance if whole else max(tolerance, ROUGH),
            max_steps=max_steps if whole else ROUGH_STEPS,
        )
        steps += done
    return weights, gradient, steps


def _parts(n: int) -> list[int]:
    """Growing numbers of examples, up to all.

    >>> _parts(204_000), _parts(5_000)
    ([12750, 51000, 204000], [5000])
    """
    sizes = [n]
    while sizes[0] // 4 >= FIRST_PART and len(sizes) < 3:
        sizes.insert(0, sizes[0] // 4)
    return sizes


def _first_weights(design: Design, labels: Tensor, n_labels: int) -> Tensor:
    """Nothing but the labels' frequencies."""
    n_layers, _, width = design.shape
    weights = torch.zeros(n_layers, width + 1, n_labels, dtype=torch.float64, device=design.device)
    counts = torch.bincount(labels, minlength=n_labels).double() + 1.0
    weights[:, -1] = (counts / counts.sum()).log().to(design.device)
    return weights


@dataclass
class _Task:
    """Loss and gradient of the mean loss."""

    design: Design
    labels: Tensor
    numbers: Tensor
    standard: Standard
    n_labels: int
    penalty: float
    bias_l2: float | None

    def __post_init__(self) -> None:
        width = self.design.shape[2]
        scale = torch.full((width + 1, 1), self.penalty, dtype=torch.float64, device=self.design.device)
        if self.bias_l2 is not None:
            scale[-1] = self.bias_l2 / len(self.numbers)
        self.penalties = scale
        contiguous = len(self.numbers) == int(self.numbers[-1] - self.numbers[0]) + 1 if len(self.numbers) else False
        self.first = int(self.numbers[0]) if contiguous and bool((self.numbers.diff() == 1).all()) else None

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and labels; consecutive examples are not copied."""
        size = _chunk(self.design)
        for begin in range(0, len(self.numbers), size):
            part = self.numbers[begin : begin + size]
            if self.first is None:
                yield self.design.rows(part), self.labels[part]
            else:
                at = slice(self.first + begin, self.first + begin + len(part))
                yield self.design.rows(at), self.labels[at]

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss [L], its gradient [L, F + 1, C], and the mean curvature by the scores [L, C, C]: diag(p) − p pᵀ."""
        dtype = self.design.rows(self.numbers[:1]).dtype
        own, bias = self.standard.fold(weights, dtype)
        n_layers = len(weights)
        loss = torch.zeros(n_layers, dtype=torch.float64, device=weights.device)
        gradient, of_bias = torch.zeros_like(weights[:, :-1]), torch.zeros_like(weights[:, -1])
        curvature = weights.new_zeros(n_layers, self.n_labels, self.n_labels)
        for rows, labels in self.chunks():
            scores = torch.log_softmax(torch.baddbmm(bias, rows, own), dim=-1)  # [L, n, C]
            gold = labels[None, :, None].expand(n_layers, -1, 1)
            loss -= scores.gather(2, gold).sum((1, 2), dtype=torch.float64)
            shares = scores.exp_()
            curvature += torch.diag_embed(shares.sum(1)) - torch.bmm(shares.transpose(1, 2), shares)
            shares.scatter_add_(2, gold, shares.new_full((), -1.0).expand(gold.shape))
            gradient += torch.bmm(shares.transpose(1, 2), rows).transpose(1, 2)
            of_bias += shares.sum(1, dtype=torch.float64)
        n = len(self.numbers)
        penalized = self.penalties * weights
        loss = loss / n + 0.5 * (penalized * weights).sum((1, 2))
        return loss, self.standard.unfold(gradient / n, of_bias / n) + penalized, curvature / n

    def preconditioner(self, curvature: Tensor) -> Callable[[Tensor], Tensor]:
        """What multiplies a gradient by the inverse of (curvature ⊗ covariance + penalty)."""
        # on the CPU: torch hands a GPU matrices with more than 32 rows one after another
        values, labels = (each.to(curvature.device) for each in torch.linalg.eigh(curvature.cpu()))  # [L, C], [L, C, C]
        features = self.standard.directions
        scale = values.clamp(min=0)[:, None] * self.standard.variances[:, :, None] + max(self.penalty, 1e-12)

        def multiply(gradient: Tensor) -> Tensor:
            turned = features.transpose(1, 2) @ gradient @ labels
            result: Tensor = features @ (turned / scale) @ labels.transpose(1, 2)
            return result

        return multiply


def _minimize(
    task: _Task, weights: Tensor, history: History, *, tolerance: float, max_steps: int
) -> tuple[Tensor, Tensor, int]:
    """L-BFGS of all layers side by side; a layer that has converged stays where it is."""
    loss, gradient, curvature = task(weights)
    slack = 1e-6 if task.design.rows(task.numbers[:1]).dtype == torch.float32 else 1e-14
    for step in range(max_steps):
        largest = gradient.abs().amax((1, 2))
        moving = largest > tolerance
        if not bool(moving.any()):
            return weights, largest, step
        direction = -_two_loops(gradient, history, task.preconditioner(curvature))
        direction = direction * moving[:, None, None]
        slope = _dot(gradient, direction)
        length = torch.ones_like(slope)
        for _ in range(20):
            ahead = weights + length[:, None, None] * direction
            new_loss, new_gradient, new_curvature = task(ahead)
            fine = new_loss <= loss + _DECREASE * length * slope + slack * loss.abs()
            if bool(fine.all()):
                break
            length = torch.where(fine, length, length / 4)
        else:  # nothing more can be gained in this precision
            return weights, largest, step
        moved, changed = ahead - weights, new_gradient - gradient
        along = _dot(moved, changed)
        history.append((moved, changed, torch.where(along > 1e-300, 1.0 / along.clamp(min=1e-300), 0.0)))
        weights, loss, gradient, curvature = ahead, new_loss, new_gradient, new_curvature
    return weights, gradient.abs().amax((1, 2)), max_steps


def _two_loops(gradient: Tensor, history: History, precondition: Callable[[Tensor], Tensor]) -> Tensor:
    """L-BFGS's estimate of the inverse Hessian times the gradient (Nocedal and Wright, algorithm 7.4), by layer."""
    q, alphas = gradient.clone(), []
    for moved, changed, inverse in reversed(history):
        alpha = inverse * _dot(moved, q)
        q = q - alpha[:, None, None] * changed
        alphas.append(alpha)
    result = precondition(q)
    if history:
        moved, changed, inverse = history[-1]
        size = _dot(changed, precondition(changed))
        gamma = torch.where((inverse > 0) & (size > 0), 1.0 / (inverse * size).clamp(min=1e-300), 1.0)
        result = gamma.clamp(1e-3, 1e3)[:, None, None] * result
    for (moved, changed, inverse), alpha in zip(history, reversed(alphas), strict=True):
        beta = inverse * _dot(changed, result)
        result = result + (alpha - beta)[:, None, None] * moved
    return result


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum((1, 2))


def _with_ones(rows: Tensor) -> Tensor:
    return F.pad(rows, (0, 1), value=1.0)


def _chunk(design: Design) -> int:
    """How many examples are multiplied at once."""
    if design.device.type == "cpu":
        return CHUNK
    n_layers, _, width = design.shape
    return min(CHUNK_CUDA, max(CHUNK, CHUNK_CUDA_BYTES // (4 * n_layers * width)))
