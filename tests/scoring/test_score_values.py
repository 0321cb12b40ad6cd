"""Scores equal those of the reference library, gathered piece by piece with plain loops."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from encoders.small_modules import Recurrent, RecurrentConfig
from polyseme.api import Model
from polyseme.bundle import Bundle
from polyseme.convert.families import FAMILIES
from polyseme.errors import PolysemeWarning
from polyseme.outputs.pieces import CausalOutput
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.text.documents import make_document, to_documents
from polyseme.types import Batch, Pieces
from references import Pair, make_pair
from tiny_models import tiny_config, tiny_model, tiny_tokenizer

TEXTS = [
    "Dawn broke.",
    "Sandy broke the world record; they throw a party!",
    "typos, naïve Zoë\n\nso\ton :)",
    "crane",
]
LONG = "The burglar broke into the house and the newscaster broke into the movie broadcast. " * 3
CLOSE = 1e-10


@cache
def pair(family: str, architecture: str) -> Pair:
    found = make_pair(FAMILIES[family], architecture, tiny_config(family))
    found.ours.tokenizer = tiny_tokenizer(family)
    return found


def gpt2() -> Pair:
    return pair("gpt2", "GPT2LMHeadModel")


def bert() -> Pair:
    return pair("bert", "BertForMaskedLM")


def log_probs(reference: Any, ids: list[int]) -> torch.Tensor:
    """[T, V], of one row."""
    with torch.no_grad():
        found: torch.Tensor = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    return found


def assert_equal(ours: NDArray[np.float64], theirs: list[float]) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE * max(map(abs, theirs)))


# --- from left to right -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_causal_scores_are_the_references(text: str) -> None:
    scored = Model(gpt2().ours).score(text)[0]
    end = tiny_tokenizer("gpt2").specials["end"]
    ids = scored.ids.tolist()
    found = log_probs(gpt2().reference, [end, *ids[:-1]])
    assert_equal(scored.piece_log_probs, [float(found[place, id]) for place, id in enumerate(ids)])


def test_a_first_piece_with_nothing_before_it_has_no_score() -> None:
    gpt = pair("openai-gpt", "OpenAIGPTLMHeadModel")
    with pytest.warns(UserWarning, match="first piece of each text has no score"):
        scored = Model(gpt.ours).score(TEXTS[1])[0]
    ids = scored.ids.tolist()
    found = log_probs(gpt.reference, ids)
    assert np.isnan(scored.piece_log_probs[0])
    assert np.isnan(scored.word_log_probs[0])
    assert_equal(scored.piece_log_probs[1:], [float(found[place, id]) for place, id in enumerate(ids[1:])])
    assert scored.totals.pieces == len(ids) - 1
    assert scored.totals.words == len(scored.words) - 1
    assert scored.totals.unscored == 1


@pytest.mark.parametrize("stride", [None, 1, 7, 20, 39, 40])
def test_windows_with_a_stride_are_those_of_a_plain_loop(stride: int | None) -> None:
    room = 40
    scored = Model(gpt2().ours).score(LONG, stride=stride)[0]
    end = tiny_tokenizer("gpt2").specials["end"]
    sequence = [end, *scored.ids.tolist()]
    assert len(sequence) > 3 * room
    expected: list[float] = []
    start = 0
    while len(expected) < len(sequence) - 1:
        start = min(start, len(sequence) - 1 - room)
        found = log_probs(gpt2().reference, sequence[start : start + room])
        targets = range(len(expected) + 1, start + room + 1)
        expected += [float(found[target - 1 - start, sequence[target]]) for target in targets]
        start += room // 2 if stride is None else stride
    assert_equal(scored.piece_log_probs, expected)


def test_where_every_row_begins_with_the_start_piece_every_window_does() -> None:
    tokenizer = tiny_tokenizer("roberta")  # start a end
    model = tiny_model("gpt2", n_pieces=tokenizer.n_pieces)
    model.bundle.double().tokenizer = tokenizer
    room, stride = 40, 15
    scored = model.score(LONG, stride=stride)[0]
    ids, start_piece = scored.ids.tolist(), tokenizer.specials["start"]
    expected: list[float] = []
    start = 0
    while len(expected) < len(ids):
        start = min(start, len(ids) - 1 - (room - 1))
        row = torch.tensor([[start_piece, *ids[start : start + room - 1]]])
        with torch.no_grad():
            states = model.bundle.encoder(Batch(row))[-1][0]
            found = model.bundle.outputs["causal"].log_probs(states)
        expected += [float(found[t - start, ids[t]]) for t in range(len(expected), start + room)]
        start += stride
    assert_equal(scored.piece_log_probs, expected)
    short = model.score("Dawn broke.")[0]
    with torch.no_grad():
        states = model.bundle.encoder(Batch(torch.tensor([[start_piece, *short.ids.tolist()]])))[-1][0]
        found = model.bundle.outputs["causal"].log_probs(states)
    assert_equal(short.piece_log_probs, [float(found[t, id]) for t, id in enumerate(short.ids.tolist())])


def recurrent_model(window: int | None) -> Model:
    torch.manual_seed(5)
    tokenizer = tiny_tokenizer("gpt2")
    config = RecurrentConfig(
        n_pieces=tokenizer.n_pieces, layer_widths=(12, 12, 12), memory="state", max_positions=window
    )
    output = CausalOutput(12, tokenizer.n_pieces, tied=False)
    torch.nn.init.normal_(output.table)
    bundle = Bundle(family=FAMILIES["gpt2"], encoder=Recurrent(config), outputs={"causal": output}, tokenizer=tokenizer)
    return Model(bundle.double().eval())


@pytest.mark.parametrize("batch_pieces", [None, 30])
def test_an_encoder_with_memory_carries_it_over_any_length(batch_pieces: int | None) -> None:
    model = recurrent_model(window=16)
    end = tiny_tokenizer("gpt2").specials["end"]
    for scored in model.score([LONG, *TEXTS, ""], batch_pieces=batch_pieces):
        ids = scored.ids.tolist()
        if not ids:
            continue
        with torch.no_grad():
            states = model.bundle.encoder(Batch(torch.tensor([[end, *ids]])))[-1][0]
            found = model.bundle.outputs["causal"].log_probs(states)
        assert_equal(scored.piece_log_probs, [float(found[t, id]) for t, id in enumerate(ids)])


# --- from both sides --------------------------------------------------------------------------------------------------


def pseudo(text: str, hide: str) -> tuple[NDArray[np.float64], list[float]]:
    """Ours, and a plain loop over the reference: a row for every piece."""
    scored = Model(bert().ours).score(text, hide=hide)[0]  # type: ignore[arg-type]
    specials = tiny_tokenizer("bert").specials
    ids = scored.ids.tolist()
    expected = []
    for place, id in enumerate(ids):
        own = [(first, last) for first, last in scored.word_pieces.tolist() if first <= place <= last]
        first, last = own[0] if own else (place, place)
        hidden = {"word": range(first, last + 1), "piece": [place], "left-to-right": range(place, last + 1)}[hide]
        row = [specials["mask"] if other in hidden else ids[other] for other in range(len(ids))]
        found = log_probs(bert().reference, [specials["start"], *row, specials["end"]])
        expected.append(float(found[place + 1, id]))
    return scored.piece_log_probs, expected


@pytest.mark.parametrize("hide", ["word", "piece", "left-to-right"])
@pytest.mark.parametrize("text", TEXTS)
def test_pseudo_log_likelihoods_are_the_references(text: str, hide: str) -> None:
    assert_equal(*pseudo(text, hide))


def test_the_ways_of_hiding_differ() -> None:
    every = [pseudo(TEXTS[2], hide)[0].sum() for hide in ("word", "piece", "left-to-right")]
    assert len({round(float(each), 6) for each in every}) == 3


@pytest.mark.filterwarnings("ignore:.*that the model's output vocabulary lacks:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("hide", ["word", "left-to-right"])
def test_a_long_text_is_guessed_in_the_windows_that_keep_its_pieces(hide: str) -> None:
    from polyseme.text.windows import cut

    scored = Model(bert().ours).score([["x" * 30, *LONG.split(), "y" * 60]], hide=hide)[0]  # type: ignore[list-item,arg-type]
    specials = tiny_tokenizer("bert").specials
    ids, words = scored.ids.tolist(), scored.word_pieces.tolist()
    expected = []
    for window in cut(len(ids), 38):
        for place in range(window.keep_start, window.keep_end):
            [(first, last)] = [word for word in words if word[0] <= place <= word[1]]
            hidden = range(first if hide == "word" else place, last + 1)
            row = [specials["mask"] if at in hidden else ids[at] for at in range(window.start, window.end)]
            found = log_probs(bert().reference, [specials["start"], *row, specials["end"]])
            expected.append(float(found[place - window.start + 1, ids[place]]))
    assert_equal(scored.piece_log_probs, expected)


# --- alone or together ------------------------------------------------------------------------------------------------

EVERY = [*TEXTS, LONG, TEXTS[0], "The the THE", "x" * 50]


@pytest.mark.filterwarnings("ignore:.*that the model's output vocabulary lacks:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta", "xlm-roberta", "albert", "distilbert"])
def test_a_text_has_the_same_scores_alone_and_in_a_batch(family: str) -> None:
    model = tiny_model(family)
    together = model.score(EVERY)
    small = model.score(EVERY[::-1], batch_pieces=50)[::-1]
    for text, one, other in zip(EVERY, together, small, strict=True):
        [alone] = model.score(text)
        largest = np.abs(alone.piece_log_probs).max()
        np.testing.assert_allclose(one.piece_log_probs, alone.piece_log_probs, rtol=0, atol=1e-5 * largest)
        np.testing.assert_allclose(other.piece_log_probs, alone.piece_log_probs, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_equal_texts_have_equal_scores_to_the_last_bit(family: str) -> None:
    model = tiny_model(family)
    texts = [LONG, *TEXTS] * 3
    scored = model.score(texts, batch_pieces=64)
    for number, each in enumerate(scored):
        np.testing.assert_array_equal(each.piece_log_probs, scored[number % 5].piece_log_probs)
    np.testing.assert_array_equal(scored[0].piece_log_probs, model.score(texts, batch_pieces=64)[0].piece_log_probs)


@pytest.mark.parametrize("family", ["gpt2", "bert"])
@pytest.mark.parametrize("much", [1, 60])
def test_asking_for_a_run_gives_what_asking_for_all_does(family: str, much: int) -> None:
    scorer = scorer_of(tiny_model(family).bundle.double())
    encoded = scorer.tokenizer.encode_many(to_documents(TEXTS * much))
    runs = [(number % len(each), len(each)) for number, each in enumerate(encoded)]
    every, some = scorer.pieces(encoded, best=True), scorer.pieces(encoded, only=runs, best=True)
    for whole, part, (start, end) in zip(every, some, runs, strict=True):
        np.testing.assert_allclose(part.log_probs[start:end], whole.log_probs[start:end], rtol=1e-10)
        np.testing.assert_array_equal(part.best[start:end], whole.best[start:end])


def test_best_is_where_no_other_piece_is_as_likely() -> None:
    bundle = gpt2().ours
    scorer = scorer_of(bundle)
    row = [scorer.tokenizer.specials["end"]]
    for _ in range(12):  # the likeliest piece, but for every fourth
        found = log_probs(gpt2().reference, row)[-1]
        row.append(int(found.topk(2).indices[1 if len(row) % 4 == 0 else 0]))
    pieces = Pieces(np.array(row[1:]), np.zeros((12, 2), np.int64), np.zeros((0, 2), np.int64))
    expected = [number % 4 != 0 for number in range(1, 13)]
    assert scorer.pieces([pieces], best=True)[0].best.tolist() == expected
    assert not scorer.pieces([pieces])[0].best.any()


def test_where_two_pieces_are_as_likely_none_is_best() -> None:
    model = tiny_model("gpt2")
    output = model.bundle.outputs["causal"]
    output.table = torch.nn.Parameter(torch.zeros_like(output.table))  # type: ignore[assignment,arg-type]
    scorer = scorer_of(model.bundle)
    [scores] = scorer.pieces(scorer.tokenizer.encode_many(to_documents(TEXTS[0])), best=True)
    assert not scores.best.any()
    np.testing.assert_allclose(scores.log_probs, -np.log(scorer.tokenizer.n_pieces), rtol=1e-6)


def test_half_precision_keeps_log_probabilities_in_full() -> None:
    model = tiny_model("gpt2")
    exact = model.score(TEXTS)
    model.bundle.bfloat16()
    rounded = Model(model.bundle).score(TEXTS)
    for one, other in zip(exact, rounded, strict=True):
        values = other.piece_log_probs
        assert not np.array_equal(values, torch.from_numpy(values).bfloat16().double().numpy())
        np.testing.assert_allclose(values, one.piece_log_probs, atol=0.05 * np.abs(one.piece_log_probs).max())


# --- words that are not known -----------------------------------------------------------------------------------------

LACKED = r"^{} that the model's output vocabulary lacks were scored as the unknown word"


@pytest.mark.parametrize("family", ["lstm", "transfo-xl", "bert", "t5"])
def test_unknown_words_are_said(family: str) -> None:
    """Of words and of pieces; a perplexity over the unknown piece is not one over the text."""
    model = tiny_model(family)
    given: dict[str, Any] = {"source": ["Dawn", "Dawn"]} if family == "t5" else {}
    with pytest.warns(PolysemeWarning, match=LACKED.format("3 words")):
        model.score([["the", "東", "broke"], ["東", "the", "京"]], **given)
    with pytest.warns(PolysemeWarning, match=LACKED.format("1 word")):
        model.score([["the", "東", "broke"], ["broke"]], **given)
    model.score([["the", "broke"], ["broke"]], **given)


def test_only_what_is_scored_counts() -> None:
    scorer = scorer_of(tiny_model("lstm").bundle)
    encoded = scorer.tokenizer.encode_many([make_document(["東", "broke", "東"]), make_document(["the", "broke"])])
    scorer.pieces(encoded, only=[(1, 2), (0, 2)])
    assert scorer.cautions() == []
    scorer.pieces(encoded, only=[(1, 3), (0, 2)])
    assert scorer.tally.unknown == 1
