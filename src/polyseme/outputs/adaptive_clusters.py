"""Transformer-XL's output: an adaptive softmax over the clusters of the token layer (Grave et al. 2017).

The pieces of the first cluster and a place for each other cluster are in one softmax, the pieces of each other cluster
in one below. A map, kept as the token layer keeps its own, brings states to the width of a cluster's table.

Shapes: N positions, D width, V pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.outputs.output import Output
from polyseme.parts.embeddings import Clusters, cluster_bounds


class ClusteredOutput(Output):
    """What piece comes next, where tables may be shared with the token layer, and maps of all clusters but the first.

    Where tables do not grow narrower (`narrowing` 1) there is one for all clusters, and maps only where its width is
    not the stack's.
    """

    def __init__(
        self,
        width: int,
        embedding_width: int,
        n_pieces: int,
        *,
        cutoffs: Sequence[int],
        narrowing: int,
        tied: bool = True,
        shared_maps: bool = True,
    ) -> None:
        super().__init__()
        self.bounds = cluster_bounds(n_pieces, cutoffs)
        self.narrowing = narrowing
        self.tied = tied
        self.shared_maps = shared_maps
        bounds = self.bounds if narrowing > 1 else [(0, n_pieces)]
        widths = [embedding_width // narrowing**number for number in range(len(self.bounds))]
        self.tables = nn.ParameterList(
            torch.empty(high - low, widths[number]) for number, (low, high) in enumerate(bounds)
        )
        self.biases = nn.ParameterList(torch.zeros(high - low) for low, high in bounds)
        mapped = narrowing > 1 or embedding_width != width
        self.maps = nn.ParameterList(torch.empty(width, each) for each in widths) if mapped else None
        self.cluster_table = nn.Parameter(torch.empty(len(cutoffs), embedding_width)) if cutoffs else None
        self.cluster_bias = nn.Parameter(torch.zeros(len(cutoffs))) if cutoffs else None

    def tie_clusters(self, clusters: Clusters) -> None:
        if self.tied:
            for number, table in enumerate(clusters.tables):
                self.tables[number] = table.weight
        if self.maps is not None and self.shared_maps:
            for number in range(1, len(self.maps)):
                self.maps[number] = clusters.maps[number if self.narrowing > 1 else 0].weight

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Only the clusters that a target is in are looked into, each for its own targets."""
        first = self._first(states)
        cluster = torch.zeros_like(targets)
        for low, _ in self.bounds[1:]:
            cluster = cluster + (targets >= low)
        places = torch.where(cluster > 0, self.bounds[0][1] + cluster - 1, targets)
        losses = -first.gather(1, places[:, None])[:, 0]
        for number, (low, _) in enumerate(self.bounds[1:], start=1):
            rows = (cluster == number).nonzero()[:, 0]
            within = self._within(states[rows], number)
            losses = losses.index_add(0, rows, -within.gather(1, (targets[rows] - low)[:, None])[:, 0])
        return losses

    def log_probs(self, states: Tensor) -> Tensor:
        first = self._first(states)
        end = self.bounds[0][1]
        others = [
            first[:, end + number - 1, None] + self._within(states, number) for number in range(1, len(self.bounds))
        ]
        return torch.cat([first[:, :end], *others], dim=1)

    def _first(self, states: Tensor) -> Tensor:
        """[N, pieces of the first cluster + other clusters]"""
        table, bias = self._cluster(0)
        if self.cluster_table is not None and self.cluster_bias is not None:
            table, bias = torch.cat([table, self.cluster_table]), torch.cat([bias, self.cluster_bias])
        return _full(F.linear(self._mapped(states, 0), table, bias)).log_softmax(dim=-1)

    def _within(self, states: Tensor, number: int) -> Tensor:
        """[N, pieces of the cluster], given that it is this one."""
        return _full(F.linear(self._mapped(states, number), *self._cluster(number))).log_softmax(dim=-1)

    def _mapped(self, states: Tensor, number: int) -> Tensor:
        return states if self.maps is None else states @ self.maps[number]

    def _cluster(self, number: int) -> tuple[Tensor, Tensor]:
        if self.narrowing > 1:
            return self.tables[number], self.biases[number]
        low, high = self.bounds[number]
        return self.tables[0][low:high], self.biases[0][low:high]


def _full(numbers: Tensor) -> Tensor:
    return numbers.float() if numbers.dtype in (torch.bfloat16, torch.float16) else numbers
