"""Patching: no state changes nothing, all states of a layer are the clean sentence, one is what its definition says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import polyseme
from polyseme.analysis.activation_patching import Patching, aligned
from polyseme.api import Model
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.errors import InputError, ModelError, OptionError, PolysemeError
from polyseme.types import Batch
from scoring.test_two_way import elmo
from tiny_models import tiny_model

MASKED = ["bert", "albert", "modernbert"]
CAUSAL = ["gpt2", "openai-gpt", "transfo-xl", "lstm"]
HOSTILE = "<script>"


def double(family: str) -> Model:
    return Model((elmo() if family == "elmo" else tiny_model(family)).bundle.double())


def sentences(family: str) -> tuple[str, str]:
    end = " [MASK] ." if family in (*MASKED, "bart", "t5") else ""
    if family == "flair":
        return "the crane broke the", "the broke crane the"  # words of as many pieces
    if family in TWO_STACKS:
        return f"the crane broke the{end}", f"the flat broke the{end}"
    return f"The vase broke the{end}", f"The news is the{end}"


TWO_STACKS = ["bart", "t5", "transformer", "seq2seq"]
WRITTEN = {"transformer": "the crane", "seq2seq": "the crane"}
"""What models that translate have written before the answer."""


@pytest.mark.filterwarnings("ignore:.* words that the model's output vocabulary lacks")
@pytest.mark.parametrize(
    ("family", "half"),
    [
        *((family, None) for family in [*MASKED, *CAUSAL, "awd-lstm"]),
        *((family, half) for family in ("elmo", "flair") for half in ("forwards", "backwards")),
    ],
)
def test_nothing_is_the_corrupted_sentence_and_all_words_are_the_clean_one(family: str, half: Any) -> None:
    model = double(family)
    patching = Patching(model.bundle, *sentences(family), half=half)
    patching.answers = (5, 8)
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


@pytest.mark.filterwarnings("ignore:.* words that the model's output vocabulary lacks")
@pytest.mark.parametrize("half", ["forwards", "backwards"])
def test_one_word_of_a_half_by_hand(half: Any) -> None:
    """The layers above read the replaced state, and it skips them."""
    model = double("elmo")
    patching = Patching(model.bundle, *sentences("elmo"), half=half)
    patching.answers = (5, 6)
    clean, corrupted = (row.states() for row in patching.rows)
    row, word = patching.rows[1], 2
    place = patching.columns[1][word].pieces[0]
    x = corrupted[1].clone()
    x[0, place] = clean[1][0, place]
    with torch.inference_mode():
        for [above] in model.bundle.encoder.halves()[half == "backwards"].layers[1:]:  # type: ignore[index]
            x = above(x, None, None, carried=False)[0] + x
        log_probs = row.output.log_probs(x[:, row.answer_place])[0]
    assert row.answer_place == (0 if half == "backwards" else row.n_pieces - 1)
    [patched] = patching.differences(1, [[word]])
    assert patched == pytest.approx(float(log_probs[5] - log_probs[6]), abs=1e-9)
    assert abs(patched - patching.unpatched(1)) > 1e-6


@pytest.mark.parametrize("family", TWO_STACKS)
def test_an_encoder_of_two_stacks_by_hand(family: str) -> None:
    """All words of a layer are the clean source; of the top layer, single states can be put before the decoder."""
    bundle = double(family).bundle
    texts = ("[MASK] the crane .", "[MASK] the flat .") if family == "bart" else sentences(family)
    patching = Patching(bundle, *texts, prefix=WRITTEN.get(family))
    patching.answers = (7, 9)
    clean, corrupted = patching.unpatched(0), patching.unpatched(1)
    assert abs(clean - corrupted) > 1e-3
    every = range(len(patching.columns[0]))
    for layer in range(bundle.config.depth + 1):
        assert patching.differences(layer, [[], every]) == pytest.approx([corrupted, clean], abs=1e-9)
    sources = [row.source.states() for row in patching.rows if row.source is not None]
    word = [one.name for one, _ in zip(*patching.columns, strict=True)].index("crane")
    places = patching.columns[1][word].pieces
    sources[1][-1][0, places] = sources[0][-1][0, places]
    row = patching.rows[1]
    with torch.inference_mode():
        states = row.stack(Batch(row.batch.pieces, source=sources[1]), layers=[-1])[-1]
        log_probs = row.output.log_probs(states[:, -1])[0]
    [patched] = patching.differences(bundle.config.depth, [[word]])
    assert patched == pytest.approx(float(log_probs[7] - log_probs[9]), abs=1e-9)
    assert abs(patched - corrupted) > 1e-6


@pytest.mark.parametrize("family", TWO_STACKS)
def test_a_decoder_of_two_stacks_by_hand(family: str) -> None:
    """Its top layer at the answer is the clean run; layers above a replaced one still read the corrupted source."""
    bundle = double(family).bundle
    patching = Patching(bundle, *sentences(family), stack="decoder", prefix=WRITTEN.get(family))
    patching.answers = (7, 9)
    clean, corrupted = patching.unpatched(0), patching.unpatched(1)
    depth = decoder_of(bundle).config.depth
    last = len(patching.columns[0]) - 1
    assert patching.differences(depth, [[], [last]]) == pytest.approx([corrupted, clean], abs=1e-9)
    row = patching.rows[1]
    states = [each.states() for each in patching.rows]
    x = states[1][1].clone()
    for here, there in aligned(*(columns[last].pieces for columns in patching.columns)):
        x[0, there] = states[0][1][0, here]
    if family == "seq2seq":  # the attentional state is fed to the next piece: the last one changes nothing but itself
        [patched] = patching.differences(1, [[last]])
        assert min(abs(patched - corrupted), abs(patched - clean)) > 1e-6
        return
    hook = row.stack.layers[0].register_forward_hook(lambda module, arguments, result: (x, *result[1:]))  # type: ignore[index]
    with torch.inference_mode():
        log_probs = row.output.log_probs(row.states()[-1][:, -1])[0]
    hook.remove()
    [patched] = patching.differences(1, [[last]])
    assert patched == pytest.approx(float(log_probs[7] - log_probs[9]), abs=1e-9)


def test_a_decoder_that_reads_piece_by_piece_is_patched_in_time() -> None:
    """Its first recurrent layer at every piece: with the clean source's attention missing, as a loop by hand has it."""
    bundle = double("seq2seq").bundle
    patching = Patching(bundle, *sentences("seq2seq"), stack="decoder", prefix=WRITTEN["seq2seq"])
    states = [row.states() for row in patching.rows]
    assert [each.shape[-1] for each in patching.clean_states] == list(decoder_of(bundle).config.widths)
    for layer, each in enumerate(patching.clean_states):
        torch.testing.assert_close(each, states[0][layer])


@pytest.mark.filterwarnings("ignore:.* words that the model's output vocabulary lacks")
def test_two_way_models_and_translations_as_findings() -> None:
    marked = polyseme.patch("The vase [broke] .", "The news [is] .", model=elmo())
    assert (marked.answer, marked.against) == ("broke", "is")
    assert ("vase", "news") in marked.columns
    with pytest.raises(InputError, match="not in the vocabulary"):
        polyseme.patch("The vase [zyx]", "The news [is]", model=elmo())
    backwards = polyseme.patch("[the] vase broke", "[broke] news is", model=elmo(), half="backwards")
    assert backwards.notes == ["States of the half that reads backwards."]
    assert [column[0] for column in backwards.columns][:2] == ["vase", "broke"]
    translated = polyseme.patch(
        "The vase broke", "The news is", model=tiny_model("transformer"), answer="broke", prefix=HOSTILE
    )
    assert translated.notes == ["States of the encoder."]
    assert "<script" not in translated.html()
    assert translated.to_json()["prefix"] == HOSTILE
    letters = polyseme.patch("The vase [b]", "The news [i]", model=tiny_model("flair"))
    assert letters.clean == "The vase "


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
        ("bart", ("The vase", "A vase"), InputError, "not mark the place"),
        ("transformer", ("The vase [MASK]", "A vase"), InputError, "Write the text up to"),
        ("elmo", ("The vase [broke]", "The news [is]"), ModelError, "does not have the words of its softmax"),
        ("nnlm", ("The vase [broke]", "The news [is]"), ModelError, "cannot be patched"),
        ("static", ("The vase", "The news"), ModelError, "neither a 'masked' output"),
    ],
)
def test_bad_input(family: str, texts: tuple[str, str], error: type[PolysemeError], message: str) -> None:
    with pytest.raises(error, match=message):
        polyseme.patch(*texts, model=tiny_model(family))


def test_options_of_other_models_are_refused() -> None:
    texts = ("The vase [broke]", "The news [is]")
    with pytest.raises(OptionError, match="models that translate"):
        polyseme.patch(*texts, model=tiny_model("bart"), prefix="the")
    with pytest.raises(OptionError, match="has one direction"):
        polyseme.patch(*texts, model=tiny_model("bart"), half="backwards")
    with pytest.raises(ModelError, match="has one stack"):
        polyseme.patch(*texts, model=tiny_model("bert"), stack="decoder")
