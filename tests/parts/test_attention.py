"""Attention: the golden by hand, both paths equal under every mask, and a query that sees nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyseme.parts.attention import Attention, attend_eagerly, attend_fast
from polyseme.parts.masks import (
    AllKeys,
    Band,
    Causal,
    FactorizationOrder,
    MatrixMask,
    Places,
    SameDocument,
    VisibleKeys,
    visible_keys,
)
from polyseme.parts.relative_positions import Distances, RelativeTerms
from polyseme.types import Mask
from references import assert_close

INPUTS = torch.tensor(
    [
        [0.31436922, 0.66969307, 0.270804, 0.72023504],
        [0.87180132, 0.27637445, 0.43091667, 0.34138704],
        [0.20292054, 0.6345131, 0.01058343, 0.22846636],
    ]
)
ATTENDED = torch.tensor(
    [
        [0.4614388, 0.53204444, 0.2451212, 0.45136127],
        [0.50173123, 0.50618272, 0.26184404, 0.43678288],
        [0.45493467, 0.5332328, 0.23643403, 0.4388242],
    ]
)
THIRD_OVER_THE_FIRST_TWO = torch.tensor([[0.57768027, 0.48390338, 0.34643646, 0.54128076]])
PRINTED = 2e-6
"""The printed inputs are rounded."""

ROWS, PIECES, HELD = 3, 6, 2
LENGTHS = torch.tensor([6, 3, 1])


def eagerly(
    q: Tensor, k: Tensor, v: Tensor, scale: float, visible_keys: VisibleKeys, added: Tensor | None = None
) -> Tensor:
    return attend_eagerly(q, k, v, scale=scale, seen=visible_keys, added=added)[0]


def fast(
    q: Tensor, k: Tensor, v: Tensor, scale: float, visible_keys: VisibleKeys, added: Tensor | None = None
) -> Tensor:
    return attend_fast(q, k, v, scale=scale, seen=visible_keys, added=added)


both_paths = pytest.mark.parametrize("attend", [eagerly, fast])
Attend = Callable[..., Tensor]


@both_paths
def test_golden_by_hand(attend: Attend) -> None:
    x = INPUTS[None, None]
    attended = attend(x, x, x, 4**-0.5, VisibleKeys(None))
    torch.testing.assert_close(attended[0, 0], ATTENDED, atol=PRINTED, rtol=0)


@both_paths
def test_golden_by_hand_of_one_query_over_other_keys(attend: Attend) -> None:
    query, keys = INPUTS[None, None, 2:], INPUTS[None, None, :2]
    attended = attend(query, keys, keys, 4**-0.5, VisibleKeys(None))
    torch.testing.assert_close(attended[0, 0], THIRD_OVER_THE_FIRST_TWO, atol=PRINTED, rtol=0)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
def test_golden_by_hand_through_identity_projections(eager: bool) -> None:
    attention = Attention(4, 1, 4, bias=False, output_bias=False, scale=4**-0.5, dropout_rate=0.0)
    with torch.no_grad():
        attention.project.weight.copy_(torch.eye(4).repeat(3, 1))
        attention.output.weight.copy_(torch.eye(4))
        over_itself, weights = attention(INPUTS[None], seen=VisibleKeys(None), eager=eager)
        across, _ = attention(INPUTS[None, 2:], keys_from=INPUTS[None, :2], seen=VisibleKeys(None), eager=eager)
    torch.testing.assert_close(over_itself[0], ATTENDED, atol=PRINTED, rtol=0)
    torch.testing.assert_close(across[0], THIRD_OVER_THE_FIRST_TWO, atol=PRINTED, rtol=0)
    assert (weights is not None) == eager


# --- a query that sees nothing ---------------------------------------------------------------------------------------


@both_paths
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_query_that_sees_no_key_gets_zeros_and_no_gradient(
    attend: Attend, with_bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    allowed = torch.ones(2, 1, 4, 5, dtype=torch.bool)
    allowed[0, :, 1] = False  # one query of the first row
    allowed[1] = False  # the whole second row
    q, k, v = (torch.randn(2, 3, n, 8, dtype=dtype, requires_grad=True) for n in (4, 5, 5))
    bias = torch.randn(2, 3, 4, 5, dtype=dtype, requires_grad=True) if with_bias else None
    attended = attend(q, k, v, 0.3, VisibleKeys(allowed), bias)
    assert not attended[0, :, 1].any()
    assert not attended[1].any()
    assert attended[0, :, 0].all()

    attended.float().square().sum().backward()
    leaves = [q, k, v] if bias is None else [q, k, v, bias]
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
        assert leaf.grad[0].any()
        assert not leaf.grad[1].any()
    assert q.grad is not None
    assert not q.grad[0, :, 1].any()


# --- both paths are one function -------------------------------------------------------------------------------------


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


MASKS: dict[str, Mask] = {
    "everything": AllKeys(),
    "causal": Causal(),
    "band": Band(2),
    "order": FactorizationOrder(torch.tensor([[2, 0, 4, 1, 5, 3], [1, 2, 0, 3, 4, 5], [0, 1, 2, 3, 4, 5]])),
    "same document": SameDocument(torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0]])),
    "given": MatrixMask(torch.rand(ROWS, PIECES, PIECES, generator=torch.Generator().manual_seed(1)) < 0.5),
}


def places(*, held: int, ragged: bool) -> Places:
    here = torch.arange(PIECES)[None]
    k = torch.cat([torch.arange(-held, 0)[None], here], dim=1)
    exists = None
    if ragged:
        there = torch.ones(ROWS, held, dtype=torch.bool)
        exists = torch.cat([there, here < LENGTHS[:, None]], dim=1)
    return Places(here, k, exists, counted=held == 0)


@dataclass
class Both:
    """A bias and relative terms at once (`Terms`)."""

    bias: Tensor | None
    distances: Distances | None

    def apply(
        self, q: Tensor, k: Tensor, scale: float, weights: Any, heads: Any = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        added = None
        if self.distances is not None:
            q, k, added = self.distances.apply(q, k, scale, weights)
        return q, k, self.bias if added is None else added if self.bias is None else added + self.bias


@pytest.mark.parametrize("extras", ["plain", "bias", "relative", "relative, picked", "bias and relative"])
@pytest.mark.parametrize("held", [0, HELD], ids=["alone", "memory"])
@pytest.mark.parametrize("ragged", [False, True], ids=["full", "ragged"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_paths_are_equal(mask: Mask, ragged: bool, held: int, extras: str) -> None:
    """Outputs and gradients; the own mask of an encoder and a batch's are put together the same way."""
    torch.manual_seed(3)
    n_heads, head_width, width = 2, 5, 8
    terms = RelativeTerms(width, n_heads, head_width, segments=True) if "relative" in extras else None
    attention = Attention(
        width, n_heads, head_width, bias=True, output_bias=True, scale=0.4, dropout_rate=0.0, relative=terms
    ).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.5)
    where = places(held=held, ragged=ragged)
    n_keys = PIECES + held
    distances = Distances(
        drawn(n_keys + PIECES, width),
        PIECES - 1 - where.q,
        n_keys,
        in_turn=0 if "picked" in extras else PIECES,
        other_segment=torch.rand(ROWS, PIECES, n_keys) < 0.5,
    )
    bias = drawn(1, n_heads, PIECES, n_keys) if "bias" in extras else None
    positions = None if extras == "plain" else Both(bias, distances if "relative" in extras else None)
    x, keys = drawn(ROWS, PIECES, width).requires_grad_(), drawn(ROWS, n_keys, width).requires_grad_()
    weigh = drawn(ROWS, PIECES, width)

    found, gradients = [], []
    for eager in (True, False):
        attended, _ = attention(x, keys_from=keys, seen=visible_keys(mask, None, where), terms=positions, eager=eager)
        found.append(attended)
        gradients.append(torch.autograd.grad((weigh * attended).sum(), [x, keys, *attention.parameters()]))
    assert_close(found[1], found[0], 1e-13)
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])
    for of_fast, of_eager in zip(gradients[1], gradients[0], strict=True):
        assert_close(of_fast, of_eager, 1e-12, largest)


def test_relative_terms_are_what_the_formula_says() -> None:
    """scale · ((q + u)·k + (q + v)·W r + (q + w)·s): each term by its own sum, written out."""
    torch.manual_seed(5)
    n_heads, head_width, width, n_queries, n_keys = 2, 3, 6, 4, 5
    terms = RelativeTerms(width, n_heads, head_width, segments=True)
    attention = Attention(
        width, n_heads, head_width, bias=False, output_bias=False, scale=0.7, dropout_rate=0.0, relative=terms
    ).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    assert terms.segments is not None
    assert terms.segment_bias is not None
    table, x, y = drawn(9, width), drawn(1, n_queries, width), drawn(1, n_keys, width)
    first, other = torch.tensor([[4, 0, 2, 3]]), torch.rand(1, n_queries, n_keys) < 0.5
    index = first[:, :, None] + torch.arange(n_keys)
    distances = Distances(table, first, n_keys, other_segment=other)
    with torch.no_grad():
        _, weights = attention(x, keys_from=y, seen=VisibleKeys(None), terms=distances, eager=True)
        assert weights is not None
        for head in range(n_heads):
            part = slice(head * head_width, (head + 1) * head_width)
            to_q, to_k, _ = (third[part] for third in attention.project.weight.chunk(3))
            to_r = terms.project.weight[part]
            scores = torch.empty(n_queries, n_keys, dtype=torch.float64)
            for i in range(n_queries):
                q = to_q @ x[0, i]
                for j in range(n_keys):
                    content = (q + terms.content_bias[head]) @ (to_k @ y[0, j])
                    position = (q + terms.position_bias[head]) @ (to_r @ table[index[0, i, j]])
                    segment = (q + terms.segment_bias[head]) @ terms.segments[int(other[0, i, j]), head]
                    scores[i, j] = 0.7 * (content + position + segment)
            assert_close(weights[0, head], scores.softmax(-1), 1e-13)


@pytest.mark.parametrize("more", [-1, 0, 3], ids=["no row over", "one row over", "rows over"])
def test_runs_of_distances_are_the_rows_they_name(more: int) -> None:
    """Shifted or picked, with their gradients; the table may have rows that nobody needs."""
    torch.manual_seed(6)
    n_rows, n_heads, n_queries, n_keys = 2, 3, 4, 6
    by_distance = drawn(n_rows, n_heads, n_queries, n_queries + n_keys + more).requires_grad_()
    weigh = drawn(n_rows, n_heads, n_queries, n_keys)
    in_turn = torch.arange(n_queries).flip(0)[None]
    anywhere = torch.tensor([[1, 3, 3, 0], [2, 0, 1, 2]])
    some = torch.tensor([[1, 0, 3, 0], [1, 0, 1, 2]])
    for first, counts in ((in_turn, (n_queries, 0)), (anywhere, (0,)), (some, (2, 0))):
        index = (first[:, None, :, None] + torch.arange(n_keys)).expand(n_rows, n_heads, -1, -1)
        expected = by_distance.gather(-1, index)
        (gradient,) = torch.autograd.grad((weigh * expected).sum(), by_distance)
        for count in counts:
            found = Distances(drawn(1, 1), first, n_keys, in_turn=count).runs(by_distance)
            assert torch.equal(found, expected)
            assert torch.equal(torch.autograd.grad((weigh * found).sum(), by_distance)[0], gradient)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "fused"])
def test_dropout_falls_in_training_only(eager: bool) -> None:
    torch.manual_seed(0)
    attention = Attention(8, 2, 4, bias=True, output_bias=True, scale=0.5, dropout_rate=0.5)
    x = torch.randn(1, 6, 8)
    first, second = (attention(x, seen=VisibleKeys(None), eager=eager)[0] for _ in range(2))
    assert not torch.equal(first, second)
    attention.eval()
    first, second = (attention(x, seen=VisibleKeys(None), eager=eager)[0] for _ in range(2))
    assert torch.equal(first, second)
