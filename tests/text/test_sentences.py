from __future__ import annotations

import pytest
from hypothesis import given

from polyseme.text.sentences import split_sentences
from text.samples import texts


def sentences(text: str, **options: bool) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, **options)]


@pytest.mark.parametrize(
    "expected",
    [
        ["One is here.", "Two is there!", "Is three?", "Yes."],
        ["Dr. Lee met Mrs. O'Hara at 3.30 p.m. on Monday.", "They left."],
        ["J. R. R. Tolkien wrote it.", "So did C. S. Lewis."],
        ["It costs 3.14 euros, i.e. 1,000.50 in all.", "Too much."],
        ['"Why?" she asked.', 'He said, "No."', "Then he left."],
        ["(See Fig. 2.)", "It grew."],
        ["He lives in the U.S.", "The house is old."],
        ["He serves in the U.S. Army."],
        ["Apples, pears, etc. are fruit.", "We sell apples, etc.", "They are good."],
        ["Well... maybe not.", "He waited...", "The door opened."],
        ["1. The first point.", "2. The second."],
        ["He was born in 1990.", "In 1991 he moved to no. 7."],
        ["It has room No. 5.", "5 people live there."],
        ["Really?!", "Yes!"],
        ["¿Qué tal?", "¡Bien!"],
        ["«Où ?» demanda-t-il.", "Rien."],
        ["See example.com for more.", "Or mail a.b@c.de."],
        ["यह पहला है।", "यह दूसरा है।"],
        ["هل هذا سؤال؟", "نعم."],
    ],
)
def test_sentences_with_blanks_between_them(expected):
    assert sentences(" ".join(expected)) == expected


def test_chinese_and_japanese_need_no_blanks():
    expected = ["今天天气很好。", "我们去公园吧！", "「好。」", "他说。"]
    assert sentences("".join(expected)) == expected
    assert sentences("これはペンです。 あれは本です。") == ["これはペンです。", "あれは本です。"]


def test_the_end_of_a_line_ends_a_sentence_unless_told_otherwise():
    text = "A heading\nand a line\r\n\n that goes on. Then more."
    assert sentences(text) == ["A heading", "and a line", "that goes on.", "Then more."]
    assert sentences(text, lines=False) == ["A heading\nand a line\r\n\n that goes on.", "Then more."]


def test_nothing_has_no_sentences():
    assert split_sentences("") == split_sentences(" \n\t ") == []


@given(texts)
def test_every_character_is_in_one_sentence(text):
    spans = split_sentences(text)
    places = [place for start, end in spans for place in range(start, end)]
    assert len(set(places)) == len(places)
    assert places == sorted(places)
    outside = set(range(len(text))) - set(places)
    assert all(text[place].isspace() for place in outside)
    assert all(text[start:end] and text[start:end] == text[start:end].strip() for start, end in spans)
