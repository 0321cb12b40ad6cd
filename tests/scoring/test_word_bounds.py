"""Word probabilities: proper ones where they are corrected, those of minicons otherwise; and scores of marked spans.

The golden numbers are those of minicons 0.3.39 (`word_score_tokenized`, `conditional_score`) on the model that
`fixed_model` makes, in float64. Its correction counts only pieces with a blank as beginnings of words, neither the end
of the text nor a line feed, so that its words do not quite sum to 1.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from polyseme.api import Model
from polyseme.errors import InputError, OptionError
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.word_bounds import WordEnds
from polyseme.text.documents import make_document
from polyseme.text.framing import Frame
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.types import Batch
from tiny_models import tiny_model

GOLDEN = Path(__file__).parents[1] / "golden" / "minicons" / "word_scores.json"
TEXTS = ["The burglar broke into the house", "Sandy broke the world record", "unbelievable typos downtown"]
SPANS = [("The burglar broke into", "the house"), ("Sandy", "broke the world")]
RAW = "It broke; the tire $3.5 (so)!\n\nIs it flat."


def fixed_model(family: str = "gpt2") -> Model:
    """Numbers of NumPy's generator, which are the same on every machine."""
    model = tiny_model(family)
    rng = np.random.default_rng(5)
    for name, parameter in model.bundle.named_parameters():
        drawn = 0.3 * rng.standard_normal(tuple(parameter.shape)) + name.endswith("norm.weight")
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(drawn))
    return model


def golden() -> dict[str, list[list[float]]]:
    return json.loads(GOLDEN.read_text())  # type: ignore[no-any-return]


class BlankEnds(WordEnds):
    """As minicons has it: only pieces with a blank begin words."""

    def _set(self, last: str) -> NDArray[np.bool_]:
        begins = np.zeros(self.n_pieces, np.bool_)
        begins[: len(self.texts.texts)] = [text.startswith(" ") for text in self.texts.texts]
        return begins


@pytest.mark.parametrize("kind", ["pieces", "corrected"])
def test_words_have_the_log_probabilities_of_minicons(kind: str) -> None:
    model = fixed_model()
    scorer = scorer_of(model.bundle.double(), word_probability=kind)  # type: ignore[arg-type]
    if scorer.word_ends is not None:
        scorer.word_ends = BlankEnds(scorer.word_ends.texts, scorer.word_ends.n_pieces)
    for text, expected in zip(TEXTS, golden()[kind], strict=True):
        [scored] = scorer([make_document(text.split())])
        np.testing.assert_allclose(scored.word_log_probs, expected, rtol=1e-6)


def test_a_marked_span_has_the_conditional_score_of_minicons() -> None:
    model = fixed_model()
    model.bundle.double()
    scored = model.score([f"{before} [{span}]" for before, span in SPANS], marked=True)
    for each, (_, span), expected in zip(scored, SPANS, golden()["spans"], strict=True):
        assert each.totals.log_prob == pytest.approx(expected, rel=1e-6)
        assert each.totals.words == len(span.split())
        assert each.totals.bytes == len(span)
        assert np.isnan(each.word_log_probs[0])


# --- proper probabilities ---------------------------------------------------------------------------------------------


def letters_model() -> Model:
    """A causal model over words of two letters of the alphabet: `a`, `ab`, `abb` … in pieces `a`, `b`, `##a`, `##b`."""
    pieces = ["<end>", "<unk>", "a", "b", "##a", "##b"]
    backend = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=False)
    model = tiny_model("gpt2", n_pieces=len(pieces))
    frame = Frame(single="a", pair="a b", specials={"end": "<end>", "start": "<end>", "unknown": "<unk>"})
    model.bundle.double().tokenizer = PieceTokenizer(backend, frame)
    return model


def test_all_words_that_may_come_next_sum_to_one_where_they_are_corrected() -> None:
    model = letters_model()
    longest = 5
    words = ["".join(word) for n in range(1, longest + 1) for word in itertools.product("ab", repeat=n)]
    sums = {
        kind: sum(
            float(np.exp(scored.word_log_probs[1]))
            for scored in model.score([["ba", word] for word in words], word_probability=kind)  # type: ignore[arg-type]
        )
        for kind in ("pieces", "corrected")
    }

    def next_probabilities(rows: list[list[int]]) -> torch.Tensor:
        """[R, V] behind each row."""
        with torch.no_grad():
            states = model.bundle.encoder(Batch(torch.tensor(rows)), layers=[-1])[-1][:, -1]
            return model.bundle.outputs["causal"].log_probs(states).exp()  # type: ignore[no-any-return,operator]

    before = [0, 3, 4]  # <end> b ##a
    after = next_probabilities([before])[0]
    begins = float(after[:4].sum())
    no_word = float(after[:2].sum()) / begins  # the text ends, or an unknown word follows
    of_longest = list(itertools.product([0, 1], repeat=longest))
    rows = [[*before, 2 + letters[0], *(4 + letter for letter in letters[1:])] for letters in of_longest]
    ending = next_probabilities(rows)[:, :4].sum(dim=1).numpy()
    scored = model.score([["ba", "".join("ab"[letter] for letter in letters)] for letters in of_longest])
    reached = np.exp([each.word_log_probs[1] for each in scored]) / begins
    unfinished = float((reached * (1 - ending)).sum())  # words of more letters
    assert sums["corrected"] + no_word + unfinished == pytest.approx(1, abs=1e-9)
    assert unfinished < 0.3
    assert abs(sums["pieces"] + no_word + unfinished - 1) > 0.05


@pytest.mark.parametrize("family", ["gpt2", "transformer", "bart", "t5"])
@pytest.mark.parametrize("text", [RAW, RAW.split()])
def test_corrections_move_probability_between_words_and_end_the_text(family: str, text: str | list[str]) -> None:
    """All words come to what their pieces do, and the probability that the text's last word has ended."""
    model = tiny_model(family)
    model.bundle.double()
    texts, source = [text], {} if family == "gpt2" else {"source": ["Dawn broke."]}
    [plain] = model.score(texts, **source)  # type: ignore[arg-type]
    [corrected] = model.score(texts, word_probability="corrected", **source)  # type: ignore[arg-type]
    np.testing.assert_allclose(corrected.piece_log_probs, plain.piece_log_probs, rtol=1e-9)
    assert corrected.word_corrections is not None
    assert len(corrected.word_corrections) == len(corrected.words)
    assert corrected.totals.word_log_prob - plain.totals.word_log_prob == pytest.approx(
        float(corrected.word_corrections.sum())
    )
    assert corrected.word_corrections.sum() < 0  # one probability is left over
    assert (corrected.word_log_probs <= 1e-9).all()
    assert np.abs(corrected.word_corrections[:-1]).max() > 0.1


@pytest.mark.parametrize("family", ["lstm", "transfo-xl"])
def test_words_that_are_pieces_need_no_correction(family: str) -> None:
    model = tiny_model(family)
    plain, corrected = (
        model.score(["The vase broke."], word_probability=kind)[0]  # type: ignore[arg-type]
        for kind in ("pieces", "corrected")
    )
    np.testing.assert_allclose(corrected.word_log_probs, plain.word_log_probs, atol=1e-5)


def test_the_same_alone_and_with_others_in_files_and_windows() -> None:
    model = tiny_model("gpt2")
    long = "The burglar broke into the house and the newscaster broke into the movie broadcast. " * 2
    texts = [RAW, long, TEXTS[0], RAW]
    together = model.score(texts, word_probability="corrected", batch_pieces=64)
    for text, each in zip(texts, together, strict=True):
        [alone] = model.score(text, word_probability="corrected")
        np.testing.assert_allclose(each.word_log_probs, alone.word_log_probs, rtol=1e-4)


def test_a_marked_span_of_corrected_words_is_part_of_the_whole() -> None:
    model = tiny_model("gpt2")
    [whole] = model.score(["Sandy broke the law."], word_probability="corrected")
    [span] = model.score(["Sandy [broke the] law."], word_probability="corrected", marked=True)
    np.testing.assert_allclose(span.word_log_probs[1:3], whole.word_log_probs[1:3], rtol=1e-4)
    assert np.isnan(span.word_log_probs[[0, 3, 4]]).all()


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_a_marked_span_is_scored_as_it_is_in_the_whole(family: str) -> None:
    model = tiny_model(family)
    with pytest.warns(UserWarning, match="no score") if family == "xlnet" else contextlib.nullcontext():
        [whole] = model.score(["Sandy broke the law."])
        [span] = model.score(["Sandy broke [the law]."], marked=True)
    np.testing.assert_allclose(span.word_log_probs[2:4], whole.word_log_probs[2:4], rtol=1e-4)
    assert span.totals.words == 2


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "settings", "said"),
    [
        ("bert", {}, "predict from left to right; this one predicts from both sides"),
        ("xlnet", {}, "this one predicts in any order"),
        ("gpt2", {"neural_cache": True}, "With a neural cache, word probabilities are not corrected"),
        ("gpt2", {"word_probability": "correct"}, "no word probability 'correct'. Did you mean 'corrected'"),
    ],
)
def test_what_cannot_be_corrected_is_refused(family: str, settings: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        tiny_model(family).score(["Dawn broke."], **{"word_probability": "corrected", **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Dawn broke.", "No word is marked"),
        ("Da[wn br]oke.", "begins inside a word"),
        ("Dawn [ ] broke.", "nothing between them"),
        (["Dawn", "broke"], "this is a list of words"),
    ],
)
def test_spans_that_are_not_marked_are_refused(text: str | list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        tiny_model("gpt2").score([text], marked=True)  # type: ignore[list-item]
