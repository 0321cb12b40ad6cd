"""What scores come to: words, pieces and bytes have the same sum; and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from polyseme.api import Model
from polyseme.datasets.lambada import LastWord
from polyseme.errors import ModelError, OptionError
from polyseme.scoring.benchmark_items import score_last_words
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.target_rows import strides
from polyseme.scoring.text_scores import ScoredDocument, Totals, pieces_of_word, totals
from polyseme.text.character_tokenizer import CharacterTokenizer
from polyseme.text.documents import make_document
from polyseme.types import Pieces, Word
from text.samples import texts
from tiny_models import tiny_model

MODELS = {family: tiny_model(family) for family in ("gpt2", "bert", "xlm-roberta")}


def scored(log_probs: list[float], spans: list[list[int]], words: list[list[int]], text: str) -> ScoredDocument:
    """A text whose scores are given; the words' places do not matter here."""
    return ScoredDocument(
        text=text,
        words=[Word("w", 0, 1)] * len(words),
        pieces=["p"] * len(log_probs),
        ids=np.zeros(len(log_probs), np.int64),
        spans=np.array(spans, dtype=np.int64).reshape(-1, 2),
        word_pieces=np.array(words, dtype=np.int64).reshape(-1, 2),
        piece_log_probs=np.array(log_probs),
    )


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("family", MODELS)
@given(text=texts)
@settings(max_examples=40)
def test_words_pieces_and_bytes_come_to_the_same(family: str, text: str) -> None:
    [each] = MODELS[family].score(text)
    summed = math.fsum(each.piece_log_probs)
    assert len(each.word_log_probs) == len(each.words)
    assert len(each.byte_log_probs) == len(each.text.encode())
    if len(each.words):
        assert math.isclose(math.fsum(each.word_log_probs), summed, abs_tol=1e-9)
    if each.text:
        assert math.isclose(math.fsum(each.byte_log_probs), summed, abs_tol=1e-9)
    assert (each.piece_log_probs <= 0).all()


def test_a_piece_of_two_words_is_shared_and_one_of_none_goes_with_the_next() -> None:
    # pieces:   0 of word 0; 1 of words 0 and 1; 2 of none; 3 of word 2; 4 of none
    each = scored([-1, -2, -4, -8, -16], [[0, 1]] * 5, [[0, 1], [1, 1], [3, 3]], "abc")
    assert each.word_log_probs.tolist() == [-1 - 1, -1, -4 - 8 - 16]
    pieces = Pieces(each.ids, each.spans, each.word_pieces)
    assert [pieces_of_word(pieces, word) for word in (0, 1, 2, -1)] == [(0, 2), (1, 2), (2, 5), (2, 5)]
    np.testing.assert_allclose(each.word_surprisals, np.array([2, 1, 28]) / math.log(2))


def test_a_byte_has_an_even_share_of_its_pieces() -> None:
    # é is two bytes, of two pieces; the piece at the end stands nowhere
    each = scored([-4, -1, -3, -5], [[0, 2], [3, 4], [3, 4], [4, 4]], [[0, 0], [1, 3]], "ab é")
    assert each.byte_log_probs.tolist() == [-2, -2, 0, -2, -2 - 5]
    assert each.totals.bytes == 5


def test_totals() -> None:
    each = scored([-math.log(2)] * 4, [[0, 1], [1, 2], [2, 3], [3, 4]], [[0, 1], [2, 3]], "abcd")
    both = totals([each, each])
    assert both.perplexity_per_word == pytest.approx(4)
    assert both.perplexity_per_piece == pytest.approx(2)
    assert both.perplexity_per_byte == pytest.approx(2)
    assert both.bits_per_byte == pytest.approx(1)
    assert (both.texts, both.words, both.pieces, both.bytes) == (2, 4, 8, 8)
    assert both.to_json()["surprisal"] == pytest.approx(8)


def test_what_has_no_score_is_left_out() -> None:
    each = scored([math.nan, -1, -2], [[0, 1], [1, 2], [2, 3]], [[0, 1], [2, 2]], "abc")
    assert np.isnan(each.word_log_probs[0])
    assert each.totals == Totals(log_prob=-3, word_log_prob=-2, texts=1, words=1, pieces=2, bytes=2, unscored=1)


@pytest.mark.parametrize("family", MODELS)
def test_an_empty_text_has_no_scores(family: str) -> None:
    empty, full = MODELS[family].score(["", "Dawn broke."])
    assert empty.totals.pieces == 0
    assert math.isnan(empty.totals.perplexity_per_word)
    assert empty.totals.to_json()["perplexity_per_word"] is None
    assert full.totals.words == 3


def test_given_words_are_kept() -> None:
    [each] = MODELS["gpt2"].score([["New York", "broke"]])  # type: ignore[list-item]
    assert [str(word) for word in each.words] == ["New York", "broke"]
    assert len(each.word_log_probs) == 2


@given(n_read=st.integers(0, 60), room=st.integers(1, 20), stride=st.none() | st.integers(1, 20))
def test_windows_guess_every_piece_once_with_as_much_before_it_as_the_stride_allows(
    n_read: int, room: int, stride: int | None
) -> None:
    if stride is not None and stride > room:
        with pytest.raises(OptionError, match="stride"):
            strides(n_read, room, stride)
        return
    found = strides(n_read, room, stride)
    guessed = [piece for start, end, first in found for piece in range(first, end + 1)]
    assert guessed == list(range(1, n_read + 1))
    for start, end, first in found:
        assert 0 <= start <= end <= n_read
        assert end - start <= room
        for piece in range(first, end + 1):
            assert piece - start >= min(piece, room + 1 - (stride or max(room // 2, 1)))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "options", "said"),
    [
        ("gpt2", {"hide": "piece"}, "for masked models"),
        ("gpt2", {"hide": "wrd"}, "Did you mean 'word'"),
        ("bert", {"stride": 3}, "for causal models"),
        ("gpt2", {"stride": 0}, "between 1 and the 40 pieces"),
        ("gpt2", {"stride": 41}, "Got 41"),
        ("bert", {"batch_pieces": 0}, "at least 1 piece"),
    ],
)
def test_contradictory_options_are_refused(family: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        MODELS[family].score("Dawn broke.", **options)  # type: ignore[arg-type]


def test_a_model_without_a_fitting_output_is_refused() -> None:
    model: Model = tiny_model("electra")
    del model.bundle.outputs["masked"]
    with pytest.raises(ModelError, match=r"neither a 'causal' output .* nor a 'masked' output .*replaced"):
        model.score("Dawn broke.")


@pytest.mark.parametrize("family", ["lstm", "elmo"])
def test_the_unknown_piece_is_no_right_last_word(family: str) -> None:
    """Not even where the model finds it the likeliest; a word that is known may be right."""
    model = tiny_model(family, **({} if family == "lstm" else {"n_outputs": 5}))
    if family == "elmo":
        model.bundle.tokenizer = CharacterTokenizer(50, ("</S>", "<S>", "<UNK>", "crane", "Dawn"))
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    items = [LastWord(make_document(f"Dawn Dawn {word}")) for word in ("crane", "zyx")]
    for number, word in enumerate(("crane", "zyx")):
        piece = {"crane": 3, "zyx": 2}[word] if family == "elmo" else int(tokenizer.encode(make_document(word)).ids[0])
        make_likeliest(model, piece)
        log_probs, right = score_last_words(scorer_of(model.bundle), items)
        assert log_probs[number] > -0.1
        assert right.tolist() == [word == "crane", False]


def make_likeliest(model: Model, piece: int) -> None:
    """After "Dawn Dawn": by the output's bias, or where it has none by a row along the state."""
    state = torch.from_numpy(model.pieces("Dawn Dawn").states[-1, -1])
    for name, tensor in model.bundle.outputs.named_parameters():
        nn.init.zeros_(tensor)
        if name.endswith("bias"):
            tensor.data[piece] = 1000.0
        elif name == "causal.table":
            tensor.data[piece] = 1000.0 * state


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("text", ["The vase 国 broke", "The  vase broke  国", "国"])
def test_a_blank_before_a_rare_character_belongs_to_its_word(tmp_path: Path, text: str) -> None:
    """Hidden with it, as minicons does by the tokenizer's words; a further blank is hidden alone, and counted to it."""
    model = tiny_model("roberta")
    model.save(tmp_path / "roberta")
    row = transformers.AutoTokenizer.from_pretrained(tmp_path / "roberta")(text, return_tensors="pt")
    reference = transformers.RobertaForMaskedLM.from_pretrained(tmp_path / "roberta").eval()
    ids, words = row["input_ids"][0], row.word_ids(0)
    of_words: dict[str, float] = {}
    blanks = 0.0
    for word in dict.fromkeys(each for each in words if each is not None):
        places = torch.tensor([place for place, each in enumerate(words) if each == word])
        hidden = ids.clone()
        hidden[places] = model.tokenizer.specials["mask"]
        with torch.no_grad():
            log_probs = reference(input_ids=hidden[None]).logits[0].log_softmax(-1)
        begin, end = row.word_to_chars(word)
        own = blanks + float(log_probs[places, ids[places]].sum())
        blanks = 0.0 if text[begin:end].strip() else own
        of_words[text[begin:end].strip()] = own
    [scored] = model.score([text], hide="word")
    found = dict(zip(map(str, scored.words), scored.word_log_probs.tolist(), strict=True))
    assert found == pytest.approx({word: of_words[word] for word in found}, abs=1e-4)
