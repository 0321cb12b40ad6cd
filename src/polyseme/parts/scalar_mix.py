"""The scalar mix of ELMo: γ · Σ s_j h_j, with s the softmax of weights that a task learns.

Shapes: R rows, T pieces, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-12


class ScalarMix(nn.Module):
    """One vector from all layers. At first every layer counts alike and γ is 1.

    With `layer_norm` each layer is first brought to mean 0 and variance 1 over the whole batch, as in the original:
    then a word's vector depends on the rows beside it, so it is off by default.
    """

    def __init__(self, n_layers: int, *, layer_norm: bool = False, dropout_rate: float = 0.0) -> None:
        super().__init__()
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
        mixed = shares[0] * layers[0]
        for share, layer in zip(shares[1:], layers[1:], strict=True):
            mixed = mixed + share * layer
        dropped: Tensor = self.dropout(self.gamma * mixed)
        return dropped

    def of_stacked(self, layers: Tensor) -> Tensor:
        """The same of layers of one tensor: […, L, D] → […, D]."""
        if self.layer_norm:
            return self.forward(layers.unbind(-2))
        shares = self.gamma * torch.softmax(self.weights, dim=0)
        dropped: Tensor = self.dropout((shares[:, None] * layers).sum(-2))
        return dropped

    def penalty(self) -> Tensor:
        """‖w‖², which a task adds to its loss, times λ, to keep the layers' shares alike."""
        return self.weights.square().sum()


def over_the_batch(layer: Tensor, real: Tensor | None) -> Tensor:
    """A layer with mean 0 and variance 1 over all real pieces of the batch and all its numbers."""
    valid = layer if real is None else layer[real]
    return (layer - valid.mean()) / torch.sqrt(valid.var(correction=0) + EPSILON)
