"""Patching: no state changes nothing, all states of a layer are the clean sentence, one is what its definition says."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import polyseme
from polyseme.analysis.activation_patching import Patching
from polyseme.api import Model
from polyseme.errors import InputError, ModelError, PolysemeError
from tiny_models import tiny_model

MASKED = ["bert", "albert", "modernbert"]
CAUSAL = ["gpt2", "openai-gpt", "transfo-xl", "lstm"]
HOSTILE = "<script>"


def double(family: str) -> Model:
    return Model(tiny_model(family).bundle.double())


def sentences(family: str) -> tuple[str, str]:
    end = " [MASK] ." if family in MASKED else ""
    return f"The vase broke the{end}", f"The news is the{end}"


@pytest.mark.parametrize("family", [*MASKED, *CAUSAL])
def test_nothing_is_the_corrupted_sentence_and_all_words_are_the_clean_one(family: str) -> None:
    model = double(family)
    patching = Patching(model.bundle, *sentences(family))
    patching.answers = (7, 9)
    clean, corrupted = patching.unpatched(0), patching.unpatched(1)
    assert abs(clean - corrupted) > 1e-3
    every = range(len(patching.columns[0]))
    for layer in range(model.bundle.config.depth + 1):
        nothing, everything = patching.differences(layer, [[], every])
        assert nothing == pytest.approx(corrupted, abs=1e-9)
        assert everything == pytest.approx(clean, abs=1e-9)
    assert sorted(itertools.chain(*(column.pieces for column in patching.columns[0]))) == [
        *range(patching.rows[0].n_pieces)
    ]


def test_one_word_by_hand() -> None:
    """The upper layers run over states of which one is another's."""
    model = double("bert")
    texts = sentences("bert")
    findings = polyseme.patch(*texts, model=model, answer="the", against="a")
    patching = Patching(model.bundle, *texts)
    clean, corrupted = (row.states() for row in patching.rows)
    layer, word = 1, 3  # [CLS] The vase broke
    [place] = patching.columns[1][word].pieces
    x = corrupted[layer].clone()
    x[0, place] = clean[layer][0, patching.columns[0][word].pieces[0]]
    bottom = model.bundle.encoder.layers[0]  # type: ignore[index]
    hook = bottom.register_forward_hook(lambda module, arguments, result: (x, *result[1:]))
    with torch.inference_mode():
        log_probs: Tensor = patching.rows[1].log_probs(patching.rows[1].states()[-1])[0]
    hook.remove()
    ids = [model.tokenizer.encode(polyseme.Document(text=each, words=[])).ids[0] for each in ("the", "a")]
    assert findings.differences[layer][word] == pytest.approx(float(log_probs[ids[0]] - log_probs[ids[1]]), abs=1e-9)
    gap = findings.clean_difference - findings.corrupted_difference
    expected = (findings.differences[layer][word] - findings.corrupted_difference) / gap
    assert findings.recovered()[layer][word] == pytest.approx(expected)
    assert len(findings.records()) == 4 * len(findings.columns)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_answers_in_brackets_are_the_answers(family: str) -> None:
    model = tiny_model(family)
    marked = polyseme.patch("The vase [broke]", "The news [is]", model=model)
    end = " [MASK]" if family == "bert" else ""
    named = polyseme.patch(f"The vase{end}", f"The news{end}", answer="broke", against="is", model=model)
    assert marked.records() == named.records()
    assert marked.answer.strip("Ġ") == "broke"
    own = polyseme.patch(f"The vase{end}", f"The news{end}", model=model, against="is")
    top = polyseme.lens(f"The vase{end}", model=model).places[-1].answer
    assert own.answer == top


def test_words_with_other_numbers_of_pieces_are_aligned_from_their_ends() -> None:
    model = tiny_model("bert")
    findings = polyseme.patch(f"The vase {HOSTILE} [broke]", f"The unbelievable {HOSTILE} [is]", model=model)
    assert "vase / unbelievable" in findings.notes[0]
    assert "<script" not in findings.html()
    assert ("vase", "unbelievable") in findings.columns


@pytest.mark.parametrize(
    ("family", "texts", "error", "message"),
    [
        ("bert", ("The vase [broke]", "The old vase [is]"), InputError, "has 3, .* has 4.*Replace words"),
        ("bert", ("The vase broke", "The news is"), InputError, "not mark the place"),
        ("bert", ("The [MASK] [MASK]", "The [MASK] [MASK]"), InputError, "2 masks"),
        ("bert", ("The vase [broke]", "The news is"), InputError, "Mark both, or neither"),
        ("gpt2", ("The vase [ ]", "The news [is]"), InputError, "nothing between them"),
        ("gpt2", ("The vase [broke]", "The news [broke]"), InputError, "Both answers are"),
        ("gpt2", ("The vase [broke]", "The vase [is]"), InputError, "nothing to restore"),
        ("gpt2", ("The vase [unbelievable]", "The news [is]"), InputError, "must be one piece"),
        ("gpt2", ("The vase [MASK]", "The news [MASK]"), InputError, "predicts the next piece"),
        ("gpt2", ("broke " * 60, "broke " * 60), InputError, "reads 40 at once"),
        ("bart", ("The [MASK]", "A [MASK]"), ModelError, "models with one stack"),
        ("elmo", ("The vase [broke]", "The news [is]"), ModelError, "predicts in two directions"),
        ("flair", ("The vase [broke]", "The news [is]"), ModelError, "predicts in two directions"),
        ("nnlm", ("The vase [broke]", "The news [is]"), ModelError, "cannot be patched"),
        ("static", ("The vase", "The news"), ModelError, "neither a 'masked' output"),
    ],
)
def test_bad_input(family: str, texts: tuple[str, str], error: type[PolysemeError], message: str) -> None:
    with pytest.raises(error, match=message):
        polyseme.patch(*texts, model=tiny_model(family))
