"""The biattentive classification network equals the equations of its paper (McCann et al. 2017), word by word."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.kinds import build_head

WIDTH, CELLS = 5, 3


def alone(reader: Any, states: Tensor) -> Tensor:
    """A BiLSTM over one text without padding."""
    return reader(states[None], torch.ones(1, len(states), dtype=torch.bool))[0]  # type: ignore[no-any-return]


def read(body: Any, words: Tensor) -> Tensor:
    return alone(body.reader, torch.relu(words @ body.layer.weight.T + body.layer.bias))


def integrated(body: Any, x: Tensor, y: Tensor) -> Tensor:
    """X|y = biLSTM([X; X − C_y; X ∘ C_y]), with A = X Yᵀ, A_y the softmax of Aᵀ by columns, and C_y = A_yᵀ Y."""
    affinities = x @ y.T
    weights = torch.softmax(affinities.T, dim=0)
    context = weights.T @ y
    return alone(body.integrate, torch.cat([x, x - context, x * context], dim=1))


def pooled(pools: Any, states: Tensor) -> Tensor:
    weights = torch.softmax(states @ pools.weigh.weight[0] + pools.weigh.bias, dim=0)
    own = torch.stack([weight * state for weight, state in zip(weights, states, strict=True)]).sum(0)
    return torch.cat([states.max(0).values, states.mean(0), states.min(0).values, own])


def scored(scores: Any, vector: Tensor) -> Tensor:
    maxout, last = scores[1], scores[-1]
    functions = (maxout.all.weight @ vector + maxout.all.bias).view(4, -1)
    return last.weight @ functions.max(0).values + last.bias  # type: ignore[no-any-return]


@pytest.mark.parametrize("two_texts", [False, True], ids=["one text", "two texts"])
def test_the_equations(two_texts: bool) -> None:
    torch.manual_seed(1)
    kind = "pair" if two_texts else "classify"
    config = HeadConfig(
        kind=kind, labels=("a", "b", "c"), width=WIDTH, body="bcn", inner_width=CELLS, separate_rows=two_texts
    )
    head: Any = build_head(config).double().eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    words, second = (torch.randn(2, 6, WIDTH, dtype=torch.float64) for _ in range(2))
    lengths, others = (4, 6), (2, 5)
    mask, second_mask = (torch.arange(6) < torch.tensor(each)[:, None] for each in (lengths, others))
    features = Features(words=words, mask=mask)
    if two_texts:
        features = Features(words=words, mask=mask, second=second, second_mask=second_mask)
    found = head(features)
    text, body = head.text, head.text.body.body
    for row in range(2):
        x = read(body, words[row, : lengths[row]])
        y = read(body, second[row, : others[row]]) if two_texts else x
        vector = pooled(text.pools, integrated(body, x, y))
        if two_texts:
            other = pooled(text.pools, integrated(body, y, x))
            vector = torch.cat([vector, other, (vector - other).abs(), vector * other])
        torch.testing.assert_close(found[row], scored(text.scores, vector), rtol=1e-10, atol=1e-12)
