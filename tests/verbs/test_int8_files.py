"""Models stored in int8: a smaller file that computes, to the last bit, what the full one does with --dtype int8."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import polyseme
from polyseme.convert.families import FAMILIES
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.parts.quantized_linear import from_int8, to_int8
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import small_task

TEXTS = ["Dawn broke: unbelievable, misunderstandings!", "A crane.", "the vase broke"]
TRANSFORMERS = [name for name, family in FAMILIES.items() if family.kind == "transformer"]
IN_SHORT = ("bert", "gpt2")
OTHERS = [name for name in ("elmo", "lstm", "static", "nnlm") if name in FAMILIES]


@pytest.fixture(autouse=True)
def without_the_note_on_missing_instructions() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This processor has no instructions", PolysemeWarning)
        yield


def converted(model: Path, output: Path, **options: Any) -> Path:
    polyseme.convert_model(model=model, output=output, **options)
    return output


def vectors(folder: Path, **options: Any) -> Any:
    return np.concatenate([each.vectors for each in polyseme.load(folder, device="cpu", **options).embed(TEXTS)])


def saved(family: str, folder: Path) -> Path:
    tiny_model(family).save(folder)
    return folder


def test_a_matrix_is_rounded_once() -> None:
    """Also where rows are zeros, tiny or huge; no number is farther off than half of its row's step."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(400, 70, generator=generator) * torch.logspace(-20, 20, 400)[:, None]
    weight[7] = 0
    whole, scale = to_int8(weight)
    again = to_int8(from_int8(whole, scale))
    assert torch.equal(again[0], whole)
    assert torch.equal(again[1], scale)
    assert int(whole.abs().max()) == 127
    error = (from_int8(whole, scale).double() - weight.double()).abs()
    assert bool((error <= 0.5001 * scale[:, None].double()).all())


@pytest.mark.parametrize(
    "family", [name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.slow) for name in TRANSFORMERS]
)
def test_it_computes_what_the_full_model_does_in_int8(family: str, tmp_path: Path) -> None:
    full = saved(family, tmp_path / "full")
    small = converted(full, tmp_path / "small", dtype="int8")
    expected = vectors(full, dtype="int8")
    assert np.array_equal(vectors(small), expected)
    assert np.array_equal(vectors(small, dtype="int8"), expected)
    assert not np.array_equal(vectors(full), expected)


def test_the_file_is_smaller_and_no_other_library_reads_it(tmp_path: Path) -> None:
    from transformers import AutoModel

    full = saved("bert", tmp_path / "full")
    small = converted(full, tmp_path / "small", dtype="int8")
    assert {path.name for path in full.iterdir()} ^ {path.name for path in small.iterdir()} == {
        "model.safetensors",
        "model.int8.safetensors",
    }
    tensors, whole = load_file(small / "model.int8.safetensors"), load_file(full / "model.safetensors")
    in_int8 = [name for name, each in tensors.items() if each.dtype == torch.int8]
    assert len(in_int8) == 3 * 6  # three layers with queries, keys, values, output, up and down
    n_scales = sum(whole[name].shape[0] for name in in_int8)
    before, after = (sum(each.nbytes for each in each_file.values()) for each_file in (whole, tensors))
    assert before - after == 3 * sum(whole[name].numel() for name in in_int8) - 4 * n_scales
    setting = json.loads((small / "config.json").read_text())["quantization_config"]
    assert "polyseme only" in setting["read_by"]
    assert "polyseme alone loads" in (small / "README.md").read_text()
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        AutoModel.from_pretrained(small)


def test_out_of_int8_again_other_libraries_read_it(tmp_path: Path) -> None:
    """In fp32 it is the rounded model, whose int8 is itself; nothing in the folder says int8 any more."""
    small = converted(saved("bert", tmp_path / "full"), tmp_path / "small", dtype="int8", shard_size=20_000)
    assert len(list(small.glob("model.int8-*.safetensors"))) > 1
    back = converted(small, tmp_path / "back", dtype="fp32")
    assert np.array_equal(vectors(back), vectors(small, dtype="fp32"))
    assert np.array_equal(vectors(back, dtype="int8"), vectors(small))
    assert "int8" not in (back / "config.json").read_text() + (back / "README.md").read_text()
    copy = converted(small, tmp_path / "copy")
    assert np.array_equal(vectors(copy), vectors(small))
    assert polyseme.load(copy, device="cpu").dtype == "int8"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param("tag", {"layer": "mix"}, marks=pytest.mark.slow),
        pytest.param("classify", {"readout": "pooled"}, marks=pytest.mark.slow),
        pytest.param("choose", {}, marks=pytest.mark.slow),
        ("tag", {"frozen": True}),
        pytest.param("classify", {"frozen": True, "readout": "first"}, marks=pytest.mark.slow),
    ],
)
def test_a_task_model_too(kind: str, settings: dict[str, Any], tmp_path: Path, caplog: Any) -> None:
    """It predicts, to the last bit, what the full one does in int8; which is near what that does in fp32."""
    task = small_task(kind, n_train=48, n_dev=16)
    done = finetune_task(task, tiny_model("bert").bundle, FinetuneSettings(epochs=1, **settings))
    save_task_model(done.model, tmp_path / "full", files={"report.json": "{}"})
    with caplog.at_level(logging.INFO, "polyseme"):
        small = converted(tmp_path / "full", tmp_path / "small", dtype="int8")
    assert "polyseme alone reads" in caplog.text
    assert (small / "report.json").read_text() == "{}"
    items = task.splits["dev"]
    full, own, in_fp32, loaded = (
        [(each.answer, np.array(each.probabilities)) for each in judge(model, prepare(model, items, learning=False))]
        for model in (
            load_task_model(tmp_path / "full", dtype="int8"),
            load_task_model(small),
            load_task_model(tmp_path / "full"),
            polyseme.load(small, device="cpu").task_model[0],
        )
    )
    for (answer, expected), (one, ours), (other, theirs) in zip(full, own, loaded, strict=True):
        assert answer == one == other
        assert np.array_equal(ours, expected)
        assert np.array_equal(theirs, expected)
    largest = max(np.abs(one - other).max() for (_, one), (_, other) in zip(full, in_fp32, strict=True))
    assert 0 < largest < 0.2


def test_bad_input(tmp_path: Path) -> None:
    full = saved("bert", tmp_path / "full")
    small = converted(full, tmp_path / "small", dtype="int8")
    for options, message in (
        ({"model": small, "dtype": "int8"}, "in int8 already"),
        ({"model": full, "dtype": "bf16"}, "--store fp32 or fp16 or bf16"),
        ({"model": full, "dtype": "int8", "to": "transformers"}, "Other libraries do not read"),
        ({"model": full, "dtype": "int8", "to": "sentence-transformers"}, "Other libraries do not read"),
    ):
        with pytest.raises((ModelError, OptionError), match=message):
            polyseme.convert_model(output=tmp_path / "out", **options)
    for family in OTHERS:
        with pytest.raises(OptionError, match=f"the family {family} have no products in int8"):
            converted(saved(family, tmp_path / family), tmp_path / "out", dtype="int8")
    task, settings = small_task("tag", n_train=16, n_dev=8), FinetuneSettings(epochs=1, stack="decoder")
    done = finetune_task(task, tiny_model("t5").bundle, settings)
    with pytest.raises(OptionError, match="reads a decoder, too"):
        done.model.run_in_int8()
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    small = converted(saved("bert", tmp_path / "full"), tmp_path / "small", dtype="int8")
    file = small / "model.int8.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.startswith("int8_scales."))
    save_file({**tensors, name: tensors[name][1:].clone()}, file)
    with pytest.raises(ModelError, match="do not belong together"):
        polyseme.load(small, device="cpu")
    save_file({key: each for key, each in tensors.items() if key != name}, file)
    with pytest.raises(ModelError, match="do not belong together"):
        polyseme.load(small, device="cpu")
