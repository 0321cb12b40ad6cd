"""Cutting raw text must not change its pieces: tried for each kind of tokenizer that is cut."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordLevel

from polyseme.text.cached_encoding import CachedEncoder
from polyseme.text.cut_points import can_be_cut, cut_places
from polyseme.text.documents import make_document
from polyseme.text.tokenizer import PieceTokenizer
from text.samples import KINDS, NASTY, texts

TokenizerOf = Callable[[str], PieceTokenizer]

spaced = st.lists(
    st.one_of(
        st.sampled_from((" ", " ", " ", "  ", "\n", "'s", "a", "The", "cat", ".", "``", "7")), st.sampled_from(NASTY)
    )
).map("".join)


def whole(tokenizer: PieceTokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    if tokenizer.sentencepiece:
        ids, edges = tokenizer.sentencepiece.encode(text)[:2]
        return list(ids), list(zip(edges[::2], edges[1::2], strict=True))
    encoding = tokenizer.backend.encode(text, add_special_tokens=False)
    return encoding.ids, encoding.offsets


def in_parts(tokenizer: PieceTokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    encoder = CachedEncoder(tokenizer.backend, tokenizer.specials, tokenizer.sentencepiece)
    parts, starts = encoder.parts(make_document(text))
    assert "".join(parts) == text
    read = encoder.encode(parts, np.array([len(parts)]))
    spans = read.spans + np.repeat(starts, read.counts)[:, None]
    return read.ids.tolist(), [(start, end) for start, end in spans.tolist()]


@given(text=st.one_of(texts, spaced))
def test_parts_have_the_pieces_of_the_whole(tokenizer_of: TokenizerOf, text: str) -> None:
    if "<" in text or "[" in text:  # written-out specials, which the bare library takes for such in unigram models
        text = text.replace("<", "x").replace("[", "x")
    for kind in KINDS:
        tokenizer = tokenizer_of(kind)
        assert can_be_cut(tokenizer.backend), kind
        assert in_parts(tokenizer, text) == whole(tokenizer, text), kind


def test_parts_of_real_text_have_the_pieces_of_the_whole(
    tokenizer: PieceTokenizer, real_text: Callable[[str, int], str]
) -> None:
    text = real_text("web-00", 100_000)
    assert in_parts(tokenizer, text) == whole(tokenizer, text)


def backend_of(normalizer: object, pre_tokenizer: object) -> Tokenizer:
    backend = Tokenizer(BPE())
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    return backend


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "expected"),
    [
        (None, None, False),
        (None, pre_tokenizers.ByteLevel(add_prefix_space=False), True),
        (None, pre_tokenizers.ByteLevel(add_prefix_space=True), True),
        (None, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), False),
        (normalizers.Strip(), pre_tokenizers.ByteLevel(add_prefix_space=False), False),
        (normalizers.Strip(), pre_tokenizers.ByteLevel(add_prefix_space=True), True),
        (normalizers.Prepend("▁"), pre_tokenizers.Whitespace(), False),
        (normalizers.Replace(Regex(r"\s+"), " "), pre_tokenizers.Whitespace(), False),
        (normalizers.Replace("New York", "NY"), pre_tokenizers.Whitespace(), False),
        (normalizers.Replace("``", '"'), pre_tokenizers.Whitespace(), True),
        (normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="first"), True),
        (normalizers.Strip(), pre_tokenizers.Metaspace(prepend_scheme="first"), False),
        (normalizers.Strip(), pre_tokenizers.Metaspace(prepend_scheme="always"), True),
        (None, pre_tokenizers.Metaspace(split=False), False),
        (None, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), True),
        (None, pre_tokenizers.Split(" ", "isolated"), False),
    ],
)
def test_only_tokenizers_that_allow_it_are_cut(normalizer: object, pre_tokenizer: object, expected: bool) -> None:
    assert can_be_cut(backend_of(normalizer, pre_tokenizer)) is expected


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        (AddedToken("New York", special=False), False),
        (AddedToken("x", special=False, lstrip=True), False),
        (AddedToken("x", special=False), True),
        (AddedToken("x y", special=True), True),
    ],
)
def test_added_words_that_hold_on_to_blanks_forbid_it(added: AddedToken, expected: bool) -> None:
    backend = Tokenizer(WordLevel({"a": 0}))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_tokens([added]) if not added.special else backend.add_special_tokens([added])
    assert can_be_cut(backend) is expected


def test_no_cut_is_beside_a_letter_that_normalizing_turns_into_a_blank() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if any(" " in unicodedata.normalize(form, letter) for form in ("NFKD", "NFKC")):
            assert cut_places(f"a {letter} b") == []


def test_a_part_begins_with_a_single_blank() -> None:
    assert cut_places("one two,  three. four é") == [3, 16, 21]
    assert cut_places("a\u0301 b") == []
    assert cut_places(" a ") == []
