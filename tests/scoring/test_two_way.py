"""Scores of a two-way model: each half by itself equals its states and the softmax, gathered with plain loops."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from polyseme.api import Model
from polyseme.cli import main
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.generating.language_model import language_model
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.neural_cache import NeuralCache
from polyseme.text.character_tokenizer import CharacterTokenizer
from polyseme.text.documents import to_documents
from polyseme.types import Batch
from tiny_models import TEXT, tiny_model

KNOWN = ["the", "broke", ".", "crane", "Dawn", "a", "vase", "flat", "party", "is"]
VOCABULARY = ("</S>", "<S>", "<UNK>", *KNOWN, *(f"word{number}" for number in range(20)))
TEXTS = ["Dawn broke.", "a crane is flat.", "Snuffleupagus broke the vase; " * 3, "", "crane", "crane"]


def elmo(vocabulary: tuple[str, ...] | None = VOCABULARY) -> Model:
    model = tiny_model("elmo", n_outputs=len(VOCABULARY))
    model.bundle.double()
    model.bundle.tokenizer = CharacterTokenizer(50, vocabulary)
    return model


def by_definition(model: Model, words: list[str], *, backwards: bool) -> list[float]:
    """p(w | what a half has read), one word after another, the half reading everything at once."""
    tokenizer = model.bundle.tokenizer
    assert isinstance(tokenizer, CharacterTokenizer)
    row = torch.from_numpy(tokenizer.spell(["<S>", *words, "</S>"]))[None]
    onward, back = model.bundle.encoder.halves()
    with torch.no_grad():
        states = (back if backwards else onward)(Batch(row), layers=[-1])[-1][0]
        log_probs = model.bundle.outputs["two-way"].softmax.log_probs(states)  # type: ignore[union-attr]
    numbers = [VOCABULARY.index(word) if word in VOCABULARY else VOCABULARY.index("<UNK>") for word in words]
    shift = 2 if backwards else 0  # word i stands at i + 1
    return [float(log_probs[place + shift, number]) for place, number in enumerate(numbers)]


@pytest.mark.parametrize("order", ["left-to-right", "right-to-left"])
def test_each_half_equals_its_definition(order: str) -> None:
    model = elmo()
    with pytest.warns(
        PolysemeWarning, match="words that the model's output vocabulary lacks were scored as the unknown word"
    ):
        found = model.score(TEXTS, order=order)
    for scored in found:
        expected = by_definition(model, list(map(str, scored.words)), backwards=order == "right-to-left")
        np.testing.assert_allclose(scored.word_log_probs, expected, rtol=1e-9)
        assert scored.totals.unscored == 0
    log_probs = np.concatenate([scored.word_log_probs for scored in found])
    total = sum((scored.totals for scored in found[1:]), found[0].totals)
    assert total.perplexity_per_word == pytest.approx(math.exp(-log_probs.mean()))


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
def test_both_are_the_mean_and_each_is_said() -> None:
    model = elmo()
    each = {order: model.score(TEXTS, order=order) for order in ("left-to-right", "right-to-left", "both")}
    for one, other, both in zip(*each.values(), strict=True):
        np.testing.assert_allclose(both.word_log_probs, (one.word_log_probs + other.word_log_probs) / 2, rtol=1e-12)
    scorer = scorer_of(model.bundle, order="both")
    scorer(to_documents(TEXTS))
    perplexities = [
        math.exp(-np.concatenate([scored.word_log_probs for scored in each[order]]).mean())
        for order in ("left-to-right", "right-to-left")
    ]
    assert abs(perplexities[0] - perplexities[1]) > 0.1
    assert (
        f"The perplexity per word is {perplexities[0]:,.2f} left to right, {perplexities[1]:,.2f} right to left"
        in scorer.notes()[0]
    )
    assert "mean of both" in scorer.description


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
def test_long_texts_and_small_batches_change_nothing() -> None:
    model = elmo()
    long = [TEXT * 3, *TEXTS]
    for order in ("left-to-right", "right-to-left"):
        whole = model.score(long, order=order)
        parts = model.score(long, order=order, batch_pieces=5)
        for one, other in zip(whole, parts, strict=True):
            np.testing.assert_allclose(one.word_log_probs, other.word_log_probs, rtol=1e-9)
        np.testing.assert_allclose(
            whole[0].word_log_probs,
            by_definition(model, list(map(str, whole[0].words)), backwards=order == "right-to-left"),
            rtol=1e-9,
        )


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
def test_the_neural_cache_recalls_what_was_read() -> None:
    """In the order of reading: from the right, the last word is alone, and the first has seen all others."""
    model = elmo()
    text = "the vase broke. " * 5
    for order, alone, recalled in (("left-to-right", 0, -1), ("right-to-left", -1, 0)):
        [plain] = model.score([text], order=order)
        [cached] = model.score([text], order=order, neural_cache=True, cache_share=0.3, cache_sharpness=0.1)
        assert cached.word_log_probs[alone] == pytest.approx(plain.word_log_probs[alone], rel=1e-12)
        assert cached.word_log_probs[recalled] > plain.word_log_probs[recalled]
    assert NeuralCache(share=0.3) != NeuralCache()


def test_files_and_the_command(tmp_path: Path) -> None:
    model = elmo()
    model.bundle.float()
    model.save(tmp_path / "elmo")
    (tmp_path / "text.txt").write_text("the vase broke.\nDawn broke.\n", encoding="utf-8")
    line = ["score", str(tmp_path / "text.txt"), "-m", str(tmp_path / "elmo"), "--order", "both", "--json"]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["how"] == "left to right and right to left, the mean of both"
    assert "left to right" in result.stderr
    expected = model.score(["the vase broke.", "Dawn broke."], order="both")
    assert found["totals"]["log_prob"] == pytest.approx(sum(each.totals.log_prob for each in expected), rel=1e-5)


def test_published_files_have_no_softmax() -> None:
    bundle = elmo(None).bundle
    del bundle.outputs["two-way"]
    with pytest.raises(ModelError, match="published files of ELMo"):
        scorer_of(bundle)
    with pytest.raises(ModelError, match="published ELMo files hold neither"):
        language_model(bundle)


def test_orders_that_it_does_not_know() -> None:
    with pytest.raises(OptionError, match="cannot score in the order"):
        scorer_of(elmo().bundle, order="2,1")
    with pytest.raises(OptionError, match="no use for a stride"):
        scorer_of(elmo().bundle, stride=3)


# --- writing on -------------------------------------------------------------------------------------------------------


def likeliest(model: Model, words: list[str], n: int) -> list[str]:
    """The forward half reads everything again for each word; a word is fed by its characters."""
    tokenizer, written = model.bundle.tokenizer, []
    assert isinstance(tokenizer, CharacterTokenizer)
    for _ in range(n):
        row = torch.from_numpy(tokenizer.spell(["<S>", *words, *written]))[None]
        with torch.no_grad():
            state = model.bundle.encoder.halves()[0](Batch(row), layers=[-1])[-1][0, -1:]
            log_probs = model.bundle.outputs["two-way"].softmax.log_probs(state)[0]  # type: ignore[union-attr]
        log_probs[[VOCABULARY.index("<S>"), VOCABULARY.index("<UNK>")]] = -math.inf
        word = VOCABULARY[int(log_probs.argmax())]
        if word == "</S>":
            break
        written.append(word)
    return written


@pytest.mark.parametrize("prompt", ["Dawn broke", "Snuffleupagus", ""])
def test_words_follow_one_by_one(prompt: str) -> None:
    model = elmo()
    [text] = model.generate([prompt], max_new=8, greedy=True)
    expected = likeliest(model, prompt.split(), 8)
    assert text == f"{' ' if prompt else ''}{' '.join(expected)}"


def test_prompts_together_and_alone() -> None:
    model = elmo()
    prompts = ["Dawn broke", "Snuffleupagus is a", "", "a crane is flat . the party"]
    for settings in ({}, {"temperature": 1.2, "n": 2}, {"beam": 3}, {"repetition_penalty": 2.0, "no_repeat_ngram": 2}):
        together = model.generate(prompts, max_new=6, **settings)  # type: ignore[arg-type]
        alone = [model.generate(prompts[: n + 1], max_new=6, **settings)[n] for n in range(len(prompts))]  # type: ignore[arg-type]
        assert together == alone


# --- characters (Flair) -----------------------------------------------------------------------------------------------


def characters_by_definition(model: Model, text: str, *, backwards: bool) -> list[float]:
    """p(c | what a half has read), the half reading everything at once, from the end of a line on."""
    tokenizer, output = model.bundle.text_tokenizer, model.bundle.outputs["two-way"]
    pieces = tokenizer.encode(to_documents([text])[0]).ids
    line_end = tokenizer.encode(to_documents(["\n."])[0]).ids[:1]
    assert isinstance(output, TwoWayOutput)
    read = [pieces[::-1], pieces][not backwards]
    half = model.bundle.encoder.halves()[backwards]
    row = torch.from_numpy(np.concatenate([line_end, read]))[None]
    with torch.no_grad():
        states = half(Batch(row.flip(1) if backwards else row), layers=[-1])[-1][0]
        log_probs = output.halves[backwards].log_probs(states.flip(0) if backwards else states)
    in_order = [float(log_probs[place, piece]) for place, piece in enumerate(read)]
    return in_order[::-1] if backwards else in_order


@pytest.mark.parametrize("order", ["left-to-right", "right-to-left"])
def test_characters_are_scored_by_each_half(order: str) -> None:
    model = tiny_model("flair")
    model.bundle.double()
    for scored in model.score(["Dawn broke.", "a crane is flat, a"], order=order):
        expected = characters_by_definition(model, scored.text, backwards=order == "right-to-left")
        np.testing.assert_allclose(scored.piece_log_probs, expected, rtol=1e-9)


def test_characters_are_written_by_the_forward_half() -> None:
    model = tiny_model("flair")
    [generated] = model.generate(["Dawn bro"], max_new=5, greedy=True)
    text = "Dawn bro"
    for character in str(generated):
        log_probs = {
            each: characters_by_definition(model, text + each, backwards=False)[-1]
            for each in sorted(set(TEXT) - {"\n"})
        }
        assert character == max(log_probs, key=log_probs.__getitem__)
        text += character


def test_corrected_words_of_characters_are_refused() -> None:
    with pytest.raises(OptionError, match="not built for a model that predicts characters"):
        tiny_model("flair").score(["Dawn broke."], word_probability="corrected")
