"""The features that a probe reads of an example: the vector of its span, or of a pair [a; b; a ∘ b].

Shapes: L layers, N examples, S spans, D width of a layer, F features.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from polyseme.analysis.probing.linear_probes import MEASURED, SMALLEST_SPREAD

ON_DEVICE_BYTES = 64 << 30
"""Vectors up to so many bytes are kept in a GPU's memory."""


class SpanDesign:
    """Examples that are one span each, in their order."""

    def __init__(self, vectors: Tensor, device: torch.device) -> None:
        fits = vectors.numel() * vectors.element_size() <= ON_DEVICE_BYTES
        self.vectors = vectors.to(device) if fits else vectors
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
        self._measure(self.spans.rows(numbers[:: max(1, -(-len(numbers) // MEASURED))]))

    def _measure(self, sample: Tensor) -> None:
        spread = sample.double().std(dim=1, correction=0)
        self.center = sample.double().mean(dim=1).to(sample.dtype)[:, None]
        self.scale = (1.0 / torch.where(spread > SMALLEST_SPREAD, spread, 1.0)).to(sample.dtype)[:, None]

    def rows(self, numbers: Tensor | slice) -> Tensor:
        """[L, n, F]"""
        one, other = (self._standard(spans[numbers]) for spans in (self.first, self.second))
        return torch.cat([one, other, one * other], dim=-1)

    def of_layers(self, layers: slice) -> PairDesign:
        """The same of some layers."""
        part = copy.copy(self)
        part.spans = self.spans.of_layers(layers)
        part.center, part.scale = self.center[layers], self.scale[layers]
        part.shape = (part.spans.shape[0], *self.shape[1:])
        return part

    def _standard(self, spans: Tensor) -> Tensor:
        return (self.spans.rows(spans) - self.center) * self.scale
