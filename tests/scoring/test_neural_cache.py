"""The continuous cache equals its equations, written out as a loop, for any model that guesses from left to right."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray

from polyseme.api import Model
from polyseme.cli import main
from polyseme.errors import OptionError
from polyseme.scoring import neural_cache as module
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.neural_cache import Caches, NeuralCache
from polyseme.scoring.text_scores import ScoredDocument
from polyseme.text.documents import to_documents
from polyseme.types import Batch
from polyseme.verbs import score as scoring
from tiny_models import TEXT, tiny_model

TEXTS = [
    "Dawn broke. The news broke. Dawn broke.",
    "crane",
    "Sandy broke the law, and Sandy broke the world record; they throw a party!",
    "",
    TEXT,
    "Dawn broke. The vase broke. Dawn broke again, and the vase is flat.",
]
SETTINGS = [
    NeuralCache(size=2000, share=0.1, sharpness=0.3),
    NeuralCache(size=3, share=0.4, sharpness=1.3),
    NeuralCache(size=1, share=0.9, sharpness=0.0),
]


def score(
    model: Model, texts: list[str], cache: NeuralCache | None, batch_pieces: int | None = None
) -> list[ScoredDocument]:
    return scorer_of(model.bundle, neural_cache=cache, batch_pieces=batch_pieces)(to_documents(texts))


def guessing_states(model: Model, ids: list[int]) -> list[tuple[NDArray[np.float64], int]]:
    """The state that guesses each piece, and the piece, in order; windows as the model without a cache has them."""
    tokenizer, window = model.bundle.tokenizer, model.bundle.config.window
    assert tokenizer is not None
    lead = tokenizer.specials.get("start", tokenizer.specials.get("end"))
    sequence = ids if lead is None else [lead, *ids]
    room = len(sequence) if window is None else window
    found: list[tuple[NDArray[np.float64], int]] = []
    start = 0
    while len(found) < len(sequence) - 1:
        start = max(min(start, len(sequence) - 1 - room), 0)
        row = torch.tensor([sequence[start : min(start + room, len(sequence) - 1)]])
        with torch.no_grad():
            states = model.bundle.encoder(Batch(row))[-1][0].numpy()
        targets = range(len(found) + 1, start + row.shape[1] + 1)
        found += [(states[target - 1 - start], sequence[target]) for target in targets]
        start += room // 2
    return found


def by_definition(model: Model, ids: list[int], cache: NeuralCache) -> list[float]:
    """p = (1 − λ) p_model + λ p_cache, one piece after another."""
    output = model.bundle.outputs["causal"]
    target_rows = guessing_states(model, ids)
    found = []
    for t, (state, piece) in enumerate(target_rows):
        with torch.no_grad():
            alone = math.exp(float(output.log_probs(torch.from_numpy(state)[None])[0, piece]))  # type: ignore[operator]
        kept = target_rows[max(t - cache.size, 0) : t]
        weights = [math.exp(cache.sharpness * float(state @ earlier)) for earlier, _ in kept]
        of_it = sum(weight for weight, (_, came) in zip(weights, kept, strict=True) if came == piece)
        p = (1 - cache.share) * alone + cache.share * of_it / sum(weights) if kept else alone
        found.append(math.log(p))
    return found


@pytest.mark.parametrize("cache", SETTINGS, ids=["default", "small", "last piece"])
@pytest.mark.parametrize("family", ["lstm", "gpt2", "openai-gpt"])
def test_it_equals_the_equations_in_batches_of_any_size(family: str, cache: NeuralCache) -> None:
    model = tiny_model(family)
    model.bundle.double()
    found = [score(model, TEXTS, cache, batch_pieces) for batch_pieces in (None, 7, 60)]
    for batches in zip(*found, strict=True):
        ids = batches[0].ids
        expected = by_definition(model, ids.tolist(), cache) if len(ids) else []
        for scored in batches:
            known = scored.piece_log_probs[len(ids) - len(expected) :]
            np.testing.assert_allclose(known, expected, rtol=1e-10, atol=1e-12)
    window = model.bundle.config.window
    assert window is None or max(len(scored.ids) for scored in found[0]) > 3 * window


@pytest.mark.parametrize("at_once", [1, 30, 1000])
def test_it_does_not_matter_how_many_numbers_there_are_at_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("lstm")
    model.bundle.double()
    [whole] = score(model, [TEXT], SETTINGS[0])
    monkeypatch.setitem(module.NUMBERS_AT_ONCE, "cpu", at_once)
    [parts] = score(model, [TEXT], SETTINGS[0])
    np.testing.assert_allclose(parts.piece_log_probs, whole.piece_log_probs, rtol=1e-12)


@pytest.mark.parametrize("family", ["lstm", "gpt2"])
def test_without_a_share_nothing_changes_and_each_text_is_by_itself(family: str) -> None:
    model = tiny_model(family)
    plain = score(model, TEXTS, None)
    for one, other in zip(score(model, TEXTS, NeuralCache(share=0.0)), plain, strict=True):
        np.testing.assert_allclose(one.piece_log_probs, other.piece_log_probs, atol=1e-5)
    cached = score(model, TEXTS, NeuralCache())
    for text, together in zip(TEXTS, cached, strict=True):
        if text:
            [alone] = score(model, [text], NeuralCache())
            np.testing.assert_allclose(together.piece_log_probs, alone.piece_log_probs, atol=1e-5)


@pytest.mark.parametrize("family", ["lstm", "gpt2"])
def test_what_comes_again_is_likelier(family: str) -> None:
    model = tiny_model(family)
    text = "The burglar broke into the house. " * 12
    [plain], [cached] = score(model, [text], None), score(model, [text], NeuralCache(sharpness=0.1))
    assert cached.totals.log_prob > 0.9 * plain.totals.log_prob
    np.testing.assert_allclose(cached.piece_log_probs[0], plain.piece_log_probs[0], rtol=1e-6)


def test_probabilities_come_to_one() -> None:
    """Over all pieces that could come next: each is tried as the last of the same text."""
    torch.manual_seed(0)
    n_pieces = 11
    states, pieces = torch.randn(9, 5, dtype=torch.float64), torch.randint(n_pieces, (8,))
    alone = torch.randn(n_pieces, dtype=torch.float64).log_softmax(0)
    total = 0.0
    for last in range(n_pieces):
        caches = Caches(NeuralCache(size=6, share=0.3, sharpness=0.8))
        said = torch.full((9,), -1.0, dtype=torch.float64)
        said[8] = alone[last]
        total += float(caches(0, states, torch.cat([pieces, torch.tensor([last])]), said)[8].exp())
    assert total == pytest.approx(1.0, abs=1e-12)


def test_no_more_is_kept_than_was_asked_for_and_nothing_of_texts_that_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most: list[int] = []
    made: list[Caches] = []

    class Watched(Caches):
        def __init__(self, settings: NeuralCache) -> None:
            super().__init__(settings)
            made.append(self)

        def __call__(self, *given: object) -> torch.Tensor:  # type: ignore[override]
            found = super().__call__(*given)  # type: ignore[arg-type]
            most.append(self.n_pieces)
            return found

    monkeypatch.setattr("polyseme.scoring.causal.Caches", Watched)
    for family in ("lstm", "gpt2"):
        score(tiny_model(family), [TEXT * 3, *TEXTS], NeuralCache(size=20), batch_pieces=16)
    assert 0 < max(most) <= 20 * 3
    assert [caches.n_pieces for caches in made] == [0, 0]


def test_it_is_said_and_paid_for() -> None:
    model = tiny_model("lstm")
    plain, cached = scorer_of(model.bundle), scorer_of(model.bundle, neural_cache=NeuralCache(size=50))
    for scorer in (plain, cached):
        scorer(to_documents(TEXTS))
    assert (
        cached.description == "left to right, with a cache of the last 50 pieces of the text (share 0.1, sharpness 0.3)"
    )
    assert cached.tally.flops > plain.tally.flops
    assert cached.tally.pieces == plain.tally.pieces


def test_rows_of_several_lengths_stay_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text beside long ones does not let more of them run together than fit."""
    model = tiny_model("lstm")
    sizes: list[int] = []
    encoder = model.bundle.encoder
    forward = encoder.forward

    def watched(batch: Batch, **given: object) -> object:
        sizes.append(batch.pieces.numel())
        return forward(batch, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder, "forward", watched)
    score(model, ["crane", *(f"{TEXT} {number}" for number in range(9))], None, batch_pieces=64)
    assert max(sizes) <= 64


# --- from files and what is refused -----------------------------------------------------------------------------------


def test_files_are_scored_with_it(tmp_path: Path) -> None:
    tiny_model("lstm").save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("The burglar broke into the house. " * 20, encoding="utf-8")
    where = {"model": tmp_path / "model", "device": "cpu"}
    plain = scoring.score(tmp_path / "text.txt", **where)  # type: ignore[arg-type]
    cached = scoring.score(tmp_path / "text.txt", **where, neural_cache=True, cache_size=30, cache_share=0.2)  # type: ignore[arg-type]
    assert cached.totals.perplexity_per_word < plain.totals.perplexity_per_word
    assert "a cache of the last 30 pieces" in cached.method
    expected = score(tiny_model("lstm"), [cached.texts[0].text], NeuralCache(size=30, share=0.2))
    np.testing.assert_allclose(cached.texts[0].piece_log_probs, expected[0].piece_log_probs, atol=1e-5)


def test_the_command_has_it(tmp_path: Path) -> None:
    tiny_model("lstm").save(tmp_path / "lstm")
    tiny_model("bert").save(tmp_path / "bert")
    (tmp_path / "text.txt").write_text("The burglar broke into the house.", encoding="utf-8")
    line = ["score", str(tmp_path / "text.txt"), "--neural-cache", "--cache-size", "7", "--json", "-m"]
    result = CliRunner().invoke(main, [*line, str(tmp_path / "lstm")])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert "a cache of the last 7 pieces" in found["how"]
    [expected] = score(tiny_model("lstm"), ["The burglar broke into the house."], NeuralCache(size=7))
    assert found["totals"]["log_prob"] == pytest.approx(expected.totals.log_prob, rel=1e-5)
    result = CliRunner().invoke(main, [*line, str(tmp_path / "bert")])
    assert result.exit_code == 2
    assert "is for causal models" in result.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_size": 0}, "whole number from 1 on. Got 0"),
        ({"cache_share": 1.0}, "below 1. Got 1.0"),
        ({"cache_share": math.nan}, "below 1. Got nan"),
        ({"cache_sharpness": -0.1}, "from 0 on. Got -0.1"),
        ({"cache_sharpness": math.inf}, "from 0 on. Got inf"),
        ({"cache_size": 100, "neural_cache": False}, "were given, but no cache"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        scoring.score(tmp_path / "none.txt", model=tmp_path, **{"neural_cache": True, **settings})  # type: ignore[arg-type]


def test_it_is_for_whole_texts_and_causal_models() -> None:
    with pytest.raises(OptionError, match="for causal models"):
        scorer_of(tiny_model("bert").bundle, neural_cache=NeuralCache())
    model = tiny_model("lstm")
    assert model.bundle.tokenizer is not None
    encoded = model.bundle.tokenizer.encode_many(to_documents(TEXTS[:1]))
    with pytest.raises(OptionError, match="whole texts are scored"):
        scorer_of(model.bundle, neural_cache=NeuralCache()).pieces(encoded, best=True)
