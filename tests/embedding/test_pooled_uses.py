"""A word's vector beside the pool of its uses so far, against plain loops; what depends on order is not resumed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.errors import ModelError, OptionError
from tiny_models import tiny_model

TEXTS = [["Dawn", "broke", "."], ["The", "vase", "broke", "broke", "."], ["Dawn", "broke", "."]]
POOLS: dict[str, Any] = {"min": np.min, "mean": np.mean, "max": np.max}


@pytest.mark.parametrize("kind", POOLS)
def test_uses_are_pooled_in_the_order_of_the_texts(kind: str) -> None:
    model = tiny_model("flair")
    plain, pooled = model.embed(TEXTS), model.embed(TEXTS, pool_uses=kind)
    uses: dict[str, list[Any]] = defaultdict(list)
    for one, other in zip(plain, pooled, strict=True):
        for word, vector, both in zip(one.words, one.vectors, other.vectors, strict=True):
            uses[str(word)].append(vector)
            expected = np.concatenate([vector, POOLS[kind](uses[str(word)], axis=0)])
            np.testing.assert_allclose(both, expected, rtol=0, atol=1e-6)
    assert not np.allclose(pooled[0].vectors, pooled[2].vectors)
    again = model.embed(TEXTS, pool_uses=kind)
    assert all(np.array_equal(one.vectors, other.vectors) for one, other in zip(pooled, again, strict=True))


def test_files_say_so_and_are_not_those_of_other_vectors(tmp_path: Path) -> None:
    model = tiny_model("flair")
    polyseme.embed(["Dawn broke. Dawn broke."], model=model, output=tmp_path / "pooled.npz", pool_uses="mean")
    with pytest.raises(ModelError, match="with the mean of a word's uses there"):
        polyseme.similar("Dawn [broke].", source=tmp_path / "pooled.npz", model=model)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pool_uses": "median"}, "cannot be pooled by 'median'"),
        ({"pool_uses": "min", "per": "text"}, "where each has one vector, per word"),
        ({"pool_uses": "min", "layer": "all"}, "where each has one vector, per word"),
    ],
)
def test_what_cannot_be_pooled_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        tiny_model("flair").embed(TEXTS, **settings)
