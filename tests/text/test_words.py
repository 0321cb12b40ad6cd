from __future__ import annotations

import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError, PolysemeWarning
from polyseme.text.documents import make_document
from polyseme.text.words import _SIMPLE, _general_pattern, split_words
from text.samples import texts, words

SIMPLE = st.text(
    st.one_of(
        st.characters(max_codepoint=0x2FF, exclude_characters="\xad"),
        st.sampled_from("'.,;:’‘·_-1a \n"),
        st.characters(min_codepoint=0x370, max_codepoint=0x482),
        st.characters(min_codepoint=0x2010, max_codepoint=0x2027),
        st.characters(min_codepoint=0x20A0, max_codepoint=0x20BF),
    )
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("This isn't too surprising.", ["This", "isn't", "too", "surprising", "."]),
        ("the U.S. paid $1,000.50 (3.14%)", ["the", "U.S", ".", "paid", "$", "1,000.50", "(", "3.14", "%", ")"]),
        ("l’été d'Anna", ["l’été", "d'Anna"]),
        ("'quoted' dogs' a.1 1.a", ["'", "quoted", "'", "dogs", "'", "a", ".", "1", "1", ".", "a"]),
        ("x_y __init__", ["x_y", "__init__"]),
        ("well-known 10:30 wait... no--yes", ["well", "-", "known", "10", ":", "30", "wait", "...", "no", "--", "yes"]),
        ("``What?!'' he said……((!!! ==", ["``", "What", "?", "!", "''", "he", "said", "……", "(", "(", "!!!", "=="]),
        ("example.com a@b.org", ["example.com", "a", "@", "b.org"]),
        ("e\u0301te\u0301's co\u00adop a\u200db", ["e\u0301te\u0301's", "co\u00adop", "a\u200db"]),
        ("हिन्दी में नमस्ते।", ["हिन्दी", "में", "नमस्ते", "।"]),
        ("漢字かなカナ語", ["漢", "字", "かなカナ", "語"]),
        ("日本.jp foo.日", ["日", "本", ".", "jp", "foo", ".", "日"]),
        ("ภาษาไทย3.5บาทABC", ["ภาษาไทย", "3.5", "บาท", "ABC"]),
        ("ខ្ញុំ\u200bទៅ ພາສາລາວ ဗမာစာ", ["ខ្ញុំ\u200b", "ទៅ", "ພາສາລາວ", "ဗမာစာ"]),
        ("צה\"ל \u200fשלום", ['צה"ל', "\u200fשלום"]),
        ("👩‍👩‍👧‍👦👍🏽🇩🇪🇫🇷 1️⃣#️⃣ 🙂‍↔️ ❤️‍🔥", ["👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "🇫🇷", "1️⃣", "#️⃣", "🙂‍↔️", "❤️‍🔥"]),
        ("\ufeffHello \u0301 \u200b x", ["\ufeffHello", "\u0301", "\u200b", "x"]),
        ("a\x00b\x7fc\x85d", ["a", "b", "c", "d"]),
        ("", []),
        (" \t\n\u3000", []),
    ],
)  # fmt: skip
def test_words_of_a_text(text: str, expected: list[str]) -> None:
    assert split_words(text) == expected


@given(texts)
def test_every_character_is_in_exactly_one_word_unless_it_is_space_or_control(text: str) -> None:
    owners = [0] * len(text)
    for word in split_words(text):
        assert text[word.start : word.end] == word
        for place in range(word.start, word.end):
            owners[place] += 1
    expected = [int(not char.isspace() and unicodedata.category(char) != "Cc") for char in text]
    assert owners == expected


@given(texts)
def test_words_are_in_order_and_do_not_depend_on_other_lines(text: str) -> None:
    found = split_words(text)
    assert [(word.start, word.end) for word in found] == sorted((word.start, word.end) for word in found)
    assert split_words(text + "\nplain words") == [*found, "plain", "words"]
    assert split_words("漢\n" + text) == ["漢", *found]


@given(SIMPLE)
def test_the_quick_pattern_gives_what_the_full_one_gives(text: str) -> None:
    quick, full = ([match.span() for match in pattern.finditer(text)] for pattern in (_SIMPLE, _general_pattern()))
    assert quick == full


@given(st.lists(words, max_size=8))
def test_given_words_are_kept(given_words: list[str]) -> None:
    made = make_document(given_words, id="7", fields={"label": 1})
    assert list(made.words) == given_words
    assert [made.text[word.start : word.end] for word in made.words] == given_words
    assert made.text == " ".join(given_words)
    assert (made.pretokenized, made.id, made.fields) == (True, "7", {"label": 1})


def test_raw_text_is_not_given() -> None:
    made = make_document("New York")
    assert (list(made.words), made.pretokenized, made.fields) == (["New", "York"], False, {})


@pytest.mark.parametrize(
    ("given_words", "message"), [(["a", ""], "1 .*empty"), (["a", "b", " \t"], "2 .*blank"), ([None], "0 .*NoneType")]
)
def test_what_is_no_word_is_refused_with_its_position(given_words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_document(given_words)


@pytest.mark.parametrize("text", ["a\ud800b", ["a\ud800b", "\udfff"]])
def test_lone_surrogates_are_replaced_and_said_once(text: str | list[str]) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = make_document(text)
    assert "\ufffd" in made.text
    assert not any("\ud800" <= char <= "\udfff" for char in made.text)
    assert [warning.category for warning in said] == [PolysemeWarning]
