"""Static vectors trained on text: what is planted is found, whatever the seed; runs resume; models are read by all."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.encoders.static import Static
from polyseme.errors import InputError, ModelError, OptionError, PolysemeError, PolysemeWarning
from polyseme.model_folder import load_bundle
from polyseme.recipes.recipe_table import RECIPES
from polyseme.text.word_tokenizer import WordTokenizer
from polyseme.training.run_job import PausedRun
from training.kills import losses, weights

TOPICS = 5
SMALL: dict[str, Any] = {"batch_size": 4, "length": 64, "held_out": 0.1, "device": "cpu", "shape": {"width": 12}}
OF_RECIPE: dict[str, dict[str, Any]] = {
    "skip-gram": {**SMALL, "learning_rate": 0.1, "budget": "20epochs", "objective": {"block": 8}},
    "cbow": {**SMALL, "learning_rate": 0.1, "budget": "20epochs", "objective": {"block": 8}},
    "fasttext": {
        **SMALL,
        "learning_rate": 0.1,
        "budget": "20epochs",
        "objective": {"block": 8, "subsample": 1e-3},
        "shape": {"width": 12, "n_buckets": 500},
    },
    "glove": {**SMALL, "batch_size": 4, "length": 4, "budget": "60epochs", "objective": {"x_max": 20.0, "window": 5}},
}


def sentences(seed: int) -> str:
    """Each topic has five words, most of which are near it, and two that stand in the same places: `one3`, `other3`."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(1000):
        topic = random.integers(TOPICS)
        topics = np.where(random.random(4) < 0.15, random.integers(TOPICS, size=4), topic)
        own = [f"{letter}{each}" for letter, each in zip(random.choice(list("pqrst"), 4), topics, strict=True)]
        own.insert(2, random.choice([f"one{topic}", f"other{topic}"]))
        lines.append(" ".join(own))
    return "\n\n".join(lines)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(sentences(0), encoding="utf-8")
    return path


def trained(text: Path, output: Path, recipe: str, **changes: Any) -> Any:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        return polyseme.pretrain(text, output=output, recipe=recipe, **{**OF_RECIPE[recipe], **changes})


def neighbors(folder: Path) -> list[str]:
    """Of each `one`, the nearest of all `one` and `other`."""
    model = polyseme.load(folder)
    names = [f"{kind}{topic}" for topic in range(TOPICS) for kind in ("one", "other")]
    vectors = np.concatenate([each.vectors for each in model.embed(names)])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = units @ units.T - 2 * np.eye(len(names))
    return [names[near[2 * topic].argmax()] for topic in range(TOPICS)]


@pytest.mark.parametrize(
    ("recipe", "seed"),
    [
        pytest.param(recipe, seed, marks=() if (recipe, seed) == ("skip-gram", 0) else pytest.mark.slow)
        for recipe in OF_RECIPE
        for seed in range(3)
    ],
)
def test_planted_synonyms_are_found(recipe: str, seed: int, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(sentences(seed), encoding="utf-8")
    bill = trained(tmp_path / "text.txt", tmp_path / "run", recipe, seed=seed)
    assert neighbors(tmp_path / "run") == [f"other{topic}" for topic in range(TOPICS)]
    if recipe != "glove":  # of whose pairs six are held out here
        assert bill.held_out < bill.unigram_entropy, "better than knowing frequencies alone"
    assert "the loss of word frequencies alone" in bill.lines()[0]


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "fasttext"
    trained(text, folder, "fasttext", budget="6steps", checkpoint_every=4)
    return folder


@pytest.mark.parametrize("recipe", ["fasttext", "glove"])
def test_a_run_that_stops_and_is_resumed_ends_as_if_it_had_not(
    recipe: str, text: Path, run: Path, tmp_path: Path
) -> None:
    short = {"budget": "6steps", "checkpoint_every": 4}
    if recipe == "fasttext":
        whole = run
    else:
        whole = tmp_path / "whole"
        trained(text, whole, recipe, **short)
    result = trained(text, tmp_path / "sliced", recipe, **short, stop_after="0.001s")
    assert isinstance(result, PausedRun)
    while isinstance(result, PausedRun):
        result = polyseme.pretrain(resume=tmp_path / "sliced", device="cpu", stop_after="0.001s")
    assert result.n_sessions == 6
    assert losses(tmp_path / "sliced") == losses(whole)
    assert weights(tmp_path / "sliced") == weights(whole)


def test_a_model_is_read_again_and_converted_to_the_bit(run: Path, tmp_path: Path) -> None:
    bundle = load_bundle(run)
    assert isinstance(bundle.encoder, Static)
    assert isinstance(bundle.tokenizer, WordTokenizer)
    assert bundle.tokenizer.lowercase
    assert bundle.tokenizer.words[0].islower()
    assert not bundle.encoder.unknown.any()
    words = list(bundle.tokenizer.words)
    assert len(words) == bundle.encoder.config.n_words == 7 * TOPICS
    polyseme.convert_model(model=run, output=tmp_path / "words.vec", to="word2vec")
    polyseme.convert_model(model=run, output=tmp_path / "words.bin", to="word2vec")
    expected = np.concatenate([each.vectors for each in polyseme.load(run).embed(words)])
    for name in ("words.vec", "words.bin"):
        again = polyseme.load(tmp_path / name)
        assert list(again.bundle.tokenizer.words) == words
        assert np.array_equal(again.bundle.encoder.table.detach().numpy(), expected)
    gensim = pytest.importorskip("gensim.models")
    theirs = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / "words.bin"), binary=True)
    assert theirs.index_to_key == words
    assert np.array_equal(theirs.vectors, expected)


def test_unknown_and_capitalized_words_are_read_by_their_ngrams(run: Path) -> None:
    one, other, unknown = (each.vectors[0] for each in polyseme.load(run).embed(["one1", "ONE1", "one7"]))
    assert np.array_equal(one, other)
    assert unknown.any()
    assert not np.array_equal(one, unknown)


def test_a_dry_run_and_a_budget_of_time_and_of_epochs(text: Path, run: Path, tmp_path: Path) -> None:
    dry = trained(text, tmp_path / "none", "cbow", dry_run=True, budget="3epochs")
    assert 0.8 < dry.n_steps * 4 * 64 / (3 * dry.pieces) < 0.95, "nine tenths are trained on"
    assert not (tmp_path / "none").exists()
    settings = {name: value for name, value in OF_RECIPE["cbow"].items() if name != "held_out"}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        bill = polyseme.pretrain(
            run / "corpus", output=tmp_path / "timed", recipe="cbow", **settings | {"budget": "1s"}
        )
    assert bill.steps >= 1
    small = trained(text, tmp_path / "none", "cbow", dry_run=True, budget="3epochs", batch_size=None, length=1024)
    assert small.pieces_per_step == (5 * 1024,), "a step has no more rows than the text"
    assert RECIPES["cbow"].training.phases[0].batch_size > 5
    assert RECIPES["cbow"].budget == "5epochs"
    assert RECIPES["glove"].budget == "25epochs"


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"shape": {"width": 0}}, ModelError, "'width' of static vectors must be at least 1. Got 0"),
        ({"objective": {"window": 0}}, OptionError, "window of 'skip-gram' must be at least 1 word. Got 0"),
        ({"min_count": 5000}, InputError, "No word occurs 5000 times in this text"),
        ({"min_count": 0}, OptionError, "'min_count' must be at least 1. Got 0"),
        ({"optimizer": "adamw"}, OptionError, "which the optimizer 'adamw' cannot. Choose one of these: sgd, adagrad"),
        ({"tokenizer": "wordpiece"}, OptionError, "works on rows of a word each"),
        ({"batch_size": 4000}, InputError, "The corpus is smaller than a batch"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_nothing(
    changes: dict[str, Any], kind: type[PolysemeError], message: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        trained(text, tmp_path / "run", "skip-gram", **changes)
    assert not (tmp_path / "run" / "run.json").exists()
    if not changes.keys() & {"tokenizer", "batch_size"}:  # what only the finished corpus shows; it is used again
        assert not (tmp_path / "run").exists()


def test_a_text_of_one_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("word " * 400 + "\n\n" + "word " * 300, encoding="utf-8")
    with pytest.raises(OptionError, match="The vocabulary has 1 word, and a word's vector is learned from others"):
        trained(tmp_path / "text.txt", tmp_path / "run", "skip-gram", held_out=0.0, length=8)
