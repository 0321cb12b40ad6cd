"""Models that write fill masks: candidates are compared as their own scores of the texts compare them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from polyseme.api import Model
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.filling.choose_filler import filling_method, sentinels_of
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.text.documents import make_document
from polyseme.types import Batch
from tiny_models import tiny_model

TEXT = "The [MASK] broke the law."
TARGETS = ["crane", "misunderstandings", "movie"]
WRITES = ["gpt2", "openai-gpt", "lstm", "transfo-xl", "bart", "t5"]


def shares(log_probs: list[float]) -> dict[str, float]:
    """Of the targets, among them."""
    every = np.exp(np.array(log_probs) - max(log_probs))
    return dict(zip(TARGETS, (every / every.sum()).tolist(), strict=True))


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_a_causal_model_compares_whole_texts(family: str) -> None:
    model = tiny_model(family)
    model.bundle.double()
    [filled] = model.fill(TEXT, targets=TARGETS)
    texts = [TEXT.replace("[MASK]", target) for target in TARGETS]
    scored = model.score(texts, word_probability="corrected")
    expected = shares([each.totals.word_log_prob for each in scored])
    for word, probability in zip(filled.words, filled.probabilities, strict=True):
        assert probability == pytest.approx(expected[word], rel=1e-6)
    assert sum(filled.probabilities) == pytest.approx(1)


def test_a_denoising_model_compares_whole_texts_given_the_masked_one() -> None:
    model = tiny_model("bart")
    model.bundle.double()
    [filled] = model.fill(TEXT, targets=TARGETS)
    scorer = scorer_of(model.bundle)
    source = model.bundle.tokenizer.encode_with_masks(TEXT)  # type: ignore[union-attr]
    encoded = [scorer.tokenizer.encode(make_document(TEXT.replace("[MASK]", target))) for target in TARGETS]
    scores = scorer.pieces(encoded, sources=[source] * len(encoded))
    expected = shares([math.fsum(each.log_probs) for each in scores])
    assert dict(zip(filled.words, filled.probabilities, strict=True)) == pytest.approx(expected, rel=1e-6)


def test_sentinels_have_what_the_decoder_writes_for_them() -> None:
    """Pieces one after another behind the first sentinel, up to the second: a plain loop over the decoder."""
    model = tiny_model("t5")
    bundle = model.bundle.double()
    tokenizer: Any = bundle.tokenizer
    first, second, *_ = sentinels_of(tokenizer)
    ids = [*tokenizer.encode(make_document("The")).ids, first, *tokenizer.encode(make_document(" broke the law.")).ids]
    source = torch.from_numpy(tokenizer.frame(np.array(ids)).ids)[None]

    def log_prob(pieces: list[int]) -> float:
        total, read = 0.0, [bundle.first_written, first]
        for piece in [*pieces, second]:
            with torch.no_grad():
                states = bundle.encoder(Batch(source), layers=[-1])
                top = bundle.decoder(Batch(torch.tensor([read]), source=states), layers=[-1])[-1][0, -1:]  # type: ignore[misc]
                total += float(bundle.outputs["causal"].log_probs(top)[0, piece])
            read.append(piece)
        return total

    [filled] = model.fill(TEXT, targets=TARGETS)
    for word, pieces, probability in zip(filled.words, filled.pieces, filled.probabilities, strict=True):
        spelled = [tokenizer.backend.token_to_id(piece) for piece in pieces.split()]
        assert math.log(probability) == pytest.approx(log_prob(spelled), rel=1e-6), word
    [filled] = model.fill(TEXT, whole_words=True, top=3, max_pieces=1)
    [again] = model.fill(TEXT, targets=filled.words)
    assert again.probabilities == pytest.approx(filled.probabilities)


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("family", WRITES)
def test_models_that_write_fill_spans_and_whole_words(family: str) -> None:
    model = tiny_model(family)
    [spans] = model.fill(TEXT, top=4)
    [words] = model.fill(TEXT, whole_words=True, top=4)
    assert len(spans.words) == len(words.words) == 4
    assert all(word.isalnum() for word in words.words)
    for filled in (spans, words):
        assert filled.probabilities == sorted(filled.probabilities, reverse=True)
        assert 0 < sum(filled.probabilities) <= 1 + 1e-6
        assert (filled.start, filled.end) == (4, 10)
    assert "fill" in model.show().can


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_several_masks_are_filled_together(family: str) -> None:
    first, second = tiny_model(family).fill("The [MASK] broke the [MASK].", whole_words=True, top=4)
    assert first.probabilities == second.probabilities
    assert len(set(zip(first.words, second.words, strict=True))) == 4


@pytest.mark.parametrize(
    ("family", "text", "settings", "error", "said"),
    [
        ("gpt2", "Dawn broke.", {}, InputError, r"Write \[MASK\]"),
        ("gpt2", "Dawn <mask>.", {}, InputError, r"Write \[MASK\]"),
        ("gpt2", TEXT, {"whole_words": True, "hide": "word"}, OptionError, "is for masked models; this one writes"),
        ("openai-gpt", "[MASK] broke.", {}, InputError, "nothing before the first mask"),
        ("t5", "[MASK] " * 12, {}, InputError, "12 masks, and the model's tokenizer has 12 sentinels"),
        ("t5", TEXT + " broke" * 60, {}, InputError, "reads 40 at once"),
        ("lstm", TEXT, {"targets": ["misunderstandingz"]}, InputError, "cannot write the target"),
        ("transformer", TEXT, {}, ModelError, "cannot fill masks"),
        ("xlnet", TEXT, {"whole_words": True}, ModelError, "cannot fill masks"),
        ("elmo", TEXT, {"targets": ["law"]}, ModelError, "cannot fill masks"),
    ],
)
def test_what_cannot_be_filled_is_refused(
    family: str, text: str, settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        tiny_model(family).fill(text, **settings)


def test_a_masked_output_without_a_mask_piece_fills_nothing() -> None:
    model = tiny_model("bert")
    model.bundle.tokenizer = tiny_model("gpt2").bundle.tokenizer
    assert filling_method(model.bundle) is None
    for settings in ({}, {"whole_words": True}):
        with pytest.raises(ModelError, match="mask"):
            Model(model.bundle).fill(TEXT, **settings)  # type: ignore[arg-type]
