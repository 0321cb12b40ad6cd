"""Drawing pieces: from the right ones, as often as they are likely, whatever rows stand beside."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TopKLogitsWarper, TopPLogitsWarper

from polyseme.generating.decoding_options import Decoding
from polyseme.generating.sampling import FIRST_LOOK, choose, draw, narrowed, penalized, streams, without_repeats

N_DRAWS = 20_000


def some_log_probs(n_rows: int = 3, n_pieces: int = 50, spread: float = 2.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(n_rows, n_pieces, generator=generator, dtype=torch.float64)).log_softmax(-1)


# --- which pieces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top_k", [1, 3, 49, 50, 70])
def test_top_k_equals_the_reference(top_k: int) -> None:
    scores = some_log_probs()
    expected = TopKLogitsWarper(top_k)(torch.empty(0), scores.clone())
    assert torch.equal(narrowed(scores, top_k, None), expected)


@pytest.mark.parametrize("spread", [0.1, 2.0, 8.0])
@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999, 1.0])
def test_top_p_equals_the_reference(top_p: float, spread: float) -> None:
    """Also where the first look at the likeliest pieces is not enough."""
    scores = some_log_probs(4, 3 * FIRST_LOOK, spread)
    expected = TopPLogitsWarper(top_p)(torch.empty(0), scores.clone())
    assert torch.equal(narrowed(scores, None, top_p), expected)


def test_top_p_counts_what_top_k_has_left() -> None:
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    assert narrowed(scores, 2, 0.5).isfinite().tolist() == [[True, False, False, False]]  # 4/7 is enough
    assert narrowed(scores, None, 0.5).isfinite().tolist() == [[True, True, False, False]]


@given(st.lists(st.integers(0, 6), min_size=2, max_size=12), st.floats(0.01, 0.99))
def test_what_top_p_leaves_is_enough_and_no_more_than_that(weights: list[int], share: float) -> None:
    if not any(weights):
        return
    scores = torch.tensor([weights], dtype=torch.float64).log().log_softmax(-1)
    kept = narrowed(scores, None, share)[0].isfinite()
    probabilities = scores[0].exp()
    assert float(probabilities[kept].sum()) >= share - 1e-9
    least = float(probabilities[kept].min())
    assert float(probabilities[probabilities > least].sum()) < share + 1e-9  # without the last it would not be enough
    assert bool((probabilities[~kept] < least).all())


# --- how often -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(temperature=1.0),
        Decoding(temperature=0.5),
        Decoding(temperature=2.0, top_k=5),
        Decoding(top_p=0.8),
        Decoding(temperature=1.5, top_k=6, top_p=0.9),
    ],
    ids=lambda decoding: f"T={decoding.heat} k={decoding.top_k} p={decoding.top_p}",
)
def test_pieces_are_drawn_as_often_as_they_are_likely(decoding: Decoding) -> None:
    scores = some_log_probs(1, 12, 1.0)
    numbers = streams(3, range(N_DRAWS), 1, 1)[:, 0]
    drawn = choose(scores.expand(N_DRAWS, -1), decoding, numbers)
    shares = torch.bincount(drawn, minlength=12) / N_DRAWS
    expected = narrowed(scores / decoding.heat, decoding.top_k, decoding.top_p).softmax(-1)[0]
    assert bool((shares[expected == 0] == 0).all())
    spread = (expected * (1 - expected) / N_DRAWS).sqrt()
    assert bool(((shares - expected).abs() <= 4.5 * spread).all())


def test_a_temperature_of_zero_takes_the_likeliest() -> None:
    scores = some_log_probs()
    assert torch.equal(choose(scores, Decoding(), None), scores.argmax(-1))


def test_the_ends_of_the_unit_interval() -> None:
    scores = torch.tensor([[0.0, 0.25, 0.75, 0.0]] * 3, dtype=torch.float64).log()
    highest = math.nextafter(1.0, 0.0)
    assert draw(scores, torch.tensor([0.0, 0.2500001, highest], dtype=torch.float64)).tolist() == [1, 2, 2]


@given(st.integers(0, 2**32), st.floats(0, 1, exclude_max=True))
def test_a_forbidden_piece_is_never_drawn(seed: int, number: float) -> None:
    scores = some_log_probs(1, 9, 4.0, seed)
    scores[:, [0, 4, 8]] = -torch.inf
    piece = int(draw(scores, torch.tensor([number], dtype=torch.float64)))
    assert piece not in (0, 4, 8)


def test_streams_go_by_seed_prompt_and_draw_alone() -> None:
    whole = streams(7, [0, 1, 2, 3], 3, 10)
    assert whole.shape == (12, 10)
    assert torch.equal(streams(7, [2], 3, 10), whole[6:9])
    assert torch.equal(streams(7, [3, 1], 2, 10), whole[[9, 10, 3, 4]])
    assert torch.equal(streams(7, [1], 1, 4), whole[3:4, :4])
    assert len(np.unique(whole)) == whole.numel()
    assert not torch.equal(streams(8, [0], 1, 10), whole[:1])


# --- repetition ------------------------------------------------------------------------------------------------------

ROWS = torch.tensor([[1, 2, 3, 1, 2, 9], [4, 4, 4, 9, 9, 9], [5, 9, 9, 9, 9, 9]])
LENGTHS = torch.tensor([5, 3, 0])
"""Nines are padding."""


def test_the_penalty_is_for_pieces_of_the_row() -> None:
    scores = some_log_probs(3, 10)
    found = penalized(scores, ROWS, LENGTHS, 1.5)
    expected = scores.clone()
    expected[0, [1, 2, 3]] *= 1.5
    expected[1, 4] *= 1.5
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("n", "forbidden"),
    [(1, [{1, 2, 3}, {4}, set()]), (2, [{3}, {4}, set()]), (3, [{3}, {4}, set()]), (4, [set(), set(), set()])],
)
def test_no_ngram_twice(n: int, forbidden: list[set[int]]) -> None:
    found = without_repeats(some_log_probs(3, 10), ROWS, LENGTHS, n)
    assert [set(torch.nonzero(row == -torch.inf)[:, 0].tolist()) for row in found] == forbidden


@given(st.lists(st.integers(0, 2), max_size=9), st.integers(1, 4))
def test_no_ngram_twice_by_definition(row: list[int], n: int) -> None:
    pieces = torch.tensor([[*row, 0, 1, 2, 0, 1]])  # padding that would be noticed
    found = without_repeats(some_log_probs(1, 3), pieces, torch.tensor([len(row)]), n)[0]
    grams = {tuple(row[place : place + n]) for place in range(len(row) - n + 1)}
    for piece in range(3):
        completed = tuple([*row, piece][-n:])
        repeats = len(completed) == n and len(row) >= n - 1 and completed in grams
        assert (float(found[piece]) == -math.inf) == repeats
