"""What layers predict: the top layer as `fill` and `score` have it, a lower one as the model cut off above it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import polyseme
from polyseme.analysis.layer_predictions import layer_predictions
from polyseme.api import Model
from polyseme.errors import InputError, ModelError, OptionError, PolysemeError
from polyseme.filling.choose_filler import sentinels_of
from polyseme.filling.row_log_probs import DecoderSteps
from polyseme.layer_subset import with_layers
from scoring.test_two_way import elmo
from tiny_models import tiny_model

MASKED = ["bert", "roberta", "albert", "modernbert"]
CAUSAL = ["openai-gpt", "gpt2", "transfo-xl", "lstm", "nnlm"]
TEXT = "The vase broke , and the news broke"
HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize("family", MASKED)
def test_the_top_layer_of_a_masked_model_is_what_fill_returns(family: str) -> None:
    model = tiny_model(family)
    text = "The [MASK] broke, and dawn [MASK]."
    findings = polyseme.lens(text, model=model, top=4)
    for place, filled in zip(findings.places, model.fill(text, top=4), strict=True):
        assert list(place.layers[-1].pieces) == filled.pieces
        np.testing.assert_allclose(place.layers[-1].probabilities, filled.probabilities, rtol=1e-6)
        assert (place.layers[-1].answer_rank, place.layers[-1].divergence) == (1, 0.0)


@pytest.mark.filterwarnings("ignore:The model.s tokenizer has no piece")
@pytest.mark.parametrize("family", CAUSAL)
def test_the_top_layer_of_a_causal_model_is_what_score_returns(family: str) -> None:
    model = tiny_model(family)
    findings = polyseme.lens(TEXT, model=model, top=10**6)
    [scored] = model.score([TEXT])
    own = [
        math.log(dict(zip(place.layers[-1].pieces, place.layers[-1].probabilities, strict=True))[place.target])
        for place in findings.places
        if place.target is not None
    ]
    expected = [each for each in scored.piece_log_probs if not math.isnan(each)]
    np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)
    assert findings.places[-1].target is None


@pytest.mark.filterwarnings("ignore:.* words that the model's output vocabulary lacks")
@pytest.mark.parametrize(("half", "order"), [("forwards", "left-to-right"), ("backwards", "right-to-left")])
@pytest.mark.parametrize("family", ["elmo", "flair"])
def test_the_top_layer_of_a_half_is_what_score_returns(family: str, half: str, order: str) -> None:
    model = elmo() if family == "elmo" else tiny_model(family)
    findings = polyseme.lens(TEXT, model=model, top=10**6, half=half)
    [scored] = model.score([TEXT], order=order)
    own = [
        math.log(dict(zip(place.layers[-1].pieces, place.layers[-1].probabilities, strict=True))[place.target])
        for place in findings.places
        if place.target is not None
    ]
    np.testing.assert_allclose(own, scored.piece_log_probs, rtol=1e-4, atol=1e-5)
    assert findings.places[0 if half == "backwards" else -1].target is None
    assert len(findings.places[0].layers) == model.bundle.config.depth + 1
    assert {"forwards": "next in the text", "backwards": "previous in the text"}[half] in findings.header()
    assert f"{half[:-1]} half of a two-way model" in findings.notes[-1]
    if half == "forwards":
        assert polyseme.lens(TEXT, model=model, top=10**6).records() == findings.records()


@pytest.mark.parametrize("family", [*(family for family in MASKED if family != "albert"), *CAUSAL[:3]])
def test_a_lower_layer_is_the_model_without_those_above_it(family: str) -> None:
    """With its final norm where it has one: a norm that is left out, or applied twice, shows."""
    model = tiny_model(family)
    text = "The [MASK] broke." if family in MASKED else TEXT
    findings = layer_predictions(model.bundle, text, top=6, model="")
    for number in (1, 2):
        small = Model(with_layers(model.bundle, range(1, number + 1)))
        cut = polyseme.lens(text, model=small, top=6)
        for whole, lower in zip(findings.places, cut.places, strict=True):
            np.testing.assert_allclose(whole.layers[number].probabilities, lower.layers[-1].probabilities, rtol=1e-5)
            assert whole.layers[number].pieces == lower.layers[-1].pieces


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_decoder_shows_what_it_writes_for_the_mask(family: str) -> None:
    model = tiny_model(family)
    bundle, tokenizer = model.bundle, model.tokenizer
    [place] = polyseme.lens("The vase [MASK] .", model=model, top=10**6).places
    before, behind = (tokenizer.encode(polyseme.Document(text=text, words=[])).ids for text in ("The vase", " ."))
    if family == "t5":
        mark = sentinels_of(tokenizer)[0]
        source, written = tokenizer.frame(np.concatenate([before, [mark], behind])).ids, [bundle.first_written, mark]
    else:
        source = tokenizer.frame(tokenizer.encode_with_masks("The vase [MASK] .").ids).ids
        written = [bundle.first_written, source[0], *before]
    expected = DecoderSteps(bundle)(source, [written])[0].exp().sort(descending=True).values
    np.testing.assert_allclose(place.layers[-1].probabilities, expected[: tokenizer.n_pieces], rtol=1e-5, atol=1e-9)
    assert len(place.layers) == bundle.decoder.config.depth + 1


@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_a_translation_is_predicted_from_its_source(family: str) -> None:
    model = tiny_model(family)
    findings = polyseme.lens("the crane broke", source="The vase .", model=model, top=10**6)
    [scored] = model.score(["the crane broke"], source=["The vase ."])
    own = [
        math.log(dict(zip(place.layers[-1].pieces, place.layers[-1].probabilities, strict=True))[place.target])
        for place in findings.places
        if place.target is not None
    ]
    np.testing.assert_allclose(own, scored.piece_log_probs, rtol=1e-4, atol=1e-5)
    assert findings.places[-1].target is None
    assert findings.to_json()["source"] == "The vase ."
    assert f"source: <bdi>{'&lt;b&gt;'}" in polyseme.lens("the", source="<b>", model=model).html()


def test_figures_are_those_of_the_distributions() -> None:
    """Rank, entropy and divergence by hand, and where the answer first appears and stays."""
    model = tiny_model("bert")
    [place] = polyseme.lens("Dawn [MASK].", model=model, top=10**6).places
    final = dict(zip(place.layers[-1].pieces, place.layers[-1].probabilities, strict=True))
    for each in place.layers:
        p = dict(zip(each.pieces, each.probabilities, strict=True))
        assert each.answer_rank == 1 + sum(value > p[place.answer] for value in p.values())
        assert each.entropy == pytest.approx(-sum(value * math.log(value) for value in p.values() if value))
        divergence = sum(q * (math.log(q) - math.log(p[piece])) for piece, q in final.items() if q)
        assert each.divergence == pytest.approx(divergence, abs=1e-9)
    right = [each.layer for each in place.layers if each.answer_rank == 1]
    assert place.first_layer == right[0]
    assert set(range(place.stays_from, 4)) <= set(right)
    assert place.stays_from == 0 or place.stays_from - 1 not in right


def test_layers_of_another_width_are_left_out_and_reported() -> None:
    model = tiny_model("awd-lstm", width=24)
    findings = polyseme.lens(TEXT, model=model)
    assert {each["layer"] for each in findings.records()} == {0, 3}
    assert "is not the 16 that the output reads: layers 1, 2." in findings.notes[0]


def test_a_page_of_many_places_is_a_grid() -> None:
    page = polyseme.lens(f"{HOSTILE} broke", model=tiny_model("gpt2")).html()
    assert "next in the text" in page
    masks = polyseme.lens("[MASK] [MASK] [MASK] [MASK]", model=tiny_model("bert"))
    assert "next in the text" not in masks.html()
    assert {len(row) for row in masks.rows()} == {len(masks.header())}
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("family", "text", "error", "message"),
    [
        ("bert", "Dawn broke.", InputError, r"no mask in the text.*Write \[MASK\]"),
        ("gpt2", "Dawn [MASK].", InputError, "predicts the next piece"),
        ("lstm", "Dawn [MASK].", InputError, "predicts the next piece"),
        ("gpt2", "broke " * 60, InputError, "the model reads 40 at once"),
        ("bert", "[MASK] " + "broke " * 60, InputError, "the model reads 40 at once"),
        ("bart", "[MASK] broke [MASK]", InputError, "2 masks.*Keep one"),
        ("t5", "Dawn broke", InputError, "no mask"),
        ("xlnet", "Dawn broke", ModelError, "in any order.*use score"),
        ("elmo", "Dawn broke", ModelError, "the words of its softmax"),
        ("flair", "Dawn [MASK].", InputError, "predicts the next piece"),
        ("seq2seq", "Dawn broke", OptionError, "writes another text .* --source"),
        ("static", "Dawn broke", ModelError, "'lens' shows predictions.*-m english-encoder"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(family: str, text: str, error: type[PolysemeError], message: str) -> None:
    with pytest.raises(error, match=message):
        polyseme.lens(text, model=tiny_model(family))


@pytest.mark.parametrize("reads", ["forwards", "both"])
def test_a_translator_needs_its_source_whichever_way_its_encoder_reads(reads: str) -> None:
    with pytest.raises(OptionError, match="writes another text"):
        polyseme.lens("Dawn broke", model=tiny_model("seq2seq", reads=reads))


def test_options_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        polyseme.lens("Dawn [MASK]", model=tiny_model("bert"), top=0)
    with pytest.raises(OptionError, match="Leave --half out"):
        polyseme.lens("Dawn [MASK]", model=tiny_model("bert"), half="backwards")
    with pytest.raises(OptionError, match="Leave --source out"):
        polyseme.lens("Dawn [MASK]", model=tiny_model("bert"), source="Dawn")
    with pytest.raises(OptionError, match="Did you mean 'backwards'"):
        polyseme.lens("Dawn", model=tiny_model("flair"), half="backward")
    with pytest.raises(OptionError, match=r"must end in \.html"):
        polyseme.lens("Dawn [MASK]", model=tiny_model("bert"), output="lens.pdf")
