"""What words add to a score: as captum has it, and as the definition has it by finite differences."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import polyseme
from polyseme.analysis.attribution_findings import attribute_items
from polyseme.analysis.attributions import Attributor, gauss_legendre
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.tasks.items import Item
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_folder import save_task_model
from polyseme.transfer.task_model import TaskConfig, TaskModel
from tiny_models import tiny_model

GOLDEN = Path(__file__).parents[1] / "golden" / "captum" / "attributions.json"
ITEM = Item(text="The vase broke, unbelievable.")
PAIR = Item(text="The vase broke", second="A crane caught it")
TAGGED = Item.of_words(["The", "vase", "broke", "unbelievable", ","])
CAPTUM: dict[str, tuple[str, dict[str, Any]]] = {
    "tuned": ("bert", {"readout": "first"}),
    "frozen-mix": ("bert", {"frozen": True, "layer": "mix"}),
    "pre-norm": ("modernbert", {}),
    "recurrent": ("lstm", {"readout": "concat"}),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **CAPTUM,
    "pair": ("roberta", {"kind": "pair", "readout": "first"}),
    "frozen-pair": ("bert", {"kind": "pair", "frozen": True, "head": "mlp"}),
    "tagger": ("bert", {"kind": "tag", "frozen": True, "head": "bilstm"}),
    "spelled": ("elmo", {"frozen": True, "layer": "mix"}),
    "in-chunks": ("awd-lstm", {"head": "mlp-batchnorm", "readout": "concat", "chunk_length": 3, "read_last": 5}),
    "decoder": ("bart", {"readout": "last", "stack": "decoder"}),
}


def formula_model(
    family: str, head: str = "linear", head_settings: dict[str, Any] | None = None, **settings: Any
) -> TaskModel:
    """A task model in float64 whose weights are made by rule, the same on every machine."""
    reading = TaskConfig(**{"kind": "classify", "max_pieces": 40, **settings})
    fields = head_settings or {"labels": ("bad", "good", "so-so")}
    model = build_task_model(tiny_model(family).bundle, reading, head, head_settings=fields).double().eval()
    for number, (name, each) in enumerate(model.named_parameters()):
        values = 0.25 * np.sin(0.7 * np.arange(each.numel()) + number + 0.013 * np.arange(each.numel()) ** 1.5)
        shift = 1.0 if name.endswith("norm.weight") else 0.0
        each.data.copy_(torch.from_numpy(values + shift).view_as(each))
    return model


@cache
def model_of(case: str) -> TaskModel:
    family, settings = CASES[case]
    return formula_model(family, **settings)


def item_of(model: TaskModel) -> Item:
    return {"pair": PAIR, "tag": TAGGED}.get(model.config.kind, ITEM)


def pick_of(model: TaskModel, label: int = 1) -> Any:
    return (lambda scores: scores[:, 2, label]) if model.config.kind == "tag" else (lambda scores: scores[:, label])


@pytest.mark.parametrize("case", CAPTUM)
@pytest.mark.parametrize("method", ["integrated-gradients", "gradient-x-input"])
def test_attributions_equal_captum(case: str, method: Any) -> None:
    """By `LayerIntegratedGradients` and `LayerGradientXActivation` over the lookup of pieces, in float64; where the
    baseline is zero, by `IntegratedGradients` over what is looked up.
    """
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    model = model_of(case)
    attributor = Attributor(model)
    read = attributor.read(ITEM)
    result = attributor.attribute(read, pick_of(model), method=method, steps=golden["steps"])
    theirs = np.array(golden["cases"][case][method])
    words = [theirs[first : last + 1].sum() for first, last in golden["cases"][case]["words"]]
    np.testing.assert_allclose(result.values, words, rtol=0, atol=1e-6 * np.abs(words).max())
    assert result.rest == pytest.approx(theirs.sum() - sum(words), abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_word_gets_the_integral_along_its_own_part_of_the_line(case: str) -> None:
    """d/dε of the score at points of the line, moved by ε along the difference of one word, by central differences."""
    model = model_of(case)
    attributor = Attributor(model)
    read = attributor.read(item_of(model), 2 if model.config.kind == "tag" else None)
    pick, steps, epsilon = pick_of(model), 4, 1e-5
    result = attributor.attribute(read, pick, method="integrated-gradients", steps=steps)
    with torch.no_grad(), attributor._replaced(None) as calls:
        attributor._run(read, 1)
    starts = [attributor._baseline_of(call, read) for call in calls]

    def score(vectors: list[Tensor]) -> float:
        with torch.no_grad(), attributor._replaced(vectors):
            return float(pick(attributor._run(read, 1))[0])

    points, weights = gauss_legendre(steps)
    word = len(read.places) // 2
    row, first, last = read.places[word]
    directions = []
    for call, start in zip(calls, starts, strict=True):
        direction = torch.zeros_like(start)
        if call.row == row:
            here = slice(first + call.shift, last + 1 + call.shift)
            direction[:, here] = (call.vectors - start)[:, here]
        directions.append(direction)
    expected = 0.0
    for point, weight in zip(points, weights, strict=True):
        line = [start + point * (call.vectors - start) for call, start in zip(calls, starts, strict=True)]
        ends = [[x + sign * epsilon * d for x, d in zip(line, directions, strict=True)] for sign in (1, -1)]
        expected += weight * (score(ends[0]) - score(ends[1])) / (2 * epsilon)
    assert result.values[word] == pytest.approx(expected, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_predict_and_attributions_sum_up(case: str) -> None:
    model = model_of(case)
    item = item_of(model)
    tagger = model.config.kind == "tag"
    attributor = Attributor(model)
    read = attributor.read(item, 2 if tagger else None)
    [prediction] = Predictor(model)([item])
    shares = torch.softmax(attributor.scores(read), dim=-1)
    expected = prediction.probability if tagger else list(prediction.probabilities.values())
    np.testing.assert_allclose(shares.max(-1).values if tagger else shares, expected, rtol=1e-4)
    result = attributor.attribute(read, pick_of(model), method="integrated-gradients", steps=24)
    assert result.total == pytest.approx(result.score - result.baseline_score, rel=0.05, abs=1e-3)
    assert result.rest == pytest.approx(0.0, abs=1e-12)
    assert len(result.values) == len(prediction.words or read.words)


def test_the_baseline_is_the_text_in_padding() -> None:
    model = model_of("tuned")
    attributor = Attributor(model)
    read = attributor.read(ITEM)
    result = attributor.attribute(read, pick_of(model), method="integrated-gradients", steps=2)
    [row] = read.unit.rows
    pad = model.bundle.text_tokenizer.specials["pad"]
    for first, last in row.text.words:
        row.text.ids[first : last + 1] = pad
    assert result.baseline_score == pytest.approx(float(attributor.scores(read)[1]), abs=1e-12)
    zero = Attributor(model, "zero").attribute(
        Attributor(model).read(ITEM), pick_of(model), method="integrated-gradients", steps=2
    )
    assert abs(zero.baseline_score - result.baseline_score) > 1e-3


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier, a model of pairs, a tagger and one of numbers, as folders."""
    folder = tmp_path_factory.mktemp("tasks")
    made = {
        "classify": formula_model("bert", readout="first"),
        "pair": formula_model("bert", kind="pair", readout="first"),
        "tag": formula_model("bert", kind="tag", head="linear"),
        "number": formula_model("bert", readout="first", head_settings={"regression": True}),
    }
    for name, model in made.items():
        save_task_model(model.float(), folder / name, card={})
    return {name: folder / name for name in made}


def test_records_of_several_texts(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("The vase broke.\nDawn broke.\n", encoding="utf-8")
    findings = polyseme.attribute(source=tmp_path / "texts.txt", model=folders["classify"], steps=8)
    assert [each["word"] for each in findings.records()] == ["The", "vase", "broke", ".", "Dawn", "broke", "."]
    assert {each["text"] for each in findings.records()} == {1, 2}
    [prediction] = polyseme.load(folders["classify"]).predict(["Dawn broke."])
    assert findings.texts[1].label == prediction.label
    assert findings.texts[1].probability == pytest.approx(prediction.probability, rel=1e-4)
    other = polyseme.attribute("Dawn broke.", model=folders["classify"], label="so-so", method="gradient-x-input")
    assert {each["label"] for each in other.records()} == {"so-so"}
    assert "sum of all: +" in other.html() or "sum of all: −" in other.html()
    assert "error" not in other.html()


def test_a_pair_a_tag_and_a_number(folders: dict[str, Path]) -> None:
    pair = polyseme.attribute(["The vase broke", "Dawn"], model=folders["pair"], steps=4)
    assert [each["side"] for each in pair.records()] == [1, 1, 1, 2]
    assert pair.data == "“The vase broke” and “Dawn”"
    tag = polyseme.attribute("The vase broke", model=folders["tag"], word="broke", steps=4)
    assert " at broke" in tag.html()
    number = polyseme.attribute("The vase broke", model=folders["number"], steps=4)
    assert number.texts[0].label.startswith("number")
    assert number.texts[0].attributed.score == pytest.approx(number.texts[0].prediction.label, rel=1e-4)


def test_a_rough_sum_is_reported() -> None:
    labels = {"labels": ("bad", "good")}
    model = build_task_model(
        tiny_model("transfo-xl").bundle, TaskConfig(kind="classify", max_pieces=40), "linear", head_settings=labels
    ).eval()
    settings: dict[str, Any] = {"name": "", "data": "", "label": None, "word": None, "baseline": None}
    findings = attribute_items(model, [ITEM], method="integrated-gradients", steps=1, **settings)
    assert any("Use more steps: --steps 4" in note for note in findings.notes)


def test_long_texts_are_reported(folders: dict[str, Path]) -> None:
    findings = polyseme.attribute("broke " * 60, model=folders["classify"], steps=1)
    assert "cut to 40 pieces" in findings.notes[0]
    assert findings.records()[-1]["attribution"] is None
    with pytest.raises(InputError, match="longer than the 40 pieces"):
        polyseme.attribute(["broke " * 60, "Dawn"], model=folders["pair"])
    with pytest.raises(InputError, match="reads 40 at once"):
        Attributor(formula_model("bert", frozen=True)).read(Item(text="broke " * 60))
    tags = polyseme.attribute("broke " * 60 + "Dawn", model=folders["tag"], word="Dawn", steps=1)
    assert "windows; the window with the word" in tags.notes[0]


def test_a_word_that_occurs_several_times_is_reported(folders: dict[str, Path]) -> None:
    findings = polyseme.attribute("the vase and the crane", word="the", model=folders["tag"], steps=3)
    assert findings.texts[0].tagged == 0
    assert "'the' occurs 2 times in 'the vase and the crane'; the tag of the first" in findings.notes[0]
    second = polyseme.attribute("the vase and the crane", word="the", occurrence=2, model=folders["tag"], steps=3)
    assert second.texts[0].tagged == 3
    assert not any("occurs" in note for note in second.notes)


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        ("classify", {"texts": "Dawn", "label": "god"}, OptionError, "no label 'god'. Did you mean 'good'"),
        ("classify", {"texts": "Dawn", "word": "Dawn"}, OptionError, "labels whole texts"),
        ("tag", {"texts": "Dawn broke"}, OptionError, "Name the word"),
        ("tag", {"texts": "Dawn broke", "word": "brok"}, InputError, "does not occur.*Did you mean 'broke'"),
        ("tag", {"texts": "Dawn broke", "word": "Dawn", "occurrence": 2}, InputError, "occurs once .*occurrence 2"),
        ("tag", {"texts": "Dawn broke", "occurrence": 2}, OptionError, "is for a word"),
        ("pair", {"texts": "Dawn broke"}, InputError, "two texts together. Name both. Got 1"),
        ("number", {"texts": "Dawn", "label": "good"}, OptionError, "It predicts numbers"),
        ("classify", {"texts": "Dawn", "steps": 0}, OptionError, "at least 1"),
        ("classify", {"texts": "Dawn", "method": "integrated"}, OptionError, "Did you mean 'integrated-gradients'"),
        ("classify", {"texts": "Dawn", "baseline": "mean"}, OptionError, "no baseline 'mean'"),
        ("classify", {}, OptionError, "Name one text or several, or a file"),
        ("classify", {"texts": "  "}, InputError, "no word"),
    ],
)
def test_bad_input(
    folders: dict[str, Path], model: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        polyseme.attribute(model=folders[model], **options)


def test_models_that_have_no_score_to_attribute(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "bert")
    for model in (tmp_path / "bert", tiny_model("bert")):
        with pytest.raises(ModelError, match=r"no task head.*polyseme finetune"):
            polyseme.attribute("Dawn broke", model=model)
    with pytest.raises(ModelError, match="task 'span'"):
        Attributor(build_task_model(tiny_model("bert").bundle, TaskConfig(kind="span", max_pieces=40), "linear"))
    with pytest.raises(ModelError, match="'static' has no lookup"):
        Attributor(formula_model("static", frozen=True))
    with pytest.raises(OptionError, match="no mask piece"):
        Attributor(formula_model("gpt2"), "mask")
