"""Pictures of how alike the uses of words are, on paper and in the terminal."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from plots.figure_bounds import check_text_inside
from polyseme.errors import OptionError
from polyseme.plots import SimilarityTable, Use, WordUses, figure_bytes, similarity_figure, similarity_tables
from polyseme.plots.colors import ramp, to_hex
from polyseme.plots.word_uses import format_cosine, lowest

SVG = "{http://www.w3.org/2000/svg}"


def use(text: str, word: str) -> Use:
    start = text.index(word)
    return Use(text, start, start + len(word))


def word_uses(word: str, texts: list[str], in_context: list[list[float]]) -> WordUses:
    alone = np.ones((len(texts), len(texts)))
    return WordUses(word=word, uses=[use(text, word) for text in texts], in_context=np.array(in_context), alone=alone)


WORDS = [
    word_uses(
        "bank",
        ["She went to the bank.", "The bank of the river", "a bank & a $5 note <b>, $6 more"],
        [[1, 0.34, 0.81], [0.34, 1, 0.42], [0.81, 0.42, 1]],
    ),
    word_uses("broke", ["The vase broke.", "I was broke."], [[1, 0.27], [0.27, 1]]),
]


# --- sentences -------------------------------------------------------------------------------------------------------


def test_sentences_are_cut_between_words_and_marked() -> None:
    long = use("one two three four\n five six seven", "four")
    assert long.keyword(100) == ("one two three ", "four", " five six seven")
    assert long.keyword(10) == ("… three ", "four", " five six …")
    assert use("他昨天去了银行存钱", "银行").keyword(2) == ("…去了", "银行", "存钱")


@given(st.text(min_size=1, max_size=60), st.data(), st.integers(1, 20))
def test_a_word_stays_whole_and_its_context_short(text: str, data: st.DataObject, context: int) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    before, word, after = Use(text, start, end).keyword(context)
    assert word.split() == text[start:end].split()
    assert max(len(before), len(after)) <= context + 1
    assert text[:start].split() == before.split() or before.startswith("…")
    assert text[end:].split() == after.split() or after.endswith("…")


@pytest.mark.parametrize(("start", "end"), [(3, 3), (-1, 2), (0, 9), (4, 2)])
def test_a_use_must_stand_in_its_text(start: int, end: int) -> None:
    with pytest.raises(OptionError, match="stretch of its text"):
        Use("a text", start, end)


def test_cosines_must_fit_the_uses() -> None:
    with pytest.raises(OptionError, match=r"'alone' cosines of 'bank'.*Got shape \(3, 2\) for 2 uses"):
        WordUses(word="bank", uses=[use("a bank", "bank")] * 2, in_context=np.ones((2, 2)), alone=np.ones((3, 2)))
    with pytest.raises(OptionError, match="there must be uses"):
        WordUses(word="bank", uses=[], in_context=np.ones((0, 0)), alone=np.ones((0, 0)))


def test_the_scale_begins_at_the_tenth_below_the_lowest_cosine() -> None:
    assert lowest(WORDS) == 0.2
    assert lowest([WordUses(word="a", uses=[use("a", "a")], in_context=np.ones((1, 1)), alone=np.ones((1, 1)))]) == 0.9


def test_cosines_are_spelled_without_a_minus_before_nothing() -> None:
    assert [format_cosine(cosine) for cosine in (1, 0.876, -0.001, -0.25)] == ["1.00", "0.88", "0.00", "-0.25"]


# --- the figure ------------------------------------------------------------------------------------------------------


def svg_texts(svg: bytes) -> list[tuple[str, str]]:
    """Each text of a picture, with its style."""
    root = ElementTree.fromstring(svg)
    return [("".join(text.itertext()), text.get("style", "")) for text in root.iter(f"{SVG}text")]


def test_svg_keeps_text_as_text_with_the_word_in_bold() -> None:
    svg = figure_bytes(similarity_figure(WORDS, title="Uses"), "svg")
    texts = svg_texts(svg)
    plain = [text for text, _ in texts]
    assert "Uses" in plain
    assert plain.count("in context") == plain.count("layer 0: the word alone, no context") == 2
    assert "She went to the" in plain
    assert "& a $5 note <b>, $6 more" in plain
    bold = [text for text, style in texts if re.search(r"\b(bold|700)\b", style)]
    assert sorted(bold) == sorted(["Uses", "bank", "bank", "bank", "bank", "broke", "broke", "broke"])


def test_every_cosine_stands_in_its_cell() -> None:
    texts = [text for text, _ in svg_texts(figure_bytes(similarity_figure(WORDS), "svg"))]
    cosines = [format_cosine(c) for one in WORDS for map_ in (one.in_context, one.alone) for c in map_.ravel()]
    assert sorted(text for text in texts if re.fullmatch(r"\d\.\d\d", text)) == sorted(cosines)


def test_both_maps_share_one_scale_of_colors() -> None:
    svg = figure_bytes(similarity_figure(WORDS), "svg").decode()
    n_certain = sum(int(np.sum(map_ == 1)) for one in WORDS for map_ in (one.in_context, one.alone))
    assert svg.count(f"fill: {to_hex(ramp(1))}; stroke: #ffffff") == n_certain


def test_png_is_drawn_at_twice_the_size() -> None:
    figure = similarity_figure(WORDS)
    once, twice = (figure_bytes(figure, scale=scale) for scale in (1, 2))
    assert once.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", once[16:24])
    wide, high = struct.unpack(">II", twice[16:24])
    assert abs(wide - 2 * width) <= 2
    assert abs(high - 2 * height) <= 2


def test_the_same_figure_gives_the_same_bytes() -> None:
    for format in ("png", "svg"):
        one, two = (figure_bytes(similarity_figure(WORDS), format) for _ in range(2))
        assert one == two


def test_nothing_reaches_past_the_edge_of_the_page() -> None:
    figure = similarity_figure(WORDS, title="Uses")
    check_text_inside(figure)


def test_no_words_and_unknown_formats_are_refused() -> None:
    with pytest.raises(OptionError, match="at least one word"):
        similarity_figure([])
    with pytest.raises(OptionError, match="must be png or svg"):
        figure_bytes(similarity_figure(WORDS), "gif")  # type: ignore[arg-type]


def test_the_state_of_matplotlib_is_left_alone() -> None:
    code = "import sys, polyseme.plots; print({'matplotlib', 'torch'} & set(sys.modules))"
    assert _python(code) == "set()"
    code = """
import sys
import numpy as np
from polyseme.plots import Use, WordUses, figure_bytes, similarity_figure
one = np.ones((1, 1))
figure_bytes(similarity_figure([WordUses(word="a", uses=[Use("a", 0, 1)], in_context=one, alone=one)]))
print("matplotlib.pyplot" in sys.modules)
"""
    assert _python(code) == "False"


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# --- the terminal ----------------------------------------------------------------------------------------------------


def printed(width: int, *, colors: bool = False) -> str:
    console = Console(
        width=width, color_system="truecolor" if colors else None, force_terminal=colors, legacy_windows=False
    )
    with console.capture() as capture:
        console.print(similarity_tables(WORDS))
    return capture.get()


def test_a_wide_terminal_shows_both_maps_side_by_side() -> None:
    lines = printed(140).splitlines()
    assert [line for line in lines if "in context" in line] == [line for line in lines if "layer 0" in line]
    assert any(
        line.split() == ["She", "went", "to", "the", "bank.", "1", "1.00", "0.34", "0.81", "1", "1.00", "1.00", "1.00"]
        for line in lines
    )


def test_a_narrow_terminal_shows_one_map_below_the_other() -> None:
    lines = printed(80).splitlines()
    assert not any("in context" in line and "layer 0" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert sum("She went to the bank." in line for line in lines) == 1


def test_words_stand_in_one_column() -> None:
    rows = [line for line in printed(140).splitlines() if re.search(r"bank.*1\.00", line)]
    assert len({row.index("bank") for row in rows}) == 1


def test_cells_have_the_colors_of_the_figure() -> None:
    red, green, blue = (int(to_hex(ramp(1))[at : at + 2], 16) for at in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}m 1.00 " in printed(140, colors=True)


def test_without_colors_only_text_is_printed() -> None:
    assert "\x1b" not in printed(100)


@pytest.mark.parametrize("width", [20, 40, 60, 100, 200])
def test_any_width_can_be_printed(width: int) -> None:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(SimilarityTable(WORDS[0]))
    assert "1.00" in capture.get()
