"""bf16 and int8 on a CPU: near fp32, and a word's vector never depends on its neighbors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import polyseme
from polyseme.api import Model
from polyseme.errors import OptionError, PolysemeWarning
from tiny_models import tiny_model

TEXTS = [
    "The vase broke.",
    "Dawn broke over the sleeping town, and nobody in it saw the light that came with it.",
    "Sandy broke the world record.",
    "We broke even.",
]
LEAST_MEAN_COSINE = {"bf16": 0.9995, "int8": 0.996}


@pytest.fixture(autouse=True)
def without_the_note_on_missing_instructions() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This processor has no instructions", PolysemeWarning)
        yield


def vectors(dtype: str, texts: list[str]) -> np.ndarray:
    model = polyseme.load("minilm", device="cpu", dtype=dtype)
    return np.concatenate([document.vectors for document in model.embed(texts)])


@pytest.mark.parametrize("dtype", LEAST_MEAN_COSINE)
def test_near_fp32(dtype: str) -> None:
    exact, near = vectors("fp32", TEXTS), vectors(dtype, TEXTS)
    cosines = (near * exact).sum(1) / np.linalg.norm(near, axis=1) / np.linalg.norm(exact, axis=1)
    assert near.dtype == np.float32
    assert LEAST_MEAN_COSINE[dtype] <= cosines.mean() < 1.0


@pytest.mark.parametrize("dtype", LEAST_MEAN_COSINE)
def test_neighbors_change_nothing(dtype: str) -> None:
    crowd = TEXTS * 40  # enough for the weights to be laid out and, in bf16, for batches side by side
    together = vectors(dtype, crowd)
    alone = np.concatenate([vectors(dtype, [text]) for text in TEXTS])
    largest = np.abs(alone).max()
    assert np.abs(together[: len(alone)] - alone).max() <= (1e-5 if dtype == "int8" else 1e-2) * largest
    again = vectors(dtype, crowd[::-1])
    assert np.abs(np.sort(again, axis=0) - np.sort(together, axis=0)).max() <= 1e-5 * largest


def test_int8_is_for_a_cpu() -> None:
    with pytest.raises(OptionError):
        polyseme.load("minilm", device="cuda", dtype="int8")


@pytest.mark.parametrize("dtype", LEAST_MEAN_COSINE)
def test_a_causal_model_embeds_and_scores_so_too(dtype: str) -> None:
    """Near fp32, the same alone and among others, and a piece never sees a later one."""
    exact, near = tiny_model("gpt2"), Model(tiny_model("gpt2").bundle, precision=dtype)  # type: ignore[arg-type]
    one, other = (np.concatenate([each.vectors for each in model.embed(TEXTS)]) for model in (near, exact))
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert 0.99 <= cosines.mean() < 1.0
    scored, expected = near.score(TEXTS), exact.score(TEXTS)
    for text, ours, theirs in zip(TEXTS, scored, expected, strict=True):
        assert ours.totals.log_prob == pytest.approx(theirs.totals.log_prob, rel=0.1)
        [alone] = near.score([text])
        np.testing.assert_allclose(alone.piece_log_probs, ours.piece_log_probs, rtol=2e-3)
    [begun] = near.score([TEXTS[0]])
    [longer] = near.score([f"{TEXTS[0]} Dawn broke."])
    np.testing.assert_allclose(longer.piece_log_probs[: len(begun.ids)], begun.piece_log_probs, rtol=2e-3)


@pytest.mark.parametrize("family", ["t5", "xlnet"])
@pytest.mark.parametrize("dtype", LEAST_MEAN_COSINE)
def test_positions_in_the_scores_run_so_too(dtype: str, family: str) -> None:
    """T5's buckets and XLNet's relative positions: near fp32, and the same alone."""
    exact, near = tiny_model(family), Model(tiny_model(family).bundle, precision=dtype)  # type: ignore[arg-type]
    one, other = (np.concatenate([each.vectors for each in model.embed(TEXTS)]) for model in (near, exact))
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert 0.99 <= cosines.mean() < 1.0
    [alone] = near.embed(TEXTS[:1])
    assert np.abs(one[: len(alone.vectors)] - alone.vectors).max() <= 1e-2 * np.abs(one).max()
