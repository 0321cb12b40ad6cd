"""A folder that is no model, or a model with the tokenizer of another: refused in one paragraph, a ModelError."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polyseme
from convert.spoiling import refusal
from tiny_models import tiny_model, tiny_tokenizer, wordpiece, write_tokenizer


def test_the_sound_folders_load(good: dict[str, Path]) -> None:
    for name, folder in good.items():
        assert polyseme.load(folder).show().family == name


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nowhere")
    assert "nowhere" in message
    assert "hub:owner/name" in message


def test_a_file_is_no_folder(folder: Path) -> None:
    assert "A model is a folder" in refusal(folder / "config.json")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Dawn broke.")
    assert f"The folder {tmp_path} is no model: it has no config.json" in refusal(tmp_path)


# --- the tokenizer and the card ---------------------------------------------------------------------------------------


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()
    assert "has no tokenizer" in refusal(folder)


def n_pieces(family: str) -> int:
    return tiny_tokenizer(family).n_pieces


def test_the_tokenizer_of_a_larger_model(folder: Path) -> None:
    write_tokenizer("roberta", folder)
    assert f"has {n_pieces('roberta')} pieces and the model {n_pieces('bert')}." in refusal(folder)


def test_the_tokenizer_of_a_smaller_model(tmp_path: Path) -> None:
    tiny_model("bert", n_pieces=1000).save(tmp_path / "large")
    assert f"has {n_pieces('bert')} pieces and the model 1,000." in refusal(tmp_path / "large")


def test_another_tokenizer_of_the_same_size(folder: Path) -> None:
    """Here only what was written down when the model was saved can tell."""
    other = wordpiece(lowercase=False)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    pieces = list(vocabulary)
    pieces[100], pieces[101] = pieces[101], pieces[100]
    settings = json.loads(other.to_str())
    settings["model"]["vocab"] = {piece: id for id, piece in enumerate(pieces)}
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    assert "is not the one the model was saved with" in refusal(folder)
    (folder / "polyseme.json").unlink()
    assert polyseme.load(folder).show().vocabulary == len(pieces)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "WordPiece"}}', "\x00"])
def test_a_tokenizer_file_that_is_damaged(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    assert str(folder / "tokenizer.json") in refusal(folder)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_card_that_is_damaged(folder: Path, content: str) -> None:
    (folder / "polyseme.json").write_text(content)
    assert str(folder / "polyseme.json") in refusal(folder)
