"""Cells that can be looked at: their values, what they go with, and a page on which text is only text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

import polyseme
from golden_elmo import golden_bundle
from polyseme.analysis.cell_page import MOST_PIECES, CellFindings
from polyseme.analysis.recurrent_cells import Cell, CorrelatedCell, encoded_text, inside_if, read_stretches
from polyseme.analysis.recurrent_cells import correlated_cells as correlated_in
from polyseme.api import Model
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.encoders.recurrent_config import RecurrentConfig
from polyseme.errors import InputError, ModelError, OptionError, PolysemeError
from polyseme.parts.recurrence import State
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Batch
from tiny_models import tiny_model

TEXT = 'He said "dawn broke" and left.\nThey (we think) said "the vase broke, too", and "so did the news".\nThe end.'
HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "</div><iframe src=//evil></iframe><!-- &lt;b&gt; \x00 \x1b \u202e",
)


def cells(model: Model, text: str | Sequence[str], **options: Any) -> CellFindings:
    return polyseme.cells(text, model=model, **options)


def correlated_cells(model: Model, *arguments: Any, **options: Any) -> list[CorrelatedCell]:
    return correlated_in(model.bundle, *arguments, **options)


class Readings(NamedTuple):
    layer: int
    half: str
    values: Any


def read_cells(bundle: Bundle, text: str | Sequence[str], **options: Any) -> list[Readings]:
    """The values of layers over a whole text, from the bottom to the top, put together from stretches."""
    encoded = encoded_text(bundle, text)
    whole: dict[tuple[int, str], Any] = {}
    for layer, half, pieces, values in read_stretches(bundle, encoded, **options):
        whole.setdefault((layer, half), np.full((len(encoded), values.shape[1]), np.nan))[pieces] = values
    assert all(np.isfinite(values).all() for values in whole.values())
    return [Readings(*at, whole[at]) for at in sorted(whole, key=lambda at: (at[0], at[1] == "backwards"))]


def character_model(tmp_path: Path, **changes: Any) -> Model:
    """A character language model."""
    characters = ["<unk>", "\n", *map(chr, range(32, 127))]
    backend = Tokenizer(models.WordLevel({each: id for id, each in enumerate(characters)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    (tmp_path / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path, frame="none")
    settings: dict[str, Any] = {"token_width": 8, "width": 8, "n_layers": 2, "n_pieces": tokenizer.n_pieces, **changes}
    torch.manual_seed(0)
    config = RecurrentConfig(**settings)
    bundle = new_bundle(FAMILIES["lstm"], config, ["causal"] if config.direction == "causal" else [], tokenizer)
    return Model(bundle.eval())


class Read(HTMLParser):
    """The elements of a page with their attributes, and the text of the colored stretches."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.pieces: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.elements.append((tag, about))
        self._open.append("text" if about.get("class") == "text" else tag)
        if self._open[-1] == "text":
            self.texts.append("")
        if tag == "span" and "text" in self._open:
            self.pieces.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if "text" in self._open:
            self.texts[-1] += data
            if self._open[-1] == "span":
                self.pieces[-1] += data


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["cell", "output"])
def test_values_are_those_of_the_memory_step_by_step(value: Any) -> None:
    """An LSTM language model's, piece by piece through the encoder's own contract."""
    model = tiny_model("lstm")
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    text = "Dawn broke, and the vase broke."
    document = model.embed(text)[0]
    ids = tokenizer.encode(document).ids
    found = {each.layer: each.values for each in read_cells(model.bundle, text, value=value)}
    assert list(found) == [1, 2, 3]
    memory = model.bundle.encoder.new_memory(1)
    for time, piece in enumerate(ids):
        with torch.no_grad():
            memory = model.bundle.encoder(Batch(torch.tensor([[piece]])), memory=memory).memory
        assert isinstance(memory, State)
        for layer in range(3):
            expected = memory.cells[layer].tanh() if value == "cell" else memory.outputs[layer]
            np.testing.assert_allclose(found[layer + 1][time], expected[0].numpy(), atol=1e-6)


def test_a_two_way_model_has_cells_of_both_halves() -> None:
    """The last that the forward half holds is after the last word, the backward half after the first."""
    bundle = golden_bundle("allennlp")
    words = ["Dawn", "broke", "."]
    found = list(read_cells(bundle, words, value="output"))
    assert [(each.layer, each.half) for each in found] == [
        (1, "forwards"),
        (1, "backwards"),
        (2, "forwards"),
        (2, "backwards"),
    ]
    states = Model(bundle).embed([words], layer=1)[0].vectors
    np.testing.assert_allclose(np.concatenate([found[0].values, found[1].values], axis=1), states, atol=1e-6)
    assert [each.values.shape[1] for each in read_cells(bundle, words)] == [64] * 4


def test_a_stack_that_reads_both_ways(tmp_path: Path) -> None:
    model = character_model(tmp_path, reads="both", memory="none", top_width=None)
    found = list(read_cells(model.bundle, TEXT, value="output"))
    assert [(each.layer, each.half) for each in found][:2] == [(1, "forwards"), (1, "backwards")]
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode(model.embed(TEXT)[0]).ids
    with torch.no_grad():
        states = model.bundle.encoder(Batch(torch.from_numpy(ids)[None]))[2][0]
    np.testing.assert_allclose(np.concatenate([found[2].values, found[3].values], axis=1), states, atol=1e-6)


@pytest.mark.parametrize("value", ["cell", "output"])
def test_a_long_text_is_read_in_stretches_with_the_same_values(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward halves from the last stretch to the first; a property's correlations are the same, too."""
    for bundle in (tiny_model("lstm").bundle, golden_bundle("allennlp"), tiny_model("awd-lstm").bundle):
        monkeypatch.setattr("polyseme.analysis.recurrent_cells.STRETCH", 10_000)
        whole = read_cells(bundle, TEXT, value=value)
        ranked = correlated_in(bundle, TEXT, "inside quotes", value=value)
        monkeypatch.setattr("polyseme.analysis.recurrent_cells.STRETCH", 3)
        reads: list[tuple[int, int | None]] = []
        again = read_cells(bundle, TEXT, value=value, progress=lambda *progress, reads=reads: reads.append(progress))
        for one, other in zip(whole, again, strict=True):
            assert one[:2] == other[:2]
            np.testing.assert_allclose(one.values, other.values, atol=2e-6)
        assert len(reads) > 5
        assert reads[-1][0] == reads[-1][1]
        found = correlated_in(bundle, TEXT, "inside quotes", value=value)
        np.testing.assert_allclose([each[1] for each in found], [each[1] for each in ranked], atol=1e-4)


def test_a_text_that_must_be_read_at_once_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyseme.analysis.recurrent_cells.MOST_AT_ONCE", 20)
    model = character_model(tmp_path, reads="both", memory="none", top_width=None)
    with pytest.raises(InputError, match=r"reads all of them at once: at most 20\. Shorten the text"):
        cells(model, TEXT, cell=0)
    assert len(cells(model, "Dawn broke.", cell=0).spans) == 11


def test_tanh_cells_have_outputs_only(tmp_path: Path) -> None:
    model = character_model(tmp_path, cells="tanh")
    assert len(list(read_cells(model.bundle, TEXT, value="output"))) == 2
    with pytest.raises(OptionError, match="Use the value 'output'"):
        cells(model, TEXT, cell=0)


# --- what they go with ------------------------------------------------------------------------------------------------


def test_a_cell_that_follows_quotes_is_found(tmp_path: Path) -> None:
    """One that was wired by hand."""
    model = character_model(tmp_path)
    make_quote_cell(model, 3)
    found = correlated_cells(model, TEXT, "inside quotes", top=4)
    assert found[0].cell == Cell(1, "forwards", 3)
    assert found[0].correlation > 0.95
    assert [abs(each.correlation) for each in found] == sorted((abs(each.correlation) for each in found), reverse=True)
    view = cells(model, TEXT, property="inside quotes")
    assert list(view.values) == [Cell(1, "forwards", 3)]
    assert view.correlated[0] == found[0]
    inside = view.values[Cell(1, "forwards", 3)] > 0.5
    on = "".join(character for character, is_on in zip(TEXT, inside, strict=True) if is_on)
    assert on == '"dawn broke"the vase broke, too"so did the news'


def make_quote_cell(model: Model, number: int) -> None:
    """h of the cell tells whether it is on; a quote turns it to the opposite, all else leaves it as it is."""
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    [quote] = tokenizer.encode(model.embed('"')[0]).ids.tolist()
    encoder: Any = model.bundle.encoder
    reader = encoder.layers[0][0]
    n = reader.n_cells
    with torch.no_grad():
        encoder.tokens.table.mul_(0.01)
        encoder.tokens.table[:, 0] = 0.0
        encoder.tokens.table[quote, 0] = 1.0
        for matrix in (reader.input, reader.recurrent, reader.bias):
            for gate in range(4):
                matrix[gate * n + number] = 0.0
        reader.bias[number] = -30.0  # nothing comes in …
        reader.input[number, 0] = 60.0  # … but with a quote,
        reader.bias[n + number] = 30.0  # and what is there stays …
        reader.input[n + number, 0] = -60.0  # … but with a quote
        reader.bias[2 * n + number] = 10.0
        reader.recurrent[2 * n + number, number] = -40.0  # what comes is the opposite of what was: 1, or -1
        reader.bias[3 * n + number] = 30.0


def test_a_property_of_one_s_own_and_its_numbers(tmp_path: Path) -> None:
    model = character_model(tmp_path)

    def vowels(text: str) -> list[float]:
        return [float(character in "aeiou") for character in text]

    found = correlated_cells(model, TEXT, vowels, top=3)
    for each in found:
        [readings] = read_cells(model.bundle, TEXT, layer=each.cell.layer)
        expected = np.corrcoef(readings.values[:, each.cell.number], vowels(TEXT))[0, 1]
        assert each.correlation == pytest.approx(expected, abs=1e-6)
    everything = correlated_cells(model, TEXT, vowels, top=1000)
    assert len(everything) == 16
    assert everything[:3] == found


@pytest.mark.parametrize("name", ["inside brackets", "position in line", "position in word"])
def test_every_property_has_its_cells_in_every_kind_of_model(name: str, tmp_path: Path) -> None:
    for model in (
        character_model(tmp_path),
        tiny_model("lstm"),
        tiny_model("seq2seq"),
        Model(golden_bundle("allennlp")),
    ):
        found = correlated_cells(model, TEXT, name)
        assert len(found) == 10
        assert all(0 < abs(each.correlation) <= 1 + 1e-9 for each in found)


@pytest.mark.parametrize(
    ("code", "conditions"),
    [
        ("if x > 1: y", ["f x > 1"]),
        ("if (a[0] && f(b)) { c }", ["f (a[0] && f(b)"]),
        ("elif d in {1: 2}:\n    pass", ["f d in "]),
        ("int gif = x.if; notif(1)", []),
        ("a\nif b\nc", ["f b"]),
    ],
)
def test_conditions_of_program_code(code: str, conditions: list[str]) -> None:
    """From the keyword's last letter on, after which one is inside, to what ends the condition."""
    inside = "".join(character if value else "\0" for character, value in zip(code, inside_if(code), strict=True))
    assert [part for part in inside.split("\0") if part] == conditions


def test_a_file_is_one_text_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    model = character_model(tmp_path)
    findings = polyseme.cells(source=tmp_path / "text.txt", model=model, property="position in line", top=3)
    assert findings.text == TEXT
    assert findings.correlated == correlated_cells(model, TEXT, "position in line", top=3)
    assert [(each["layer"], each["cell"]) for each in findings.records()] == [
        (each.cell.layer, each.cell.number) for each in findings.correlated
    ]
    assert findings.to_json()["cells"][0]["values"] == next(iter(findings.values.values())).tolist()
    with pytest.raises(OptionError, match="and not both"):
        polyseme.cells("Dawn", source=tmp_path / "text.txt", model=model, cell=0)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_text_is_whole_and_every_character_has_its_color(tmp_path: Path) -> None:
    view = cells(character_model(tmp_path), TEXT, cell=[2, 5], layer=1)
    read = Read(view.page_body())
    assert read.texts == [TEXT, TEXT]
    assert "".join(read.pieces) == TEXT * 2
    shades = [about["class"] for tag, about in read.elements if tag == "span"]
    titles = [about["title"] for tag, about in read.elements if tag == "span"]
    values = [*view.values[Cell(1, "forwards", 2)], *view.values[Cell(1, "forwards", 5)]]
    assert titles == [f"{value:+.2f}".replace("-", "−") for value in values]
    assert shades == [f"{'n' if round(value * 20) < 0 else 'p'}{abs(round(float(value) * 20))}" for value in values]
    for shade in set(shades):
        assert re.search(rf"\.cells \.{shade} {{ background: #[0-9a-f]{{6}}; color: #", view.html())


@pytest.mark.parametrize("model", ["lstm", "elmo"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_only_text(model: str, hostile: str, tmp_path: Path) -> None:
    text = f"Dawn {hostile} broke"
    view = cells(tiny_model(model), text, cell=0, property="position in line")
    view.save(tmp_path / "page.html")
    for html in (view.html(), (tmp_path / "page.html").read_text(encoding="utf-8")):
        read = Read(html)
        tags = {tag for tag, _ in read.elements}
        assert tags <= {"html", "head", "meta", "title", "style", "body", "h1", "h3", "p", "i", "div", "span", "table",
                        "tr", "th", "td", "dl", "dt", "dd"}  # fmt: skip
        names = {name for _, about in read.elements for name in about}
        assert not any(name.startswith("on") or name in ("src", "href", "style") for name in names)
        [shown] = read.texts
        ended = shown.replace("\u202c", "")  # the page ends the text's marks of direction
        assert ended == re.sub("[\x00-\x08\x0b-\x1f]", "\ufffd", text)
    assert "script-src 'none'" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_cell_may_be_numbered_by_numpy() -> None:
    """As by `argmax` over the values of a layer."""
    model = tiny_model("lstm")
    assert cells(model, TEXT, cell=np.int64(1)).page_body() == cells(model, TEXT, cell=1).page_body()


def test_the_names_of_properties_are_only_text() -> None:
    def named(text: str) -> list[float]:
        return list(map(float, range(len(text))))

    named.__name__ = "<script>alert(1)</script>"
    assert "<script" not in cells(tiny_model("lstm"), TEXT, property=named).html()


def test_a_long_text_is_cut_on_the_page_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PIECES == 20_000
    monkeypatch.setattr("polyseme.analysis.cell_page.MOST_PIECES", 5)
    view = cells(tiny_model("lstm"), "Dawn broke and the vase broke .", cell=1)
    assert "The first 5 of 7 pieces are shown." in view.html()
    assert Read(view.page_body()).texts == ["Dawn broke and the vase"]
    assert len(view.values[Cell(3, "forwards", 1)]) == 7


def test_a_page_is_not_replaced_unasked(tmp_path: Path) -> None:
    view = cells(tiny_model("lstm"), TEXT, cell=1)
    view.save(tmp_path / "page.html")
    with pytest.raises(PolysemeError, match="already there"):
        view.save(tmp_path / "page.html")
    view.save(tmp_path / "page.html", force=True)
    assert "srcdoc" in view._repr_html_()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"lstm", "awd-lstm", "elmo", "flair", "seq2seq"}))
def test_other_models_have_no_cells(family: str) -> None:
    with pytest.raises(ModelError, match=r"has no cells\. Only recurrent models have them"):
        cells(tiny_model(family), TEXT, cell=0)
    with pytest.raises(ModelError, match="has no cells"):
        correlated_cells(tiny_model(family), TEXT, "inside quotes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Name a cell by its number .*, or a property"),
        ({"cell": 24}, "Layer 3 has cells 0 to 23. Got 24"),
        ({"cell": 16, "value": "output"}, "Layer 3 has cells 0 to 15. Got 16"),
        ({"cell": -1}, "Got -1"),
        ({"cell": True}, "Got True"),
        ({"cell": [1, "2"]}, "Got '2'"),
        ({"cell": 0, "layer": 0}, "layer 0 is the token layer"),
        ({"cell": 0, "layer": 4}, "layers 1 to 3"),
        ({"cell": 0, "layer": "top"}, "is a number. Got 'top'"),
        ({"cell": 0, "half": "backwards"}, "The model reads forwards. Got 'backwards'"),
        ({"cell": 0, "value": "cels"}, "Did you mean 'cell'"),
        ({"property": "inside qoutes"}, "Did you mean 'inside quotes'"),
        ({"property": 7}, "a name or a function"),
        ({"property": "inside quotes", "top": 0}, "At least 1 cell"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        cells(tiny_model("lstm"), TEXT, **options)


@pytest.mark.parametrize(
    ("text", "property", "message"),
    [
        ("", None, "no pieces"),
        ("Dawn broke.", "inside quotes", "the same value everywhere in the text"),
        ("Dawn broke.", lambda text: [1.0], "one finite number for each of the text's 11 characters"),
        ("Dawn broke.", lambda text: [float("nan")] * 11, "one finite number"),
        ("Dawn broke.", lambda text: None, "one finite number"),
    ],
)
def test_texts_and_properties_that_say_nothing(text: str, property: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cells(tiny_model("lstm"), text, cell=0, property=property)


def test_words_may_be_given() -> None:
    words: Sequence[str] = ["Dawn", "broke"]
    view = cells(Model(golden_bundle("allennlp")), words, cell=0, half="backwards", layer=1)
    assert view.text == "Dawn broke"
    assert list(view.values) == [Cell(1, "backwards", 0)]
    assert Read(view.page_body()).pieces == ["Dawn", "broke"]
