from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.models import WordLevel

from polyseme.errors import InputError, ModelError
from polyseme.text.documents import make_document
from polyseme.text.framing import FRAMES, Frame
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Document, Pieces
from text.samples import KINDS, texts, words

TokenizerOf = Callable[[str], PieceTokenizer]
FolderOf = Callable[[str], Path]


def check(made: Document, pieces: Pieces) -> None:
    """What holds of the pieces of any document."""
    n = len(pieces)
    assert pieces.ids.shape == (n,)
    assert pieces.spans.shape == (n, 2)
    assert pieces.words.shape == (len(made.words), 2)
    assert all(array.dtype == np.int64 for array in (pieces.ids, pieces.spans, pieces.words))
    assert ((pieces.spans[:, 0] >= 0) & (pieces.spans[:, 1] <= len(made.text))).all()
    assert (pieces.spans[:, 0] <= pieces.spans[:, 1]).all()
    for word, (first, last) in zip(made.words, pieces.words.tolist(), strict=True):
        assert 0 <= first <= last < n
        for start, end in (pieces.spans[first], pieces.spans[last]):
            assert start < word.end
            assert end > word.start


@given(text=texts)
def test_every_word_of_a_text_has_pieces_that_touch_it(tokenizer_of: TokenizerOf, text: str) -> None:
    made = make_document(text)
    for kind in KINDS:
        check(made, tokenizer_of(kind).encode(made))


@given(given_words=st.lists(words, max_size=6))
def test_every_given_word_has_pieces_that_touch_it(tokenizer_of: TokenizerOf, given_words: list[str]) -> None:
    made = make_document(given_words)
    for kind in KINDS:
        pieces = tokenizer_of(kind).encode(made)
        check(made, pieces)
        firsts, lasts = pieces.words.T
        assert (firsts[1:] > lasts[:-1]).all(), kind  # nothing is shared between given words


@given(many=st.lists(st.one_of(texts, st.lists(words, max_size=4)), max_size=5))
def test_many_documents_are_as_each_by_itself(tokenizer_of: TokenizerOf, many: list[str | list[str]]) -> None:
    documents = [make_document(text) for text in many]
    for tokenizer in map(tokenizer_of, KINDS):
        for one, together in zip(map(tokenizer.encode, documents), tokenizer.encode_many(documents), strict=True):
            assert np.array_equal(one.ids, together.ids)
            assert np.array_equal(one.spans, together.spans)
            assert np.array_equal(one.words, together.words)
            assert one.n_unknown == together.n_unknown


@pytest.mark.parametrize(
    ("kind", "text", "pieces"),
    [
        ("bert-base-cased", "This isn't too surprising.", "This isn ' t too surprising ."),
        ("bert-base-cased", "Encode me!", "En ##code me !"),
        ("bert-base-cased", "Snuffleupagus?", "S ##nu ##ffle ##up ##agu ##s ?"),
        ("bert-base-uncased", "Snuffleupagus?", "s ##nu ##ffle ##up ##ag ##us ?"),
        ("gpt2", "Hello world! Snuffleupagus?", "Hello Ġworld ! ĠSn uffle up agus ?"),
        ("albert", "this is a test, unbelievably so!", "▁this ▁is ▁a ▁test , ▁un be liev ably ▁so !"),
    ],
)
def test_published_pieces(tokenizer_of: TokenizerOf, kind: str, text: str, pieces: str) -> None:
    tokenizer = tokenizer_of(kind)
    assert tokenizer.pieces(tokenizer.encode(make_document(text)).ids) == pieces.split()


@pytest.mark.parametrize(
    ("kind", "text", "ids"),
    [
        ("gpt2", "Hello world! Snuffleupagus?", [15496, 995, 0, 5489, 18137, 929, 31111, 30]),
        ("roberta", "Hello world. the", [31414, 232, 4, 5]),
        ("openai-gpt", "Hello world, snuffleupagus?", [3570, 1276, 240, 4958, 919, 552, 1257, 601, 768, 257]),
    ],
)
def test_published_ids(tokenizer_of: TokenizerOf, kind: str, text: str, ids: list[int]) -> None:
    assert tokenizer_of(kind).encode(make_document(text)).ids.tolist() == ids


@pytest.mark.parametrize(
    ("kind", "n_pieces", "specials"),
    [
        ("bert-base-cased", 28_996, {"start": 101, "end": 102, "pad": 0, "unknown": 100, "mask": 103}),
        ("bert-base-uncased", 30_522, {"start": 101, "end": 102, "pad": 0, "unknown": 100, "mask": 103}),
        ("gpt2", 50_257, {"start": 50256, "end": 50256}),
        ("roberta", 50_265, {"start": 0, "end": 2, "pad": 1, "unknown": 3, "mask": 50264}),
        ("openai-gpt", 40_478, {"unknown": 0}),
        ("albert", 30_000, {"start": 2, "end": 3, "pad": 0, "unknown": 1, "mask": 4}),
    ],
)
def test_sizes_and_specials(tokenizer_of: TokenizerOf, kind: str, n_pieces: int, specials: dict[str, int]) -> None:
    tokenizer = tokenizer_of(kind)
    assert (tokenizer.n_pieces, dict(tokenizer.specials), tokenizer.unit) == (n_pieces, specials, "piece")


def test_given_words_are_read_as_they_stand_in_a_text(tokenizer: PieceTokenizer) -> None:
    text = "The naïve cat isn't here today"
    raw, given_pieces = tokenizer.encode(make_document(text)), tokenizer.encode(make_document(text.split()))
    assert np.array_equal(raw.ids, given_pieces.ids)
    assert np.array_equal(raw.spans, given_pieces.spans)


def test_one_piece_may_serve_two_words(tokenizer_of: TokenizerOf) -> None:
    pieces = tokenizer_of("bert-base-cased").encode(make_document("wo\x00rd"))
    assert (pieces.words.tolist(), pieces.n_unknown) == ([[0, 0], [0, 0]], 0)


@pytest.mark.parametrize("kind", ["bert-base-cased", "bert-base-uncased", "openai-gpt", "albert"])
@pytest.mark.parametrize("text", ["a \u200b b", ["a", "\u200b", "b"], ["a", "\ufeff\u200d", "b"]])
def test_a_word_that_vanishes_gets_the_unknown_piece(
    tokenizer_of: TokenizerOf, kind: str, text: str | list[str]
) -> None:
    tokenizer = tokenizer_of(kind)
    if kind == "albert" and "\ufeff\u200d" in text:
        text = ["a", "\u0301", "b"]  # SentencePiece makes a blank of joiners; accents are stripped
    pieces = tokenizer.encode(make_document(text))
    assert pieces.ids[1] == tokenizer.specials["unknown"]
    assert pieces.words.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert pieces.n_unknown == 1


def test_byte_level_pieces_without_an_unknown_one_stand_in_with_a_blank(folder_of: FolderOf) -> None:
    tokenizer = load_tokenizer(folder_of("gpt2"))
    tokenizer.backend.normalizer = normalizers.Replace("x", "")
    pieces = tokenizer.encode(make_document(["x", "a", "b"]))
    assert tokenizer.pieces(pieces.ids) == ["Ġ", "Ġa", "Ġb"]
    assert (pieces.words.tolist(), pieces.n_unknown) == ([[0, 0], [1, 1], [2, 2]], 1)


def test_a_vanished_word_with_nothing_to_stand_in_is_refused() -> None:
    backend = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    backend.normalizer = normalizers.Replace(Regex(" ?b"), "")
    with pytest.raises(InputError, match="'b' has no pieces"):
        PieceTokenizer(backend, Frame()).encode(make_document(["a", "b"]))


@pytest.mark.parametrize("literal", ["[MASK]", "[CLS]", "<s>", "</s>", "<pad>", "<mask>", "<unk>", "<|endoftext|>"])
def test_a_special_written_out_is_text(tokenizer: PieceTokenizer, literal: str) -> None:
    for made in (make_document(f"a {literal} b{literal}"), make_document(["a", literal, f"b{literal}"])):
        pieces = tokenizer.encode(made)
        special = {id for role, id in tokenizer.specials.items() if role != "unknown"}
        assert special.isdisjoint(pieces.ids.tolist())
        if tokenizer.specials.get("unknown") not in pieces.ids:  # ALBERT does not know < and >
            assert tokenizer.decode(pieces.ids).replace(" ", "").lower() == f"a{literal}b{literal}".lower()
        else:
            assert tokenizer.framing == FRAMES["albert"]


@pytest.mark.parametrize("kind", ["bert-base-cased", "roberta", "albert"])
def test_masks_are_read_where_they_are_asked_for(tokenizer_of: TokenizerOf, kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    own = tokenizer.framing.specials["mask"]
    text = f"Paris is the {own} of [MASK]."
    pieces = tokenizer.encode_with_masks(text)
    mask = tokenizer.specials["mask"]
    assert [pieces.ids[first] for first, _ in pieces.words] == [mask, mask]
    assert (pieces.ids == mask).sum() == 2
    assert [text[slice(*pieces.spans[first])] for first, _ in pieces.words] == [own, "[MASK]"]
    plain = tokenizer.encode_with_masks("Paris is here.")
    assert len(plain.words) == 0
    assert np.array_equal(plain.ids, tokenizer.encode(make_document("Paris is here.")).ids)


def test_a_model_without_a_mask_has_nothing_to_fill_in(tokenizer_of: TokenizerOf) -> None:
    with pytest.raises(ModelError, match="no mask piece"):
        tokenizer_of("gpt2").encode_with_masks("a [MASK]")


def test_pieces_go_back_to_text(tokenizer: PieceTokenizer) -> None:
    ids = tokenizer.encode(make_document("the cat sat on the mat")).ids
    assert tokenizer.decode(ids).strip() == "the cat sat on the mat"
    assert tokenizer.decode(tokenizer.frame(ids).ids).strip() == "the cat sat on the mat"
    assert tokenizer.pieces([10**6]) == ["<1000000>"]


def test_text_is_neither_shortened_nor_padded(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("bert-base-cased")
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=10)
    again = PieceTokenizer(backend, tokenizer.framing)
    assert [len(pieces) for pieces in again.encode_many([make_document("a " * 7), make_document("")])] == [7, 0]


@pytest.mark.parametrize("kind", ["bert-base-cased", "gpt2", "albert"])
def test_a_pickled_tokenizer_does_the_same(tokenizer_of: TokenizerOf, kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    again = pickle.loads(pickle.dumps(tokenizer))
    text = "Hello [MASK] <s> world"
    assert np.array_equal(again.encode(make_document(text)).ids, tokenizer.encode(make_document(text)).ids)
    assert again.fingerprint == tokenizer.fingerprint


def test_fingerprints_tell_tokenizers_apart(tokenizer_of: TokenizerOf, folder_of: FolderOf) -> None:
    assert len({tokenizer_of(kind).fingerprint for kind in KINDS}) == len(KINDS)
    same = load_tokenizer(folder_of("bert-base-cased"))
    assert same.fingerprint == tokenizer_of("bert-base-cased").fingerprint
    other = load_tokenizer(folder_of("bert-base-cased"), lowercase=True)
    assert other.fingerprint != same.fingerprint


def test_what_is_remembered_is_bounded_and_changes_nothing(
    tokenizer_of: TokenizerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyseme.text.cached_encoding.CACHE_SIZE", 8)
    monkeypatch.setattr("polyseme.text.cached_encoding.PARTS_PER_CALL", 5)
    tokenizer = tokenizer_of("bert-base-cased")
    fresh = PieceTokenizer(Tokenizer.from_str(tokenizer.backend.to_str()), tokenizer.framing)
    drawn = random.Random(0).choices(
        ["cat", "dogs", "unbelievable", "x" * 80, "naïve", "runs", "a", "b", "c", "d"], k=200
    )
    made = make_document(drawn)
    assert np.array_equal(fresh.encode(made).ids, tokenizer.encode(made).ids)
    assert len(fresh._encoder._cache) <= 8
