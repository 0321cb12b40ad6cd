"""Texts colored in a notebook: each word in its place, on its color, and never anything but text."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polyseme.plots.colors import ramp, to_hex
from polyseme.plots.html_page import with_ended_directions
from polyseme.plots.word_uses import Keyword
from polyseme.text.words import split_words
from polyseme.types import Word
from polyseme.word_senses.similarity_view import N_LEVELS, ColoredText, colored_texts

KNOWN = {"div", "style", "span", "b", "i", "p"}
ATTRIBUTES = {"class", "dir", "tabindex", "title"}
HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "</p></div><iframe src=//evil></iframe><!-- &lt;b&gt; \x00 \x1b \u2028 \u202e",
)
USE = Keyword("Dawn ", "broke", ".")


class Read(HTMLParser):
    """The elements of a piece of HTML with their attributes, and the text of each paragraph."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str | None, str | None]] = []
        self.paragraphs: list[str] = []
        self.text = ""
        self._in_paragraph = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.elements.append((tag, about))
        if tag == "p":
            self._in_paragraph = True
            self.paragraphs.append("")
        elif self._in_paragraph:
            self.words.append((tag, about.get("class"), about.get("title")))

    def handle_endtag(self, tag: str) -> None:
        self._in_paragraph &= tag != "p"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_paragraph:
            self.paragraphs[-1] += data

    @property
    def is_harmless(self) -> bool:
        return all(tag in KNOWN and about.keys() <= ATTRIBUTES for tag, about in self.elements)


def colored(text: str, cosines: list[float] | None = None, chosen: int | None = None) -> ColoredText:
    words = split_words(text)
    return ColoredText(text, words, [0.5] * len(words) if cosines is None else cosines, chosen)


def read(*texts: ColoredText, least: float = 0.0, use: Keyword = USE, more: str = "", note: str = "") -> Read:
    return Read(colored_texts(texts, least=least, use=use, more=more, note=note))


def test_words_have_the_color_of_their_cosine_and_say_it() -> None:
    found = read(colored("Dawn broke.", [0.5, 1.0, 0.0], chosen=1))
    assert found.paragraphs == ["Dawn broke."]
    assert found.words == [("span", "s12", "0.50"), ("b", f"s{N_LEVELS}", "1.00"), ("span", "s0", "0.00")]


def test_the_scale_runs_from_the_least_to_one() -> None:
    found = read(colored("Dawn broke.", [0.6, 1.0, 0.2]), least=0.2)
    assert [level for _, level, _ in found.words] == ["s12", f"s{N_LEVELS}", "s0"]
    assert "0.20" in found.text
    assert "1.00" in found.text


def test_cosines_a_little_beyond_the_scale_have_its_ends() -> None:
    found = read(colored("Dawn broke.", [1 + 1e-9, -1e-9, 0.5]))
    assert [(level, said) for _, level, said in found.words[:2]] == [(f"s{N_LEVELS}", "1.00"), ("s0", "0.00")]


def test_a_word_without_a_cosine_has_no_color_and_says_so() -> None:
    [_, (_, level, said), _] = read(colored("Dawn broke.", [0.5, math.nan, 0.5])).words
    assert level is None
    assert said is not None
    assert "no cosine" in said


def test_much_is_dark_on_a_light_page_and_bright_on_a_dark_one() -> None:
    html = colored_texts([], least=0.0, use=USE)
    light, dark, light_host, dark_host = re.findall(r"\.polyseme-view { (--b0.*?) }", html)
    assert (light_host, dark_host) == (light, dark)
    little, much = to_hex(ramp(0)), to_hex(ramp(1))
    assert f"--b0: {little};" in light
    assert f"--b{N_LEVELS}: {much};" in light
    assert f"--b0: {much};" in dark
    assert f"--b{N_LEVELS}: {little};" in dark


def test_a_stretch_of_a_text_begins_with_its_first_word() -> None:
    text = "Dawn broke. The vase broke."
    found = read(ColoredText(text, split_words(text)[3:], [0.5] * 4))
    assert found.paragraphs == ["The vase broke."]


def test_words_that_share_a_stretch_stand_one_after_the_other() -> None:
    words = [Word("vámo", 0, 7), Word("nos", 0, 7), Word("al", 8, 10)]
    assert read(ColoredText("vámonos al", words, [0.1, 0.2, 0.3])).paragraphs == ["vámonos al"]


def test_what_is_said_besides_is_there() -> None:
    found = read(use=Keyword("Dawn ", "broke", "."), more=", one of 2", note="9 of 10 words are shown.")
    assert "cosine to “Dawn broke.”, one of 2" in found.text
    assert "9 of 10 words are shown." in found.text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_only_text(hostile: str) -> None:
    """Wherever it stands, and also if all of it is one word."""
    given = [colored(hostile, chosen=0), ColoredText(hostile, [Word(hostile, 0, len(hostile))], [0.5])]
    found = read(*given, use=Keyword(hostile, hostile, hostile), more=hostile, note=hostile)
    assert found.is_harmless
    shown = with_ended_directions(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f]", "\ufffd", hostile))
    assert found.paragraphs == [shown.strip(), shown]
    assert found.text.count(shown) >= 6


@given(st.lists(st.text(max_size=40), max_size=4))
@example(["\u202eoff \u2067on\u2069.", "\u202c"])
@example(["a\rb"])
def test_any_text_comes_out_as_it_went_in(texts: list[str]) -> None:
    found = read(*map(colored, texts))
    assert found.is_harmless
    assert found.words == [("span", "s12", "0.50")] * sum(len(split_words(text)) for text in texts)
    for text, paragraph in zip(texts, found.paragraphs, strict=True):
        assert _without_ends(paragraph).split() == _without_ends(_between(text)).split()


def _without_ends(text: str) -> str:
    """Without ends of marks of direction: a page adds those that a word leaves out."""
    return text.translate({0x202C: None, 0x2069: None})


def _between(text: str) -> str:
    """From the first word of a text to its last; what a page cannot hold is replaced."""
    words = split_words(text)
    inner = text[words[0].start : words[-1].end] if words else ""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]", "\ufffd", inner)


def test_nothing_is_fetched() -> None:
    html = colored_texts([colored("See https://example.com.")], least=0.0, use=USE)
    assert not re.search(r"url\(|@import|src=|href=", html)
