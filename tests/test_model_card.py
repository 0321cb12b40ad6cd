"""Cards of models: front matter as the Hugging Face hub reads it, and what is known of data, cost and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

import polyseme
from embedding.sentence_folders import sentence_folder
from polyseme.model_card import CardContent, Figure, changed_front_matter, front_matter, model_card, table
from tiny_models import tiny_model


def card_in(folder: Path) -> ModelCard:
    """The card of a folder, read as the hub reads it; what it does not know would raise an error."""
    card = ModelCard.load(folder / "README.md")
    assert "# " in card.text
    return card


def test_front_matter_is_yaml_with_the_same_values() -> None:
    fields: dict[str, Any] = {
        "license": "apache-2.0",
        "language": ["no", "en", "日本"],
        "empty": None,
        "model-index": [
            {
                "name": 'a "b": c # d',
                "results": [{"task": {"type": "x"}, "metrics": [{"type": "f1", "value": 0.5}, {"value": 1e-9}]}],
            }
        ],
        "number": "3",
        "text": "two\nlines, and a tab\t",
        "flag": True,
    }
    text = front_matter(fields)
    assert yaml.safe_load(text.strip().strip("-")) == fields


def test_only_named_fields_change() -> None:
    card = "---\nlicense: mit\ntags:\n  - a\n  - b: c\nlanguage:\n- en\n# note\nlibrary_name: x\n---\n\n# Title\n---\n"
    changed = changed_front_matter(card, tags=["new"], library_name="y")
    assert yaml.safe_load(changed.split("---")[1]) == {
        "license": "mit",
        "language": ["en"],
        "tags": ["new"],
        "library_name": "y",
    }
    assert changed.endswith("---\n\n# Title\n---\n")
    assert changed_front_matter("# Title\n", license="mit") == "---\nlicense: mit\n---\n\n# Title\n"


@pytest.mark.parametrize(
    ("family", "task"),
    [("bert", "fill-mask"), ("gpt2", "text-generation"), ("t5", "text-generation"), ("elmo", None), ("lstm", None)],
)
def test_a_saved_model_has_a_card(family: str, task: str | None, tmp_path: Path) -> None:
    model = tiny_model(family)
    model.save(tmp_path / "mine")
    card = card_in(tmp_path / "mine")
    assert card.data.library_name == "polyseme"
    assert card.data.tags == ["polyseme", family]
    assert task is None or card.data.pipeline_tag == task
    assert f"{model.bundle.n_parameters():,} parameters" in card.text
    assert " -m mine" in card.text
    (tmp_path / "mine" / "README.md").write_text("# My own words\n")
    polyseme.load(tmp_path / "mine").save(tmp_path / "copy")
    assert (tmp_path / "copy" / "README.md").read_text() == "# My own words\n"


def test_a_model_for_sentences_says_so(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "mine")
    polyseme.convert_model(model=tmp_path / "mine", to="sentence-transformers", output=tmp_path / "st")
    card = card_in(tmp_path / "st")
    assert (card.data.library_name, card.data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert {"sentence-transformers", "sentence-similarity"} <= set(card.data.tags)
    assert "> The encoder of the model below, without its outputs" in card.text
    (tmp_path / "mine" / "README.md").unlink()
    folder = sentence_folder(tmp_path / "mine", tmp_path / "theirs", "mean")
    (folder / "README.md").unlink()
    polyseme.convert_model(model=folder, output=tmp_path / "again")
    assert card_in(tmp_path / "again").data.pipeline_tag == "sentence-similarity"


def test_a_fine_tuned_model_has_its_scores(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "base")
    rows = [("The vase broke", "bad"), ("Dawn | broke", "good"), ("a crane", "good"), ("the tire is flat", "bad")] * 6
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    report = polyseme.finetune(
        "classify",
        train=tmp_path / "train.csv",
        dev=tmp_path / "dev.csv",
        model=tmp_path / "base",
        output=tmp_path / "stars",
        epochs=1,
        device="cpu",
        unseen="keep",
    )
    card = card_in(tmp_path / "stars")
    assert card.data.pipeline_tag == "text-classification"
    result = card.data.eval_results[0]
    assert (result.dataset_name, result.metric_type) == ("train.csv", "accuracy")
    assert len(card.data.eval_results) == len(report.best.dev)
    assert result.metric_value == pytest.approx(report.best.dev["accuracy"], abs=1e-6)
    assert f"| dev | accuracy | {100 * report.best.dev['accuracy']:.1f} |" in card.text
    assert "Labels: `bad`, `good`" in card.text
    assert "from base." in card.text
    assert "kWh" in card.text
    assert str(tmp_path) not in card.text


def test_figures_without_a_bundle_and_bars_in_cells() -> None:
    content = CardContent(title="a: b", figures=[Figure(metric="f1", value=0.25, split="test")], dataset="My Data!")
    card = ModelCard(model_card(None, content))
    [result] = card.data.eval_results
    assert (result.dataset_type, result.dataset_name, result.metric_value) == ("my-data", "My Data!", 0.25)
    assert table(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |"
