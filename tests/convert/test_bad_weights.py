"""Weights that are damaged, missing, of another model, or no weights at all: a ModelError, whatever the file holds."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyseme
from convert.spoiling import change_config, change_weights, refusal


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True))
def test_safetensors_that_are_cut_short(folder: Path, good: dict[str, Path], share: float) -> None:
    whole = (good["bert"] / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: int(len(whole) * share)])
    message = refusal(folder)
    assert f"The weights in {folder / 'model.safetensors'} cannot be read" in message
    assert "cut short or damaged" in message


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    "content", [b"", b"Dawn broke.\n", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", bytes(4096)]
)
def test_a_text_that_calls_itself_weights(folder: Path, name: str, content: bytes) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    assert f"The weights in {folder / name}" in refusal(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.booleans(), st.floats(0, 1, exclude_max=True), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_damaged_pickles_raise_nothing_of_their_own(
    folder: Path, new: bool, share: float, flips: list[tuple[int, int]]
) -> None:
    """Cut short, and with bytes changed at the beginning, where the names are."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    path = folder / "pytorch_model.bin"
    torch.save({"a": torch.ones(40), "b": torch.ones(3)}, path, _use_new_zipfile_serialization=new)
    content = bytearray(path.read_bytes())
    for place, value in flips:
        content[place % len(content)] = value
    path.write_bytes(content[: int(len(content) * share)])
    refusal(folder)


class Malicious:
    """Runs a command when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.proof}",)


@pytest.mark.parametrize("kind", ["archive", "old", "bare"])
def test_a_pickle_that_would_run_something_is_not_opened(folder: Path, tmp_path: Path, kind: str) -> None:
    (folder / "model.safetensors").unlink()
    path, proof = folder / "pytorch_model.bin", tmp_path / "it-ran"
    content = {"bert.embeddings.word_embeddings.weight": Malicious(proof)}
    if kind == "bare":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "archive")
    assert "can run anything when it is read. Get the weights as safetensors" in refusal(folder)
    assert not proof.exists()


@pytest.mark.parametrize("content", [[torch.ones(2)], {"step": 3}, {0: torch.ones(2)}, torch.ones(2)], ids=str)
def test_a_pickle_of_something_else(folder: Path, content: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    assert "must hold tensors by their names" in refusal(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    message = refusal(folder)
    assert "has a config but no weights" in message
    assert "pytorch_model.bin" in message


@pytest.mark.parametrize(
    ("name", "value", "tensor"),
    [
        ("hidden_size", 64, "encoder.embeddings.pieces.weight"),
        ("vocab_size", 1000, "encoder.embeddings.pieces.weight"),
        ("intermediate_size", 128, "encoder.layers.0.feed_forward.up.weight"),
        ("max_position_embeddings", 512, "encoder.embeddings.positions.table.weight"),
        ("type_vocab_size", 1, "encoder.embeddings.segments.weight"),
    ],
)
def test_sizes_that_are_not_those_of_the_weights(folder: Path, name: str, value: int, tensor: str) -> None:
    change_config(folder, **{name: value})
    message = refusal(folder)
    assert f"The config in {folder} does not match its weights: " in message
    assert tensor in message


@pytest.mark.parametrize(
    ("n_layers", "said"),
    [(4, "it lacks bert.encoder.layer.3."), (2, "it has bert.encoder.layer.2.attention.output.LayerNorm.bias")],
)
def test_more_or_fewer_layers_than_there_are_weights_for(folder: Path, n_layers: int, said: str) -> None:
    change_config(folder, num_hidden_layers=n_layers)
    assert said in refusal(folder)


def test_a_tensor_is_missing_and_another_has_no_place(folder: Path) -> None:
    def misspell(tensors: dict[str, torch.Tensor]) -> None:
        tensors["bert.encoder.layer.1.output.dense.wait"] = tensors.pop("bert.encoder.layer.1.output.dense.weight")

    change_weights(folder, misspell)
    message = refusal(folder)
    assert "it lacks bert.encoder.layer.1.output.dense.weight" in message
    assert "it has bert.encoder.layer.1.output.dense.wait, which nothing here takes" in message


def test_a_tensor_under_its_old_and_its_new_name(folder: Path) -> None:
    def double(tensors: dict[str, torch.Tensor]) -> None:
        tensors["bert.embeddings.LayerNorm.gamma"] = tensors["bert.embeddings.LayerNorm.weight"] + 1

    change_weights(folder, double)
    assert "bert.embeddings.LayerNorm" in refusal(folder)


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (torch.int64, "query.weight' holds int64, and weights are floating-point numbers"),
        (torch.bool, "query.weight' holds bool, and weights are floating-point numbers"),
        (torch.float8_e4m3fn, "query.weight (32, 32) in float8_e4m3fn, "),
    ],
    ids=str,
)
def test_queries_that_are_of_another_type_than_keys(folder: Path, dtype: torch.dtype, said: str) -> None:
    def retype(tensors: dict[str, torch.Tensor]) -> None:
        name = "bert.encoder.layer.0.attention.self.query.weight"
        tensors[name] = tensors[name].to(dtype)

    change_weights(folder, retype)
    assert said in refusal(folder)


def test_queries_that_are_of_another_shape_than_keys(folder: Path) -> None:
    def shrink(tensors: dict[str, torch.Tensor]) -> None:
        tensors["bert.encoder.layer.0.attention.self.query.weight"] = torch.ones(16, 16)

    change_weights(folder, shrink)
    assert "bert.encoder.layer.0.attention.self.query.weight (16, 16)" in refusal(folder)


def test_an_output_that_should_share_the_table_of_pieces_and_does_not(folder: Path) -> None:
    def untie(tensors: dict[str, torch.Tensor]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1

    change_weights(folder, untie)
    assert "set 'tie_word_embeddings' to false in config.json" in refusal(folder)


# --- shards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(good: dict[str, Path], tmp_path: Path) -> Path:
    polyseme.load(good["bert"]).save(tmp_path / "sharded", shard_size=20_000)
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 3
    return tmp_path / "sharded"


def test_a_shard_is_missing(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*.safetensors"))[2]
    shard.unlink()
    assert f"names the shard {shard.name!r}, which is not in the folder" in refusal(sharded)


def test_a_shard_is_cut_short(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-10])
    assert f"The weights in {shard} cannot be read" in refusal(sharded)


def test_a_shard_does_not_hold_what_the_index_promises(sharded: Path) -> None:
    first, second = sorted(sharded.glob("model-*.safetensors"))[:2]
    shutil.copy(first, second)
    assert "which its shard does not hold" in refusal(sharded)


@pytest.mark.parametrize("content", ['{"metadata": {}}', '{"weight_map": []}', '{"weight_map": {"a": 1, "b": null}}'])
def test_an_index_that_is_none(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    assert "has no 'weight_map'" in refusal(sharded)
