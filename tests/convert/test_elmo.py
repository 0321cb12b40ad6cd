"""ELMo's files: options and weights load and save to the bit; what does not belong together is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import polyseme
from golden_elmo import GOLDEN, content
from polyseme.bundle import count_parameters
from polyseme.convert.elmo import FAMILY, SIZES, read_config, write_config
from polyseme.errors import ModelError, OptionError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.text.character_tokenizer import CharacterTokenizer

FOLDERS = ["allennlp", "bilm-tf", "random"]


@pytest.mark.parametrize("name", ["small", "medium", "original", "5.5B"])
def test_the_releases_have_as_many_parameters_as_published(name: str) -> None:
    config = read_config(content(f"options/{name}"), "options.json")
    assert config == SIZES[f"elmo-{name.lower()}"]
    assert count_parameters("elmo", config, []) == content("options/parameter_counts")[name]["total"]
    assert write_config(config) == content(f"options/{name}")


def test_the_figures_themselves() -> None:
    counts = {name: count_parameters("elmo", config, []) for name, config in SIZES.items()}
    assert counts == {
        "elmo-small": 13_593_296,
        "elmo-medium": 28_027_728,
        "elmo-original": 93_600_848,
        "elmo-5.5b": 93_600_848,
    }


def datasets(folder: Path) -> dict[str, Any]:
    [path] = folder.glob("*weights.hdf5")
    found: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_was_published_is_saved_to_the_bit(folder: str, tmp_path: Path) -> None:
    """Every dataset under its name, and the same options; the saved folder loads, and saves the same files."""
    bundle = load_bundle(GOLDEN / folder)
    assert isinstance(bundle.tokenizer, CharacterTokenizer)
    save_bundle(bundle, tmp_path / "once")
    assert sorted(path.name for path in (tmp_path / "once").iterdir()) == [
        "options.json",
        "polyseme.json",
        "weights.hdf5",
    ]
    before, after = datasets(GOLDEN / folder), datasets(tmp_path / "once")
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        np.testing.assert_array_equal(after[name], array)
    [options] = (GOLDEN / folder).glob("*options.json")
    assert json.loads((tmp_path / "once" / "options.json").read_text()) == json.loads(options.read_text())
    save_bundle(load_bundle(tmp_path / "once"), tmp_path / "twice")
    for path in (tmp_path / "once").iterdir():
        assert (tmp_path / "twice" / path.name).read_bytes() == path.read_bytes()


def test_a_loaded_model_says_what_it_is(tmp_path: Path) -> None:
    model = polyseme.load(GOLDEN / "allennlp")
    card = model.show()
    assert (card.family, card.direction, card.layers, card.width, card.window) == ("elmo", "two-way", 2, 32, None)
    assert card.outputs == ()
    assert card.can == (
        "embed",
        "similar",
        "senses",
        "concordance",
        "compare",
        "pieces",
        "convert",
        "finetune",
        "benchmark",
        "probe",
        "geometry",
        "uses",
        "cells",
    )
    found = model.pieces("Dawn broke.")
    assert found.pieces == ["<S>", "Dawn", "broke", ".", "</S>"]
    assert found.states.shape == (3, 5, 32)
    assert {model.embed("Dawn broke.", layer=layer)[0].vectors.shape for layer in (0, 1, 2, "mix")} == {(3, 32)}
    with pytest.raises(ModelError, match="no 'masked' output"):
        model.fill("Dawn [MASK].")


def test_a_run_s_folder_stands_for_its_model(tmp_path: Path) -> None:
    save_bundle(load_bundle(GOLDEN / "allennlp"), tmp_path / "model")
    assert load_bundle(tmp_path).family is FAMILY


def test_other_precisions_are_kept_as_hdf5_can(tmp_path: Path) -> None:
    for dtype, stored in ((torch.float64, np.float64), (torch.bfloat16, np.float32)):
        save_bundle(load_bundle(GOLDEN / "allennlp", dtype=dtype), tmp_path / str(stored.__name__))
        assert {array.dtype for array in datasets(tmp_path / str(stored.__name__)).values()} == {np.dtype(stored)}
    with pytest.raises(OptionError, match="cannot be cut into shards"):
        save_bundle(load_bundle(GOLDEN / "allennlp"), tmp_path / "shards", shard_size=1000)
    assert not (tmp_path / "shards").exists()


def test_options_of_a_model_in_training_count_no_padding() -> None:
    options = content("options/small")
    options = {**options, "char_cnn": {**options["char_cnn"], "n_characters": 261}}
    assert read_config(options, "options.json") == SIZES["elmo-small"]


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound model to spoil, under names as they were published."""
    place = tmp_path / "elmo"
    place.mkdir()
    shutil.copy(GOLDEN / "allennlp" / "options.json", place / "elmo_2x64_options.json")
    shutil.copy(GOLDEN / "allennlp" / "lm_weights.hdf5", place / "elmo_2x64_weights.hdf5")
    (place / "elmo_2x64_options.json").chmod(0o644)
    (place / "elmo_2x64_weights.hdf5").chmod(0o644)
    return place


def change_options(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "elmo_2x64_options.json"
    options = json.loads(path.read_text())
    change(options)
    path.write_text(json.dumps(options))


def refused(folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_bundle(folder)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_published_names_are_found(folder: Path) -> None:
    assert load_bundle(folder).n_parameters() == sum(array.size for array in datasets(folder).values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda options: options["lstm"].update(dim=32), "does not match its weights"),
        (lambda options: options["lstm"].update(projection_dim=8), "does not match its weights"),
        (lambda options: options["lstm"].update(n_layers=3), "it lacks RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0"),
        (lambda options: options["lstm"].update(n_layers=1), "which nothing here takes"),
        (lambda options: options["char_cnn"].update(n_highway=3), "it lacks CNN_high_2/"),
        (lambda options: options["char_cnn"].update(n_highway=1), "which nothing here takes"),
        (lambda options: options["char_cnn"]["filters"].pop(), "which nothing here takes"),
        (lambda options: options["char_cnn"]["filters"].append([6, 7]), "it lacks CNN/W_cnn_5"),
        (lambda options: options["char_cnn"]["embedding"].update(dim=5), "does not match its weights"),
    ],
)
def test_options_and_weights_that_do_not_belong_together(
    folder: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    change_options(folder, change)
    said = refused(folder)
    assert message in said
    assert "Check that the settings and the weights belong together." in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda options: options["char_cnn"].update(n_characters=300), "'n_characters' must be 262"),
        (lambda options: options["char_cnn"].update(activation="gelu"), "'activation' must be relu or tanh"),
        (lambda options: options["char_cnn"].update(filters=[[1]]), "'filters' must be a list of pairs"),
        (lambda options: options["char_cnn"].update(filters=[[0, 4]]), "'filters' must be a whole number"),
        (lambda options: options["char_cnn"].update(max_characters_per_token=4), "spans 5 characters"),
        (lambda options: options["char_cnn"].pop("embedding"), "no part 'embedding'"),
        (lambda options: options["lstm"].pop("dim"), "'dim' must be a whole number"),
        (lambda options: options["lstm"].update(cell_clip=-1), "'cell_clip' must be a number above 0"),
        (lambda options: options["lstm"].update(use_skip_connections="yes"), "'use_skip_connections' must be true"),
    ],
)
def test_options_that_cannot_be(folder: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    change_options(folder, change)
    said = refused(folder)
    assert message in said
    assert "elmo_2x64_options.json" in said


def test_missing_and_strange_datasets(folder: Path) -> None:
    with h5py.File(folder / "elmo_2x64_weights.hdf5", "a") as file:
        del file["char_embed"]
        file["lstm_embed"] = np.zeros(3, np.float32)
    said = refused(folder)
    assert "it lacks char_embed" in said
    assert "it has lstm_embed, which nothing here takes" in said
    with h5py.File(folder / "elmo_2x64_weights.hdf5", "a") as file:
        del file["lstm_embed"]
        file["char_embed"] = np.zeros((261, 4), np.int64)
    assert "'char_embed' holds int64" in refused(folder)


def test_a_gate_matrix_of_the_wrong_shape(folder: Path) -> None:
    name = "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"
    with h5py.File(folder / "elmo_2x64_weights.hdf5", "a") as file:
        array = file[name][()]
        del file[name]
        file[name] = array.T
    assert "does not match its weights" in refused(folder)


def test_damaged_lost_and_several_files(folder: Path) -> None:
    weights = folder / "elmo_2x64_weights.hdf5"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "cut short or damaged" in refused(folder)
    weights.write_bytes(b"nothing of the kind")
    assert "cut short or damaged" in refused(folder)
    weights.unlink()
    assert "no weights. Looked for: *weights.hdf5" in refused(folder)
    (folder / "one_weights.hdf5").write_bytes(whole)
    (folder / "other_weights.hdf5").write_bytes(whole)
    assert "several models of ELMo's: one_weights.hdf5, other_weights.hdf5" in refused(folder)
    (folder / "elmo_2x64_options.json").write_text("{}")
    assert "is no model" in refused(folder)


def test_files_of_two_models_by_their_names_are_refused(folder: Path) -> None:
    """What stands before `options.json` and `weights.hdf5` is the model's name; a bare name fits any."""
    (folder / "elmo_2x64_weights.hdf5").rename(folder / "elmo_2x32_weights.hdf5")
    said = refused(folder)
    assert "elmo_2x64_options.json" in said
    assert "elmo_2x32_weights.hdf5" in said
    (folder / "elmo_2x64_options.json").rename(folder / "options.json")
    assert load_bundle(folder).family is FAMILY


@pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
def test_a_bare_name_beside_another_of_its_kind_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / f"elmo_2x64_{name}").read_bytes())
    assert f"several models of ELMo's: elmo_2x64_{name}, {name}" in refused(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(folder: Path, value: float) -> None:
    with h5py.File(folder / "elmo_2x64_weights.hdf5", "a") as file:
        file["CNN_proj/b_proj"][1] = value
    assert "'encoder.forwards.tokens.projection.bias' holds numbers that are none (NaN)" in refused(folder)
