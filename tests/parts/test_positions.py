"""Positions: T5's buckets against the reference, sinusoids against the formula, offsets."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.parts.bucketed_positions import BucketBias
from polyseme.parts.positions import LearnedPositions, sinusoids


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (32, 64), (6, 10)])
@pytest.mark.parametrize("two_sided", [True, False], ids=["two-sided", "one-sided"])
def test_buckets_equal_the_reference(two_sided: bool, n_buckets: int, max_distance: int) -> None:
    ahead = torch.arange(-3000, 3001)
    theirs = T5Attention._relative_position_bucket(
        ahead, bidirectional=two_sided, num_buckets=n_buckets, max_distance=max_distance
    )
    bias = BucketBias(2, n_buckets=n_buckets, max_distance=max_distance, two_sided=two_sided)
    ours = bias.buckets(ahead)
    assert torch.equal(ours, theirs)
    assert len(set(ours.tolist())) == n_buckets - two_sided  # every one but "ahead, by nothing" is met


def test_a_bias_is_read_by_places() -> None:
    """Each row by its own places: the bias of a pair depends on how far the key stands ahead, and on nothing else."""
    bias = BucketBias(3, n_buckets=8, max_distance=20, two_sided=True)
    q, k = torch.tensor([[0, 5], [2, 9]]), torch.tensor([[0, 1, 2, 30]])
    found = bias(q, k)
    assert found.shape == (2, 3, 2, 4)
    for row in range(2):
        for i in range(2):
            for j in range(4):
                bucket = bias.buckets(k[0, j] - q[row, i])
                assert torch.equal(found[row, :, i, j], bias.table.weight[bucket])


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_are_the_formula(width: int) -> None:
    """sin(p / 10000^(2i/width)) and the cosine, in halves or taking turns."""
    positions = [0, 1, 2, 17, 300, -4]
    halves = sinusoids(torch.tensor([positions]), width, "halves")[0]
    turns = sinusoids(torch.tensor([positions]), width, "interleaved")[0]
    assert halves.shape == turns.shape == (len(positions), width)
    assert halves.dtype == torch.float32
    n_angles = math.ceil(width / 2)
    for row, position in enumerate(positions):
        angles = [position / 10000 ** (2 * i / width) for i in range(n_angles)]
        in_halves = [*map(math.sin, angles), *map(math.cos, angles)][:width]
        in_turns = [function(angle) for angle in angles for function in (math.sin, math.cos)][:width]
        assert halves[row].tolist() == pytest.approx(in_halves, abs=3e-5)
        assert turns[row].tolist() == pytest.approx(in_turns, abs=3e-5)


def test_learned_positions_start_after_the_offset() -> None:
    table = LearnedPositions(5, 3, offset=2)
    assert table.table.weight.shape == (7, 3)
    assert torch.equal(table(torch.tensor([[0, 4]]))[0], table.table.weight[[2, 6]])


@pytest.mark.parametrize(
    ("shape", "refused"),
    [
        ({"n_buckets": 32, "max_distance": 5}, True),
        ({"n_buckets": 32, "max_distance": 8}, True),
        ({"n_buckets": 32, "max_distance": 9}, False),
        ({"n_buckets": 32, "max_distance": 9, "masks": ("causal",)}, True),
        ({"n_buckets": 32, "max_distance": 16, "decoder_layers": 1}, True),
        ({"n_buckets": 32, "max_distance": 17, "decoder_layers": 1}, False),
        ({"n_buckets": 3, "max_distance": 5}, True),
    ],
    ids=str,
)
def test_buckets_that_cannot_be_are_refused(shape: dict[str, Any], refused: bool) -> None:
    """Where a distance would fall into none of them."""
    sizes = {"n_pieces": 9, "width": 4, "n_layers": 1, "n_heads": 2, "inner_width": 4, "positions": "buckets"}
    with pytest.raises(ModelError, match="buckets of distances") if refused else contextlib.nullcontext():
        TransformerConfig(**sizes, **shape)
