"""Pages and figures of uses: whole in themselves, and whatever a text says, it is only text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plots.figure_bounds import check_text_inside
from polyseme.errors import OptionError
from polyseme.plots import figure_bytes
from polyseme.plots import sense_plots as sense_map_module
from polyseme.plots.colors import group_color
from polyseme.plots.html_page import data, escaped, page
from polyseme.plots.sense_plots import SenseLabel, SenseMap, UseList, senses_figure, similar_page
from polyseme.plots.senses_page import ROWS, senses_page
from polyseme.plots.word_uses import Use
from text.samples import texts

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "<!-- ]]> --> <base href=//evil> &lt;b&gt; \u2028 \x00 \x1b",
    "</style><style>*{display:none}</style>",
)


class Page(HTMLParser):
    """The elements of a page, its text, and what its scripts hold."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._script = (dict(attrs).get("type") or "code") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.text.append(data)

    def policy(self) -> str:
        return next(str(each["content"]) for tag, each in self.elements if each.get("http-equiv"))


def shown(sentences: list[str], n_senses: int = 2, word: str = "crane") -> SenseMap:
    uses = [Use(f"{text} {word} {text}", len(text) + 1, len(text) + 1 + len(word)) for text in sentences]
    senses = [number % n_senses + 1 for number in range(len(uses))]
    rng = np.random.default_rng(0)
    return SenseMap(
        word=word,
        headline=f"{n_senses} senses",
        explanation="Because.",
        map="pca",
        source="texts.txt",
        uses=uses,
        senses=senses,
        points=rng.standard_normal((len(uses), 2)),
        examples=[[at for at, each in enumerate(senses) if each == sense] for sense in range(1, n_senses + 1)],
    )


def check_policy(html: str) -> Page:
    """A page of our own making: its script alone may run, and nothing is fetched."""
    found = Page(html)
    code = found.scripts.get("code")
    allowed = (
        "'none'" if code is None else f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
    )
    assert found.policy().startswith(f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed};")
    assert [each for _, attributes in found.elements for each in attributes if each.startswith("on")] == []
    assert not [each for _, attributes in found.elements for each in attributes if each in ("src", "href")]
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_text(text: str) -> None:
    plain = check_policy(senses_page(shown(["a b", "c d", "e f"]), ["1", "2", "3"]))
    found = check_policy(senses_page(shown([text, "c d", text], word=text[:9]), [text, "2", "3"]))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert found.scripts["code"] == plain.scripts["code"]
    spoken = json.loads(found.scripts["application/json"])["uses"]
    assert spoken[0][2:] == [text[:9], f" {' '.join(text.split())}", text]


@given(st.lists(texts, min_size=1, max_size=5), texts)
def test_any_text_makes_a_page(sentences: list[str], id: str) -> None:
    plain = check_policy(senses_page(shown(["x"] * len(sentences), 1), ["1"] * len(sentences)))
    found = check_policy(senses_page(shown(sentences, 1), [id] * len(sentences)))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    near = similar_page(Use("a crane", 2, 7), [UseList(id, [(id, use) for use in shown(sentences, 1).uses])], [id])
    assert [tag for tag, _ in check_policy(near).elements].count("tr") == len(sentences)


def test_a_page_shows_every_sense_with_its_share_and_examples() -> None:
    found = Page(senses_page(shown([f"sentence {number}" for number in range(10)], 3), [str(n) for n in range(10)]))
    said = "".join(found.text)
    assert "Sense 1 4 uses, 40%" in said
    assert "Sense 3 3 uses, 30%" in said
    assert "sentence 9 crane sentence 9" in said
    circles = [each for tag, each in found.elements if tag == "circle"]
    assert len(circles) == 10
    assert {each["fill"] for each in circles} == {group_color(number) for number in range(3)}
    assert all(0 <= float(str(each[axis])) <= 640 for each in circles for axis in ("cx", "cy"))


def test_a_page_has_every_use_page_by_page_and_what_senses_are_called() -> None:
    many = shown([f"sentence {number}" for number in range(30)], 2)
    labels = [SenseLabel("bird <b>", "crane:1", ["Near it: fish."]), SenseLabel("", "crane:2", [])]
    members = [[*range(28, -1, -2)], [*range(1, 30, 2)]]
    full = dataclasses.replace(many, labels=labels, members=members, notes=["A note."])
    found = check_policy(senses_page(full, [f"a.txt:{number}.1" for number in range(30)]))
    said = " ".join("".join(found.text).split())
    assert "Sense 1: bird <b> 15 uses, 50% · crane:1Near it: fish.a.txt:28.1sentence 28 crane sentence 28" in said
    assert "A note." in said
    assert sum(tag == "tr" for tag, _ in found.elements) == 2 * ROWS  # the script shows the others
    content = json.loads(found.scripts["application/json"])
    assert content["members"] == members
    assert [use[-1] for use in content["uses"]] == [f"a.txt:{number}.1" for number in range(30)]


def test_of_very_many_uses_some_are_drawn_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sense_map_module, "MOST_POINTS", 40)
    many = shown([str(number) for number in range(100)])
    found = Page(senses_page(many, ["1"] * 100))
    assert sum(tag == "circle" for tag, _ in found.elements) == 34
    assert "pca of the vectors, of which 34 are drawn." in "".join(found.text)
    assert many.left_out() in "".join(ElementTree.fromstring(figure_bytes(senses_figure(many), "svg")).itertext())


def test_neighbors_stand_under_their_headings_with_their_cosines() -> None:
    use = Use("A crane flew.", 2, 7)
    found = Page(similar_page(use, [UseList("near", [("0.876  12.1", use)]), UseList("far", [])], ["A note & more."]))
    said = " ".join("".join(found.text).split())
    assert "A crane flew. A note & more. near0.876 12.1A crane flew.farNone." in said


@given(texts)
def test_data_come_back_as_they_were_given(text: str) -> None:
    element = data([text, 1.5, None])
    assert element.count("<") == 2
    assert json.loads(Page(element).scripts["application/json"]) == [text, 1.5, None]


def test_control_characters_are_replaced() -> None:
    assert escaped("a\x00b\x1b\tc\n<&\"'") == "a\ufffdb\ufffd\tc\n&lt;&amp;&quot;&#x27;"
    assert escaped("a\r\nb") == "a\r\nb", "browsers read it as one line end"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("plain \u202c\u2069", ""),
        ("\u202egnp.exe", "\u202c"),
        ("\u202ea\u202cb", ""),
        ("\u2067a\u202bb", "\u202c\u2069"),
        ("\u2067a\u202bb\u2069", ""),
        ("\u202ea\u2066b\u202cc", "\u2069\u202c"),
    ],
)
def test_marks_of_direction_end_with_their_text(text: str, ends: str) -> None:
    """By the rules of UAX 9: an isolate's end ends the embeddings inside it, an embedding's end no isolate."""
    assert escaped(text) == text + ends


def test_a_page_without_a_script_lets_none_run() -> None:
    assert "script-src 'none'" in page("title", "<p>body</p>")


# --- the figure ------------------------------------------------------------------------------------------------------


def test_the_figure_has_the_word_the_number_and_examples_as_text() -> None:
    svg = figure_bytes(senses_figure(shown(["one & $2", "three <b>", "four"])), "svg")
    said = ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"crane", "2 senses of texts.txt; pca of their vectors", "Because."} <= set(said)
    assert {"one & $2", "three <b>", "1   2 uses, 67%", "2   1 use, 33%"} <= set(said)


def test_everything_stands_on_the_figure() -> None:
    figure = senses_figure(shown(["a long sentence that goes on and on and on and on " * 3] * 30, 6))
    check_text_inside(figure)


@pytest.mark.parametrize("n", [1, 2, 400])
def test_any_number_of_uses_can_be_drawn(n: int) -> None:
    assert figure_bytes(senses_figure(shown(["x"] * n, 1)), "png", scale=0.5).startswith(b"\x89PNG")


def test_the_same_senses_give_the_same_bytes() -> None:
    for format in ("png", "svg"):
        one, two = (figure_bytes(senses_figure(shown(["a", "b"])), format) for _ in range(2))
        assert one == two


def test_a_map_without_uses_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one"):
        SenseMap(
            word="a",
            headline="",
            explanation="",
            map="pca",
            source="",
            uses=[],
            senses=[],
            points=np.zeros((0, 2)),
            examples=[],
        )


def test_the_first_colors_are_far_from_each_other() -> None:
    colors = np.array([[int(group_color(n)[at : at + 2], 16) for at in (1, 3, 5)] for n in range(9)])
    distances = np.linalg.norm(colors[:, None] - colors, axis=-1) + 1000 * np.eye(9)
    assert distances.min() > 40
