"""Pages of two corpora and of concordances: both colors, all senses and lines; a hostile text is only text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from plots.test_pages import HOSTILE, Page, check_policy
from polyseme.plots.comparison_pages import CORPUS_COLORS, ComparedWord, NamedNumbers, SharedSense, word_page
from polyseme.plots.concordance_page import PageLine, concordance_page
from polyseme.plots.word_differences_page import ListedWord, words_page
from polyseme.plots.word_uses import Use


def compared(text: str = "x", word: str = "crane") -> ComparedWord:
    uses = [(text, Use(f"{text} {word} {number}", len(text) + 1, len(text) + 1 + len(word))) for number in range(6)]
    return ComparedWord(
        word=word,
        headline=text,
        corpora=(text, f"b {text}"),
        n_uses=(2, 4),
        measures=[NamedNumbers("APD", 0.5, None, None, 0.4, 0.6), NamedNumbers(text, -0.00001, 0.1, 0.0001)],
        notes=[text],
        uses=uses,
        corpus=[1, 1, 2, 2, 2, 2],
        senses=[1, 2, 2, 2, 2, 1],
        points=np.random.default_rng(0).standard_normal((6, 2)),
        map="PCA",
        shared_senses=[
            SharedSense(
                sense=1, neighbors=[text], shares=(0.5, 0.25), n_uses=(1, 1), verdict=text, lines=(uses[:1], uses[5:])
            ),
            SharedSense(sense=2, neighbors=[], shares=(0.5, 0.75), n_uses=(1, 3), verdict="", lines=(uses[1:2], [])),
        ],
        difference=0.3,
        draws=[0.0, 0.1, 0.2],
    )


def listed(text: str = "x") -> str:
    use = (text, Use(f"a {text} b", 0, 1))
    words = [
        ListedWord(word=text, counts=(30, 400), effect=0.2, measures=[0.5, 0.2, None], p=0.0001, p_adjusted=0.01,
                   differs=True, low=0.1, high=0.3, lines=([use, use], [use])),
        ListedWord(word="law", counts=(20, 21), effect=-0.1, measures=[0.5, 0.2, None], p=None, p_adjusted=None,
                   differs=False),
    ]  # fmt: skip
    return words_page(corpora=(text, "b"), headline=text, notes=[text], words=words, top=1)


def lines(text: str = "x") -> str:
    shown = [PageLine(text, Use(f"{text} a {text}", 0, len(text)).keyword(90), None, 2)] * 2
    return concordance_page(text, text, shown, order="sense", notes=[text])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_text(text: str) -> None:
    for plain, hostile in (
        (word_page(compared()), word_page(compared(text, text[:9]))),
        (listed(), listed(text)),
        (lines(), lines(text)),
    ):
        assert [tag for tag, _ in check_policy(hostile).elements] == [tag for tag, _ in check_policy(plain).elements]
        assert Page(hostile).scripts.get("code") == Page(plain).scripts.get("code")


def test_a_word_has_points_in_the_colors_of_both_corpora_and_its_senses() -> None:
    page = check_policy(word_page(compared()))
    circles = [attributes for tag, attributes in page.elements if tag == "circle"]
    colors = [str(each["style"]).partition(";")[0] for each in circles]
    assert [colors.count(f"--corpus:{color}") for color in CORPUS_COLORS] == [2, 4]
    spoken = json.loads(page.scripts["application/json"])
    by_use = {int(str(each["data-use"])): each for each in circles}
    assert all(str(spoken["uses"][at][0]) == each["data-corpus"] for at, each in by_use.items())
    shown = "".join(page.text)
    assert "50%, 1" in shown
    assert "75%, 3" in shown
    assert "0.400 – 0.600" in shown
    assert "0.000" in shown
    assert "<.001" in shown
    assert "after 3 exchanges of texts" in shown


def test_listed_words_have_lines_of_both_corpora_and_others_are_only_points() -> None:
    page = Page(listed("plane"))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("circle") == 2
    assert tags.count("details") == 1
    assert tags.count("tr") == 3
    assert "The 1 words that differ most" in "".join(page.text)


def test_one_word_makes_a_page_without_a_chart() -> None:
    word = ListedWord(word="a", counts=(2, 2), effect=0.0, measures=[None] * 3, p=None, p_adjusted=None, differs=False)
    page = Page(words_page(corpora=("a", "b"), headline="", notes=[], words=[word], top=5))
    assert not [tag for tag, _ in page.elements if tag in ("circle", "svg")]
