"""Attention of a recurrent decoder to the states of its source: one head, whose values are these states themselves.

    dot         q · k                        Luong et al. 2015
    general     q · W k                      Luong et al. 2015
    additive    v · tanh(W q + U k)          Bahdanau et al. 2015

The weights are the softmax of these scores over the source, and the context is the mean of its states by them.

Shapes: R rows, T queries, S pieces of the source, D width of queries, E width of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn


class Score(Protocol):
    """How well queries and keys fit."""

    def keys(self, source: Tensor) -> Tensor:
        """[R, S, E] → [R, S, K]: what is computed of the source once."""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[R, T, D] and [R, S, K] → [R, T, S]"""


class Dot(nn.Module):
    """Queries and the source's states as they are."""

    def keys(self, source: Tensor) -> Tensor:
        return source

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(queries, keys.transpose(1, 2).to(queries.dtype))


class General(Dot):
    """The source's states by a matrix."""

    def __init__(self, width: int, source_width: int) -> None:
        super().__init__()
        self.of_source = nn.Linear(source_width, width, bias=False)

    def keys(self, source: Tensor) -> Tensor:
        keys: Tensor = self.of_source(source)
        return keys


class Additive(General):
    """A small network over both."""

    def __init__(self, width: int, source_width: int) -> None:
        super().__init__(width, source_width)
        self.of_query = nn.Linear(width, width, bias=False)
        self.direction = nn.Linear(width, 1, bias=False)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        both = torch.tanh(self.of_query(queries)[:, :, None] + keys[:, None])  # [R, T, S, D]
        scores: Tensor = self.direction(both)[..., 0]
        return scores


SCORES: Mapping[str, Callable[[int, int], Score]] = {
    "dot": lambda width, source_width: Dot(),
    "general": General,
    "additive": Additive,
}
"""Name → what builds it for queries and a source of these widths."""


class SourceAttention(nn.Module):
    """Attention with one of these scores."""

    def __init__(self, kind: str, width: int, source_width: int) -> None:
        super().__init__()
        self.score = SCORES[kind](width, source_width)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """The contexts [R, T, E] of queries [R, T, D], and the weights [R, T, S]; `lengths` [R] are the source's."""
        scores = self.score.scores(queries, keys)
        if lengths is not None:
            beyond = torch.arange(values.shape[1], device=values.device) >= lengths[:, None]  # [R, S]
            scores = scores.masked_fill(beyond[:, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        return torch.bmm(weights.to(values.dtype), values), weights
