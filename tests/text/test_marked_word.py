"""Brackets mark one word of a text; the text's own brackets are escaped; masks are left alone."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from polyseme.errors import InputError
from polyseme.text.marked_word import MarkedText, marked_use, read_marks
from polyseme.text.words import split_words
from text.samples import texts, write_marks


@pytest.mark.parametrize(
    ("given", "text", "word"),
    [
        ("A [crane] caught a fish.", "A crane caught a fish.", "crane"),
        ("[Dawn] broke", "Dawn broke", "Dawn"),
        ("Dawn [broke]", "Dawn broke", "broke"),
        (r"\[sic\] he [broke] it \]", "[sic] he broke it ]", "broke"),
        ("A [MASK] and a [crane].", "A [MASK] and a crane.", "crane"),
        ("[[MASK]] fell", "[MASK] fell", "[MASK]"),
        (r"a\b\\c [d]", r"a\b\\c d", "d"),
        (r"one \\[two]", "one \\two", "two"),
        (r"one \\\[two\] [three]", r"one \[two] three", "three"),
        (r"\[MASK\] [x]", "[MASK] x", "x"),
        ("in [New York] today", "in New York today", "New York"),
        ("in [ New York ]today", "in  New York today", "New York"),
        ("[他]去了", "他去了", "他"),
    ],
)
def test_one_stretch_of_words_is_marked(given: str, text: str, word: str) -> None:
    found = marked_use(given)
    assert found.text == text
    [use] = found.words
    assert (use, text[use.start : use.end]) == (word, word)


def test_the_mask_of_another_model_is_left_alone_where_it_has_brackets() -> None:
    assert read_marks("A [M] and a [crane]", masks=("[MASK]", "[M]")) == MarkedText("A [M] and a crane", 12, 17)
    assert read_marks("A <mask> and a [crane]", masks=("[MASK]", "<mask>")).text == "A <mask> and a crane"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("A crane.", "No word is marked in 'A crane.'"),
        ("", "No word is marked in ''"),
        ("A [MASK].", "a mask marks nothing"),
        (r"A \[crane\].", "No word is marked"),
        ("A [crane] and a [crow].", "second '\\[' is at character 16"),
        ("A [[crane]].", "second '\\[' is at character 3"),
        ("A crane].", "']' at character 7 of .* closes no bracket"),
        ("A [crane]].", "']' at character 9"),
        ("A [crane.", "'\\[' at character 2 of .* is not closed"),
        ("A [] crane.", "nothing between them"),
        ("A [ ] crane.", "nothing between them"),
        ("A c[rane] flew.", "begins inside a word: at character 3 .* within 'crane' \\(2 to 7\\).*\\[crane\\]"),
        ("A [cran]e flew.", "ends inside a word: at character 6"),
        ("I [did]n't.", 'within "didn\'t"'),
    ],
)
def test_what_marks_no_word_is_refused_with_its_place(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        marked_use(given)


def test_a_message_shows_the_beginning_of_a_long_text() -> None:
    with pytest.raises(InputError) as error:
        read_marks("long " * 1000)
    assert len(str(error.value)) < 300


@given(st.one_of(texts, st.text(alphabet="a \\[]MASK", max_size=20)), st.data())
def test_marks_are_read_back_as_they_were_written(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assume(text[start:end] != "MASK")  # [MASK] is a mask
    assert read_marks(write_marks(MarkedText(text, start, end))) == (text, start, end)


@given(st.text(alphabet="ab \\[]", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = marked_use(text)
    except InputError:
        return
    [use] = found.words
    assert found.text[use.start : use.end] == use


@given(texts.filter(lambda text: bool(split_words(text))), st.data())
def test_every_word_of_a_text_can_be_marked(text: str, data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(split_words(text)))
    assume(word != "MASK")
    [use] = marked_use(write_marks(MarkedText(text, word.start, word.end))).words
    assert (use, use.start, use.end) == (word, word.start, word.end)
