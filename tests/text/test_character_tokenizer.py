"""ELMo's characters equal the reference's; words and offsets stay the user's."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from golden_elmo import arrays, content
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.text.character_tokenizer import CharacterTokenizer, read_vocabulary
from polyseme.text.documents import make_document
from text.samples import texts


@pytest.mark.filterwarnings("ignore:Of words longer than 48 bytes:polyseme.PolysemeWarning")
def test_the_golden_characters() -> None:
    golden = content("activations/char_ids")
    found = CharacterTokenizer().spell(list(golden))
    np.testing.assert_array_equal(found, np.array(list(golden.values())))


@pytest.mark.filterwarnings("ignore:Of words longer than 48 bytes:polyseme.PolysemeWarning")
def test_the_golden_batches() -> None:
    tokenizer = CharacterTokenizer()
    for number, sentences in enumerate(content("activations/batches")["batches"]):
        expected = arrays("activations/carry")[f"batch{number}.char_ids"].numpy()
        for row, words in enumerate(sentences):
            pieces = tokenizer.encode(make_document(words))
            np.testing.assert_array_equal(pieces.ids, expected[row, : len(words)])
            assert not expected[row, len(words) :].any()


def test_words_longer_than_there_is_room_are_cut_and_that_is_said_once() -> None:
    tokenizer = CharacterTokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer.spell(["x" * 48, "é" * 24])
    with pytest.warns(PolysemeWarning, match="longer than 48 bytes") as said:
        tokenizer.spell(["y" * 49, "z" * 60])
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer.spell(["w" * 70])
    assert "'yyyyyyyyyyyyyyyyyyyy'" in str(said[0].message)


def test_each_word_is_one_piece_with_its_place() -> None:
    tokenizer = CharacterTokenizer()
    for one in (make_document("Dawn broke, naïvely."), make_document(["New York", "☃"]), make_document("")):
        pieces = tokenizer.encode(one)
        assert pieces.ids.shape == (len(one.words), 50)
        assert pieces.words.tolist() == [[place, place] for place in range(len(one.words))]
        assert [one.text[start:end] for start, end in pieces.spans] == list(one.words)
        assert tokenizer.pieces(pieces.ids.tolist()) == list(one.words)


def test_rows_are_framed_by_the_markers() -> None:
    tokenizer = CharacterTokenizer()
    pieces = tokenizer.encode(make_document("Dawn broke"))
    framed = tokenizer.frame(pieces.ids)
    assert framed.offset == 1
    assert framed.ids.shape == (4, 50)
    assert tokenizer.n_specials == 2
    assert tokenizer.pieces(framed.ids.tolist()) == ["<S>", "Dawn", "broke", "</S>"]
    assert tokenizer.decode(framed.ids.tolist()) == "Dawn broke"
    assert framed.ids.max() < tokenizer.n_pieces == 262
    np.testing.assert_array_equal(framed.ids[[0, -1]], tokenizer.encode(make_document(["<S>", "</S>"])).ids)
    with pytest.raises(ModelError, match="cannot read a pair"):
        tokenizer.frame(pieces.ids, pieces.ids)
    with pytest.raises(ModelError, match="no mask piece"):
        tokenizer.encode_with_masks("Dawn [MASK]")


@pytest.mark.filterwarnings("ignore:Of words longer than 48 bytes:polyseme.PolysemeWarning")
@given(texts)
def test_any_text_can_be_spelled(text: str) -> None:
    one = make_document(text)
    pieces = CharacterTokenizer().encode(one)
    assert len(pieces) == len(one.words)
    assert ((pieces.ids >= 1) & (pieces.ids < 262)).all()
    for word, spelled in zip(one.words, CharacterTokenizer().pieces(pieces.ids.tolist()), strict=True):
        assert spelled == word or len(word.encode()) > 48


def test_a_tokenizer_is_known_by_what_it_does() -> None:
    assert CharacterTokenizer().fingerprint == CharacterTokenizer(50).fingerprint != CharacterTokenizer(40).fingerprint
    assert pickle.loads(pickle.dumps(CharacterTokenizer(40))).max_characters == 40
    assert CharacterTokenizer().unit == "character"
    with pytest.raises(ModelError, match="at least 3 characters"):
        CharacterTokenizer(2)


def test_a_vocabulary_has_the_markers_and_each_word_once(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\n")
    assert read_vocabulary(path) == ["<S>", "</S>", "<UNK>", "the"]
    path.write_text("<UNK>\nthe\n")
    with pytest.raises(ModelError, match="lacks <S> and </S>"):
        read_vocabulary(path)
    path.write_text("<S>\n</S>\n<UNK>\nthe\nthe\n")
    with pytest.raises(ModelError, match="has 'the' more than once"):
        read_vocabulary(path)
    with pytest.raises(ModelError, match="cannot be read"):
        read_vocabulary(tmp_path / "none.txt")
