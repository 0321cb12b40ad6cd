"""A causal model that reads from the end scores a text as a forward one scores the mirrored text; it writes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from polyseme.errors import ModelError, OptionError
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.types import Pieces
from tiny_models import tiny_model

IDS = [np.array(ids) for ids in ([5, 9, 3, 14, 7], [8], list(range(2, 60)) * 60)]
"""The last one is longer than a stretch."""


def test_scores_are_those_of_the_mirrored_text() -> None:
    forwards, backwards = (tiny_model("awd-lstm", reads=reads).bundle for reads in ("forwards", "backwards"))
    backwards.load_state_dict(forwards.state_dict())
    theirs = scorer_of(forwards).pieces([_pieces(ids[::-1]) for ids in IDS])
    scorer = scorer_of(backwards, order="right-to-left")
    assert "right to left" in scorer.method.description
    for mine, other in zip(scorer.pieces([_pieces(ids) for ids in IDS]), theirs, strict=True):
        np.testing.assert_allclose(mine.log_probs, other.log_probs[::-1], atol=1e-4)


def _pieces(ids: NDArray[np.int64]) -> Pieces:
    places = np.arange(len(ids))
    return Pieces(
        ids=ids.astype(np.int64), spans=np.stack([places, places + 1], axis=1), words=np.stack([places, places], axis=1)
    )


def test_what_it_cannot_do_is_refused() -> None:
    model = tiny_model("awd-lstm", reads="backwards")
    with pytest.raises(ModelError, match=r"reads texts from the end.*cannot continue a text"):
        model.generate(["Dawn"])
    with pytest.raises(ModelError, match="cannot fill masks"):
        model.fill("Dawn [MASK]")
    with pytest.raises(OptionError, match=r"cannot score in the order 'left-to-right'.*right-to-left"):
        scorer_of(model.bundle, order="left-to-right")
    with pytest.raises(OptionError, match="predicts from right to left"):
        scorer_of(model.bundle, word_probability="corrected")
