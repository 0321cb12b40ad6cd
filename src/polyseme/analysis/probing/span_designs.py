"""The features that a probe reads of an example: the vector of its span, or of a pair [a; b; a ∘ b].

Shapes: L layers, N examples, S spans, D width of a layer, F features.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from polyseme.analysis.probing.linear_probes import MEASURED, SMALLEST_SPREAD
from polyseme.parts.device import fits_on


class SpanDesign:
    """Examples that are one span each, in their order.

    Vectors that do not fit on a GPU stay where they are, and only those of the rows go there.
    """

    def __init__(self, vectors: Tensor, device: torch.device) -> None:
        self.vectors = vectors.to(device) if fits_on(device, vectors.numel() * vectors.element_size()) else vectors
        self.device = device
        self.shape = (vectors.shape[0], vectors.shape[1], vectors.shape[2])

    def rows(self, numbers: Tensor | slice) -> Tensor:
        """[L, n, F]"""
        at = numbers if isinstance(numbers, slice) else numbers.to(self.vectors.device)
        return self.vectors[:, at].to(self.device)

    def of_layers(self, layers: slice) -> SpanDesign:
        """The same of some layers."""
        return SpanDesign(self.vectors[layers], self.device)


class PairDesign:
    """Examples that are two spans each. Vectors are standardized before they are multiplied, by the spans of train."""

    def __init__(self, vectors: Tensor, first: Tensor, second: Tensor, train: Tensor, device: torch.device) -> None:
        self.spans = SpanDesign(vectors, device)
        self.device = device
        self.first, self.second = first.to(device), second.to(device)
        n_layers, _, width = self.spans.shape
        self.shape = (n_layers, len(first), 3 * width)
        numbers = torch.cat([self.first[train], self.second[train]]).unique()
        self._measure(numbers[:: max(1, -(-len(numbers) // MEASURED))])

    def _measure(self, numbers: Tensor) -> None:
        """Layer by layer: the vectors of all in double precision would be the largest thing in memory."""
        centers, scales = [], []
        for layer in range(self.shape[0]):
            rows = self.spans.of_layers(slice(layer, layer + 1)).rows(numbers)
            sample = rows.double()
            spread = sample.std(dim=1, correction=0)
            centers.append(sample.mean(dim=1).to(rows.dtype))
            scales.append((1.0 / torch.where(spread > SMALLEST_SPREAD, spread, 1.0)).to(rows.dtype))
        self.center, self.scale = torch.cat(centers)[:, None], torch.cat(scales)[:, None]

    def rows(self, numbers: Tensor | slice) -> Tensor:
        """[L, n, F]"""
        first, second = self.first[numbers], self.second[numbers]
        n_layers, _, width = self.spans.shape
        rows = self.center.new_empty(n_layers, len(first), 3 * width)
        one, other, product = rows.split(width, dim=-1)
        for spans, place in ((first, one), (second, other)):
            torch.sub(self.spans.rows(spans), self.center, out=place).mul_(self.scale)
        torch.mul(one, other, out=product)
        return rows

    def of_layers(self, layers: slice) -> PairDesign:
        """The same of some layers."""
        part = copy.copy(self)
        part.spans = self.spans.of_layers(layers)
        part.center, part.scale = self.center[layers], self.scale[layers]
        part.shape = (part.spans.shape[0], *self.shape[1:])
        return part
