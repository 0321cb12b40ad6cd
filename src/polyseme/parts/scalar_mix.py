"""The scalar mix of ELMo: γ · Σ s_j h_j, with s the softmax of weights that a task learns.

Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-12
MEASURED = 65_536
"""Vectors that means and standard deviations are measured on at most; they are evenly spaced."""
SMALLEST_SPREAD = 1e-6


class ScalarMix(nn.Module):
    """One vector from all layers. At first every layer counts alike and γ is 1.

    With `layer_norm` each layer is first brought to mean 0 and variance 1 over the whole batch, as in the original:
    then a word's vector depends on the rows beside it, so it is off by default. With a `standard_width` D, every number
    of every layer is first brought to mean 0 and standard deviation 1, as `standardize` has measured them: stacks with
    norms before their parts have states that grow with the layers, up to a hundred times what the lowest have.
    """

    center: Tensor | None
    """[L, D]: the mean of each number of a layer."""
    spread: Tensor | None
    """[L, D]: its standard deviation."""

    def __init__(
        self,
        n_layers: int,
        *,
        layer_norm: bool = False,
        dropout_rate: float = 0.0,
        standard_width: int | None = None,
    ) -> None:
        super().__init__()
        shape = None if standard_width is None else (n_layers, standard_width)
        self.register_buffer("center", None if shape is None else torch.zeros(shape))
        self.register_buffer("spread", None if shape is None else torch.ones(shape))
        self.weights = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.layer_norm = layer_norm
        self.dropout = nn.Dropout(dropout_rate)

    def forward(self, layers: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        """[R, T, D] a layer → [R, T, D]; `real` [R, T] says which pieces the norm takes its statistics from."""
        if len(layers) != len(self.weights):
            raise ValueError(f"A mix of {len(self.weights)} layers was given {len(layers)}.")
        shares = torch.softmax(self.weights, dim=0)
        if self.layer_norm:
            layers = [over_the_batch(layer, real) for layer in layers]
        if self.center is not None and self.spread is not None:
            layers = [(layer - self.center[n]) / self.spread[n] for n, layer in enumerate(layers)]
        mixed = shares[0] * layers[0]
        for share, layer in zip(shares[1:], layers[1:], strict=True):
            mixed = mixed + share * layer
        dropped: Tensor = self.dropout(self.gamma * mixed)
        return dropped

    def of_stacked(self, layers: Tensor) -> Tensor:
        """The same of layers of one tensor: […, L, D] → […, D]."""
        if self.layer_norm:
            return self.forward(layers.unbind(-2))
        shares = (self.gamma * torch.softmax(self.weights, dim=0))[:, None]
        if self.center is None or self.spread is None:
            mixed = (shares * layers).sum(-2)
        else:
            shares = shares / self.spread
            mixed = (shares * layers).sum(-2) - (shares * self.center).sum(-2)
        dropped: Tensor = self.dropout(mixed)
        return dropped

    @torch.no_grad()
    def standardize(self, vectors: Tensor) -> None:
        """Measure means and standard deviations on vectors [N, L, D], of at most `MEASURED` of them; a number that
        never changes is only centered.
        """
        if self.center is None or self.spread is None:
            raise ValueError("A mix without a standard width has nothing to standardize.")
        sample = vectors[:: max(1, -(-len(vectors) // MEASURED))].double()
        spread = sample.std(dim=0, correction=0)
        self.center.copy_(sample.mean(dim=0))
        self.spread.copy_(torch.where(spread > SMALLEST_SPREAD, spread, 1.0))

    def penalty(self) -> Tensor:
        """‖w‖², which a task adds to its loss, times λ, to keep the layers' shares alike."""
        return self.weights.square().sum()


def over_the_batch(layer: Tensor, real: Tensor | None) -> Tensor:
    """A layer with mean 0 and variance 1 over all real pieces of the batch and all its numbers."""
    valid = layer if real is None else layer[real]
    return (layer - valid.mean()) / torch.sqrt(valid.var(correction=0) + EPSILON)
