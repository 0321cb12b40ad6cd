"""From the pieces of a word to its vector, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polyseme.config import EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.embedding.pooling import parse_pooling
from polyseme.errors import OptionError

Array = NDArray[Any]
ONE_WAY = ("bert", "gpt2", "xlnet", "static")
"""Of every other direction one."""


def config_of(family: str) -> EncoderConfig:
    return FAMILIES[family].tiny()


def pooled_plainly(name: str, pieces: Array) -> Array:
    """One word: [its pieces, …, D] → […, D]"""
    if name == "first":
        return pieces[0]
    if name == "last":
        return pieces[-1]
    if name == "mean":
        return sum(pieces) / len(pieces)
    if name == "max":
        largest = pieces[0]
        for piece in pieces[1:]:
            largest = np.maximum(largest, piece)
        return largest
    half = pieces.shape[-1] // 2
    return np.concatenate([pieces[-1][..., :half], pieces[0][..., half:]], axis=-1)


@st.composite
def words_over_pieces(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A number of pieces and words over them, in order: they may overlap, leave gaps, and be none at all."""
    n_pieces = draw(st.integers(1, 12))
    ends = st.tuples(st.integers(0, n_pieces - 1), st.integers(0, n_pieces - 1)).map(lambda pair: tuple(sorted(pair)))
    return n_pieces, sorted(draw(st.lists(ends, max_size=8)))


@pytest.mark.parametrize("name", ["first", "last", "mean", "max", "ends"])
@given(words_over_pieces(), st.sampled_from([(6,), (3, 6)]), st.integers(0, 2**31))
def test_a_word_is_pooled_from_its_own_pieces(
    name: str, words: tuple[int, list[tuple[int, int]]], inner: tuple[int, ...], seed: int
) -> None:
    n_pieces, spans = words
    vectors = np.random.default_rng(seed).standard_normal((n_pieces, *inner))
    bounds = torch.tensor(spans, dtype=torch.int64).reshape(-1, 2)
    found = parse_pooling(name, config_of("flair"))(torch.from_numpy(vectors), bounds[:, 0], bounds[:, 1]).numpy()
    assert found.shape == (len(spans), *inner)
    for vector, (first, last) in zip(found, spans, strict=True):
        np.testing.assert_allclose(vector, pooled_plainly(name, vectors[first : last + 1]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["first", "last", "mean", "max"])
def test_a_word_of_one_piece_is_that_piece(name: str) -> None:
    vectors = torch.randn(5, 4)
    each = torch.arange(5)
    assert torch.equal(parse_pooling(name, config_of("bert"))(vectors, each, each), vectors)


@pytest.mark.parametrize("family", ONE_WAY)
def test_ends_need_a_forward_and_a_backward_model(family: str) -> None:
    with pytest.raises(OptionError, match=r"this encoder is not two-way\. Use mean\."):
        parse_pooling("ends", config_of(family))


def test_outer_ends_are_the_states_beside_a_word() -> None:
    vectors = torch.randn(7, 4)
    pooled = parse_pooling("outer-ends", config_of("flair"))(vectors, torch.tensor([1, 4]), torch.tensor([2, 5]))
    assert torch.equal(pooled, torch.cat([vectors[[3, 6], :2], vectors[[0, 3], 2:]], dim=1))


@pytest.mark.parametrize("family", [*ONE_WAY, "elmo"])
def test_outer_ends_need_a_model_of_characters_in_both_directions(family: str) -> None:
    with pytest.raises(OptionError, match=r"\(Flair\), and this encoder is none\. Use mean\."):
        parse_pooling("outer-ends", config_of(family))


@pytest.mark.parametrize(("given_name", "meant"), [("men", "mean"), ("frist", "first"), ("maximum", "max")])
def test_an_unknown_pooling_is_refused_with_the_nearest(given_name: str, meant: str) -> None:
    with pytest.raises(OptionError) as refusal:
        parse_pooling(given_name, config_of("bert"))
    assert f"There is no pooling {given_name!r}. Did you mean {meant!r}?" in str(refusal.value)
    assert "There are: first, last, mean, max, ends, outer-ends." in str(refusal.value)
