"""Where words look: pieces brought to words, rollout, every family, windows, targets, and the page."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import polyseme
from polyseme.analysis import attention_findings, attention_maps
from polyseme.analysis.attention_findings import AttentionFindings, strongest
from polyseme.analysis.attention_maps import AttentionMap, LayerAttention, Unit, read_attention, rollout, to_units
from polyseme.analysis.word_attention import to_words
from polyseme.api import Model
from polyseme.convert.families import FAMILIES
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.plots.attention_page import to_bytes
from polyseme.pruning.head_removal import AttentionPlace, HeadPlace, without_heads
from polyseme.text.documents import make_document
from tiny_models import tiny_model

SENTENCE = "The newscaster didn't misunderstand Zoë."
WORDS = ["The", "newscaster", "didn't", "misunderstand", "Zoë", "."]
TRANSFORMERS = [name for name, family in FAMILIES.items() if isinstance(family.tiny(), TransformerConfig)]


def maps_of(model: Model, text: Any = SENTENCE, **options: Any) -> dict[str, AttentionMap]:
    return {each.part: each for each in read_attention(model.bundle, text, **options).maps}


# --- the figures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_every_transformer_shows_its_own_weights_by_piece_and_by_word(family: str) -> None:
    model = tiny_model(family)
    model.bundle.double()
    target = SENTENCE if model.bundle.decoder is not None else None
    pieces = maps_of(model, pieces=True, target=target)
    stacks: dict[str, Any] = {"encoder": "encoder"} | ({} if target is None else {"decoder": "decoder"})
    for part, stack in stacks.items():
        expected = model.pieces(SENTENCE, stack=stack, attentions=True)
        assert [unit.text for unit in pieces[part].rows] == expected.pieces
        assert np.allclose([layer.weights for layer in pieces[part].layers], expected.attentions, atol=1e-10)
    assert set(pieces) == ({*stacks, "cross"} if target else set(stacks))
    for part, each in maps_of(model, target=target, with_rollout=True).items():
        assert [unit.text for unit in each.rows if not unit.special] == WORDS
        assert len(each.rows) < len(pieces[part].rows)
        for layer in each.layers:
            assert layer.weights.shape == (len(layer.heads), len(each.rows), len(each.columns))
            assert np.allclose(layer.weights.sum(-1), 1, atol=1e-10)
            assert (layer.rollout is None) == (part == "cross")
            assert layer.rollout is None or np.allclose(layer.rollout.sum(-1), 1, atol=1e-10)


def test_attention_to_a_word_is_a_sum_and_from_a_word_a_mean() -> None:
    model = tiny_model("bert")
    whole, parts = maps_of(model)["encoder"], maps_of(model, pieces=True)["encoder"]
    encoded = model.tokenizer.encode(make_document(SENTENCE))
    weights, pooled = parts.layers[1].weights, whole.layers[1].weights
    pieces = [slice(first + 1, last + 2) for first, last in encoded.words.tolist()]  # behind [CLS]
    for row, these in enumerate(pieces, start=1):
        for column, those in enumerate(pieces, start=1):
            assert np.allclose(pooled[:, row, column], weights[:, these, those].sum(-1).mean(-1), atol=1e-6)
        assert np.allclose(pooled[:, row, 0], weights[:, these, 0].mean(-1), atol=1e-6)
    assert whole.rows[0] == Unit("[CLS]", True)
    as_heads_has_it = to_words(torch.from_numpy(weights)[None], torch.from_numpy(encoded.words + 1)[None])[0]
    assert np.allclose(pooled[:, 1:-1, 1:-1], as_heads_has_it, atol=1e-6)


def test_of_a_piece_of_two_words_each_has_half() -> None:
    weights = np.array([[0.2, 0.6, 0.2], [0.5, 0.5, 0.0], [0.0, 0.4, 0.6]])
    shares = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    expected = [[(0.2 + 0.3 + 0.5 + 0.25) / 2, (0.3 + 0.2 + 0.25) / 2], [(0.75 + 0.2) / 2, (0.25 + 0.8) / 2]]
    assert np.allclose(to_units(weights, shares, shares), expected)


def test_rollout_is_its_formula() -> None:
    random = np.random.default_rng(3)
    layers = [random.dirichlet(np.ones(5), size=(4, 5)) for _ in range(3)]
    product = np.eye(5)
    for weights, reached in zip(layers, rollout(layers), strict=True):
        mixed = 0.5 * weights.mean(0) + 0.5 * np.eye(5)
        product = (mixed / mixed.sum(1, keepdims=True)) @ product
        assert np.allclose(reached, product, atol=1e-12)
    model = tiny_model("gpt2")
    own = model.pieces(SENTENCE, attentions=True).attentions
    shown = maps_of(model, pieces=True, with_rollout=True)["encoder"]
    for layer, expected in zip(shown.layers, rollout(list(own)), strict=True):
        assert np.allclose(layer.rollout, expected, atol=1e-6)
    assert np.allclose(np.triu(shown.layers[-1].rollout, 1), 0), "what comes later is not seen"


def test_recurrent_translation_has_attention_to_its_source() -> None:
    reading = read_attention(tiny_model("seq2seq").bundle, "Dawn broke.", target="The vase broke.", with_rollout=True)
    assert reading.notes == ["There is no rollout, since the model has attention to the source alone."]
    [each] = reading.maps
    assert (each.part, [layer.heads for layer in each.layers]) == ("cross", [(0,)])
    assert [unit.text for unit in each.columns if not unit.special] == ["Dawn", "broke", "."]
    assert [unit.text for unit in each.rows if not unit.special] == ["The", "vase", "broke", "."]
    assert np.allclose(each.layers[0].weights.sum(-1), 1, atol=1e-5)


def test_without_a_target_the_decoder_reads_what_the_model_writes() -> None:
    model = tiny_model("bart")
    [own] = model.generate(["Dawn broke."], greedy=True)
    reading = read_attention(model.bundle, "Dawn broke.")
    assert any(repr(own) in note for note in reading.notes)
    assert "The first" in " ".join(reading.notes) or len(reading.maps[1].rows) > 1
    del model.bundle.outputs["causal"]
    reading = read_attention(model.bundle, "Dawn broke.")
    assert any("the target is the text itself" in note for note in reading.notes)
    assert [unit.text for unit in reading.maps[2].rows if not unit.special] == ["Dawn", "broke", "."]


def test_long_texts_are_drawn_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("bert")
    text = " ".join(["Dawn broke."] * 40)
    reading = read_attention(model.bundle, text)
    assert [each.window for each in reading.maps] == list(range(1, len(reading.maps) + 1))
    assert len(reading.maps) > 1
    assert f"in {len(reading.maps)} windows" in reading.notes[0]
    assert all(len(each.rows) <= model.bundle.config.window for each in reading.maps)
    findings = AttentionFindings(model="m", data="d", text=text, maps=reading.maps)
    monkeypatch.setattr("polyseme.analysis.attention_findings.MOST_ON_PAGE", 1)
    page = findings.html()
    assert page.count("<h2>Self-attention, window") == 1
    assert f"Window 1 of {len(reading.maps)} shown" in page
    assert {each["window"] for each in findings.records()} == {each.window for each in reading.maps}
    spelled = "unbelievable " * 12
    cut = [unit.text for each in read_attention(model.bundle, spelled).maps for unit in each.rows]
    assert "unbelievable…" in cut
    assert "…unbelievable" in cut


def test_pruned_heads_keep_their_numbers() -> None:
    whole = tiny_model("bert").bundle
    first = AttentionPlace("encoder", 0)
    pruned = without_heads(whole, [HeadPlace(first, 0), HeadPlace(first, 2)])
    layers = read_attention(pruned, SENTENCE).maps[0].layers
    alike = Model(pruned).pieces(SENTENCE, attentions=True).attentions
    assert [len(each) for each in alike] == [2, 4, 4], "layers that differ in heads are a list"
    assert (layers[0].heads, layers[1].heads) == ((1, 3), (0, 1, 2, 3))
    assert np.allclose(layers[0].weights, read_attention(whole, SENTENCE).maps[0].layers[0].weights[[1, 3]], atol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "changes", "instead"),
    [
        ("elmo", {}, "cells"),
        ("lstm", {}, "cells"),
        ("static", {}, "similar"),
        ("nnlm", {}, "embed"),
        ("seq2seq", {"decoder_attention": "none", "decoder_feeding": "none"}, "cells"),
    ],
)
def test_a_model_without_attention_says_what_it_has(family: str, changes: dict[str, Any], instead: str) -> None:
    with pytest.raises(ModelError, match=rf"has no attention heads .*{instead}"):
        read_attention(tiny_model(family, **changes).bundle, SENTENCE)
    with pytest.raises(ModelError, match=instead):
        polyseme.pieces(SENTENCE, model=tiny_model(family, **changes), attentions=True)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert, bart = tiny_model("bert"), tiny_model("bart")
    with pytest.raises(InputError, match="has no words"):
        read_attention(bert.bundle, "  ")
    with pytest.raises(OptionError, match="has one stack"):
        read_attention(bert.bundle, SENTENCE, target=SENTENCE)
    with pytest.raises(InputError, match="belongs to one whole source"):
        read_attention(bart.bundle, "Dawn broke. " * 40, target="Dawn")
    with pytest.raises(InputError, match="The target has no words"):
        read_attention(bart.bundle, SENTENCE, target=" ")
    monkeypatch.setattr(attention_maps, "MOST_WEIGHTS", 10_000)
    with pytest.raises(InputError, match="72 pieces, and so 51,984 attention weights over all layers"):
        read_attention(bert.bundle, "Dawn broke. " * 12)
    with pytest.raises(OptionError, match=r"must end in \.html"):
        polyseme.attention(SENTENCE, model="no such model", output=tmp_path / "a.pdf")


# --- findings ---------------------------------------------------------------------------------------------------------


def test_all_forms_have_every_weight(tmp_path: Path) -> None:
    model = tiny_model("bert")
    for ending in ("html", "json", "tsv"):
        found = polyseme.attention(SENTENCE, model=model, rollout=True, output=tmp_path / f"a.{ending}")
    [each] = found.maps
    n = len(each.rows)
    frame = pandas.DataFrame(found.records())
    assert len(frame) == n * n * (sum(len(layer.heads) for layer in each.layers) + len(each.layers))
    one = frame[(frame.layer == 2) & (frame["head"] == 3) & (frame.from_word == "newscaster")]
    assert one.weight.sum() == pytest.approx(1, abs=1e-5)
    assert one.to_word.tolist() == [unit.text for unit in each.columns]
    with (tmp_path / "a.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == len(frame)
    assert {row["head"] for row in rows} == {"0", "1", "2", "3", "rollout"}
    read = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    [again] = read["maps"]
    assert np.allclose(again["layers"][0]["heads"]["2"], each.layers[0].weights[2], atol=1e-6)
    assert [layer["layer"] for layer in read["layers"]] == [1, 2, 3]
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<script>") == 1


def test_the_summary_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = polyseme.attention(SENTENCE, model=tiny_model("bert"))
    read: list[int] = []

    def counted(each: AttentionMap, layer: LayerAttention) -> Any:
        read.append(layer.layer)
        return strongest(each, layer)

    monkeypatch.setattr(attention_findings, "strongest", counted)
    assert {len(row) for row in found.rows()} == {len(found.header())}
    assert read == [1, 2, 3]


def test_a_layer_is_told_by_where_it_looks_and_its_strongest_link() -> None:
    units = [Unit("[CLS]", True), *(Unit(word, False) for word in "abc"), Unit("[SEP]", True)]
    weights = np.full((2, 5, 5), 0.0)
    weights[0, :, 0] = 1.0
    weights[1] = np.eye(5, k=1)
    weights[1, 4, 0] = 1.0
    weights[1, 1] = [0.1, 0, 0.5, 0.4, 0]
    layer = LayerAttention(1, (0, 1), weights)
    each = AttentionMap(part="encoder", window=1, rows=units, columns=units, layers=[layer])
    assert strongest(each, layer) == (1, 1, 3, 0.4)
    found = AttentionFindings(model="", data="a text", text="a b c", maps=[each])
    [row] = found.summary()
    assert row["to_specials"] == pytest.approx((3 + 0.1 + 1) / 6)
    assert (row["to_itself"], row["to_previous"]) == (0, 0)
    assert row["to_next"] == pytest.approx((0.5 + 1) / 6)
    assert found.header()[:3] == ["layer", "to specials", "to itself"]
    assert found.rows()[0][-4:] == ["1", "a", "c", "0.40"]


def test_bytes_of_the_page_are_close_to_the_weights() -> None:
    weights = np.linspace(0, 1, 1001)
    assert np.abs((to_bytes(weights) / 255.0) ** 2 - weights).max() < 0.004


def test_notebooks_show_the_page_apart_from_what_is_around_it() -> None:
    model = tiny_model("bert")
    view = polyseme.view_attention(SENTENCE, model=model, height=333)
    assert 'sandbox="allow-scripts"' in view._repr_html_()
    assert "333px" in view._repr_html_()
    assert "to specials" in repr(view)
    again = polyseme.view_attention(view.findings)
    assert again.findings is view.findings
    with pytest.raises(OptionError, match="Leave out rollout"):
        polyseme.view_attention(view.findings, rollout=True)
    with pytest.raises(OptionError, match="at least 1 pixel"):
        polyseme.view_attention(view.findings, height=0)


def test_users_text_is_inert() -> None:
    hostile = ["</script><script>alert(1)</script>", "<b>", "a\x00", "&amp;", "b\u2028"]
    page = polyseme.attention(hostile, model=tiny_model("bert")).html()
    assert page.count("<script") == 2, "the page's own, and its data"
    assert "<b>" not in page
    assert "alert(1)</script>" not in page
