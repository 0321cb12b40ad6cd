"""Distillation by one call: students of a language model, stopped and gone on with, refused where they must be."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForMaskedLM

import polyseme
from polyseme.bundle import new_bundle
from polyseme.cli import main
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.training.effects import read_log
from polyseme.types import Batch
from tiny_models import tiny_config, tiny_tokenizer
from training.kills import interrupted_at, write_text

SHAPE = {"n_layers": 3, "width": 16, "n_heads": 2, "inner_width": 32}
SMALL: dict[str, Any] = {"budget": "6steps", "batch_size": 8, "length": 16, "device": "cpu", "log_every": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, and a teacher that was trained on it."""
    place = tmp_path_factory.mktemp("distilled")
    write_text(place / "text.txt")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(
            place / "text.txt", output=place / "teacher", recipe="bert-tiny", shape=SHAPE, vocab_size=300, **SMALL
        )
    return place


@pytest.fixture(scope="module")
def student(folder: Path) -> Path:
    place = folder / "student"
    polyseme.distill(folder / "teacher/corpus", model=folder / "teacher", layers=2, output=place, **SMALL)
    return place


def test_a_student_is_a_model_like_others(folder: Path, student: Path) -> None:
    """With the teacher's tokenizer and embeddings at first, in `transformers` too; its card names the teacher."""
    model, teacher = polyseme.load(student), polyseme.load(folder / "teacher")
    assert (model.bundle.config.depth, teacher.bundle.config.depth) == (2, 3)
    assert model.bundle.tokenizer.fingerprint == teacher.bundle.tokenizer.fingerprint  # type: ignore[union-attr]
    assert polyseme.fill("the [MASK] broke", model=model)
    theirs = AutoModelForMaskedLM.from_pretrained(student / "model").eval()
    pieces = torch.randint(5, 100, (2, 7))
    batch = Batch(pieces)
    with torch.no_grad():
        ours = model.bundle.outputs["masked"].logits(model.bundle.encoder(batch)[-1])  # type: ignore[operator]
        assert torch.allclose(theirs(pieces).logits, ours, atol=1e-5)
    assert "Distilled from model, beginning with its layers 1, 3," in (student / "model/README.md").read_text()


def test_the_parts_of_the_loss_are_logged_and_weighted(student: Path) -> None:
    settings = json.loads((student / "run.json").read_text())["settings"]
    assert settings["taken_layers"] == [1, 3]
    assert settings["objective"]["name"] == "distilled"
    for line in read_log(student):
        assert line["loss"] == pytest.approx(5 * line["soft"] + 2 * line["masked"] + line["cosine"])
        assert min(line["soft"], line["cosine"]) > 0


def test_a_student_that_is_stopped_ends_as_if_it_had_not(folder: Path, student: Path, tmp_path: Path) -> None:
    """Resumed by the same call; so the teacher, which no checkpoint holds, is there again."""
    call = {"model": folder / "teacher", "layers": 2, "output": tmp_path / "again", **SMALL}
    with interrupted_at(4):
        polyseme.distill(folder / "teacher/corpus", **call)
    polyseme.distill(folder / "teacher/corpus", **call)
    losses = [[line["loss"] for line in read_log(run)] for run in (tmp_path / "again", student)]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_another_student_learns_from_text(folder: Path, student: Path, tmp_path: Path) -> None:
    """A narrower one of another family, by a recipe, from the texts; and a model that is there, further."""
    polyseme.distill(
        folder / "text.txt",
        model=folder / "teacher",
        recipe="modern-tiny",
        shape={"n_layers": 2, "width": 8, "n_heads": 2, "inner_width": 16},
        output=tmp_path / "narrow",
        **SMALL,
    )
    narrow = load_bundle(tmp_path / "narrow")
    assert (narrow.family.name, narrow.config.widths[-1]) == ("modernbert", 8)
    assert set(narrow.outputs) == {"masked"}
    ledger = polyseme.distill(
        folder / "teacher/corpus", model=folder / "teacher", student=student, output=tmp_path / "further", **SMALL
    )
    assert ledger.steps == 6  # type: ignore[union-attr]
    assert load_bundle(tmp_path / "further").config.depth == 2


def test_a_causal_model_is_distilled(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    config = tiny_config("gpt2", n_layers=2)
    save_bundle(new_bundle(FAMILIES["gpt2"], config, ["causal"], tiny_tokenizer("gpt2")), tmp_path / "gpt")
    with caplog.at_level("INFO", logger="polyseme"):
        polyseme.distill(folder / "text.txt", model=tmp_path / "gpt", output=tmp_path / "small", **SMALL)
    assert "the student begins with layer 1 of the teacher's 2" in caplog.text
    assert load_bundle(tmp_path / "small").config.depth == 1
    assert read_log(tmp_path / "small")[-1].keys() >= {"soft", "causal", "cosine"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no teacher": ({"model": None}, "There is no teacher"),
    "no layer": ({"layers": 0}, r"has 3 layers, of which 1 to 3 can be taken\. Got 0"),
    "more layers": ({"layers": 4}, "a student has no more layers than its teacher. Got 4"),
    "two students": ({"layers": 2, "recipe": "bert-tiny"}, "layers and recipe name several"),
    "a wider student": ({"recipe": "modern-tiny"}, r"larger than its teacher: 128 wide against the 16"),
    "a deeper student": ({"recipe": "bert-tiny", "shape": {**SHAPE, "n_layers": 4}}, "4 layers against the 3"),
    "a corpus of another vocabulary": ({"model": "another"}, "has another tokenizer .* than the corpus"),
    "a student of another vocabulary": ({"student": "another"}, "The teacher .* has another vocabulary"),
    "no output": ({"model": "bare"}, r"bare has no output 'masked' \(it has: pooled\)"),
    "a decoder": ({"model": "bart"}, "has two stacks"),
    "its teacher among the settings": ({"objective": {"teacher": "x"}}, "named by -m"),
    "a setting that there is not": ({"objective": {"soft_weigh": 1}}, "Did you mean 'soft_weight'"),
    "no text": ({"sources": None}, "There is nothing to train on"),
}


@pytest.fixture(scope="module")
def others(folder: Path) -> Path:
    """Models that are no teachers here."""
    made = {"another": ("bert", ["masked"]), "bart": ("bart", ["causal"])}
    for name, (family, outputs) in made.items():
        config = tiny_config(family, n_layers=3)
        save_bundle(new_bundle(FAMILIES[family], config, outputs, tiny_tokenizer(family)), folder / name)
    teacher = load_bundle(folder / "teacher")
    bare = new_bundle(FAMILIES["bert"], teacher.config, ["pooled"], teacher.tokenizer)
    save_bundle(bare, folder / "bare")
    return folder


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_is_left(case: str, others: Path, tmp_path: Path) -> None:
    changes, said = REFUSED[case]
    call: dict[str, Any] = {"sources": others / "teacher/corpus", "model": others / "teacher", **SMALL, **changes}
    call |= {name: others / changes[name] for name in ("model", "student") if isinstance(changes.get(name), str)}
    with pytest.raises(OptionError, match=said) as error:
        polyseme.distill(**call, output=tmp_path / "out")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_refuses_with_two_and_runs_dry(folder: Path, tmp_path: Path) -> None:
    texts, teacher = str(folder / "teacher/corpus"), str(folder / "teacher")
    refused = CliRunner().invoke(main, ["distill", texts, "-m", teacher, "--layers", "0", "-o", str(tmp_path / "out")])
    assert refused.exit_code == 2
    assert "of which 1 to 3 can be taken" in refused.output
    line = ["distill", texts, "-m", teacher, "--budget", "100steps", "--batch-size", "8", "--length", "16"]
    dry = CliRunner().invoke(main, [*line, "--device", "cpu", "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert "100 steps" in dry.output
