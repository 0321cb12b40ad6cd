"""Hugging Face folders come in, in every layout they are published in, with equal states and outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import polyseme
from conformance.cases import REFERENCED
from convert.comparing import TEXT, assert_same_states, our_outputs, their_outputs
from polyseme.api import Model
from polyseme.convert.families import FAMILIES
from polyseme.errors import PolysemeWarning
from references import make_reference, reference_class
from tiny_models import tiny_config, wordpiece, write_tokenizer

ARCHITECTURES = [(name, each) for name, family in REFERENCED.items() for each, _ in family.architectures]


@cache
def reference_of(family: str, architecture: str = "") -> Any:
    """A reference with every output that one class of its family has, in fp32; do not change it."""
    chosen = FAMILIES[family]
    return make_reference(chosen, architecture or chosen.architectures[0][0], tiny_config(family)).float()


def write_config(reference: Any, folder: Path, family: str) -> None:
    """All of a model folder but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    reference.config.architectures = [type(reference).__name__]
    reference.config.save_pretrained(folder)
    write_tokenizer(family, folder)


def save_pickled(tensors: Mapping[str, Tensor], folder: Path, *, new: bool = True) -> None:
    torch.save(dict(tensors), folder / "pytorch_model.bin", _use_new_zipfile_serialization=new)


def save_pickled_shards(tensors: Mapping[str, Tensor], folder: Path) -> None:
    names = list(tensors)
    places = {name: f"pytorch_model-{number % 3 + 1:05d}-of-00003.bin" for number, name in enumerate(names)}
    for shard in set(places.values()):
        torch.save({name: tensors[name] for name in names if places[name] == shard}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


LAYOUTS: dict[str, tuple[str, Callable[[Any, Path], None]]] = {
    "safetensors": ("model.safetensors", lambda model, folder: model.save_pretrained(folder)),
    "sharded safetensors": (
        "model-00002-of-*.safetensors",
        lambda model, folder: model.save_pretrained(folder, max_shard_size="20KB"),
    ),
    "pickled": ("pytorch_model.bin", lambda model, folder: save_pickled(model.state_dict(), folder)),
    "pickled as before 2020": (
        "pytorch_model.bin",
        lambda model, folder: save_pickled(model.state_dict(), folder, new=False),
    ),
    "sharded pickled": (
        "pytorch_model-00002-of-*.bin",
        lambda model, folder: save_pickled_shards(model.state_dict(), folder),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", REFERENCED)
def test_every_layout_loads_with_equal_states(family: str, layout: str, tmp_path: Path) -> None:
    pattern, save = LAYOUTS[layout]
    reference = reference_of(family)
    save(reference, tmp_path)
    write_config(reference, tmp_path, family)
    assert list(tmp_path.glob(pattern))
    assert_same_states(polyseme.load(tmp_path), reference.base_model)


@pytest.mark.parametrize(("family", "architecture"), ARCHITECTURES)
def test_the_outputs_of_every_class_load_with_equal_logits(family: str, architecture: str, tmp_path: Path) -> None:
    reference = reference_of(family, architecture)
    reference.save_pretrained(tmp_path)
    write_config(reference, tmp_path, family)
    model = polyseme.load(tmp_path)
    expected = their_outputs(reference, model)
    found = our_outputs(model)
    assert set(expected) <= set(found)
    assert set(expected) >= dict(FAMILIES[family].architectures)[architecture] - {"pooled"}
    for name, logits in expected.items():
        logits.check(found[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["safetensors", "pickled"])
def test_weights_stored_in_half_load_exactly(layout: str, dtype: torch.dtype, tmp_path: Path) -> None:
    reference = make_reference(FAMILIES["bert"], "BertForPreTraining", tiny_config("bert")).to(dtype)
    LAYOUTS[layout][1](reference, tmp_path)
    write_config(reference, tmp_path, "bert")
    model = polyseme.load(tmp_path)
    table = model.bundle.encoder.piece_table()
    assert table is not None
    assert {parameter.dtype for parameter in model.bundle.parameters()} == {torch.float32}
    assert torch.equal(table, reference.base_model.embeddings.word_embeddings.weight.float())
    assert_same_states(model, reference.base_model.float())


def test_names_of_old_are_read(tmp_path: Path) -> None:
    """Norms had gamma and beta, and a model trained on several devices calls everything `module.`."""
    reference = reference_of("bert")
    write_config(reference, tmp_path, "bert")
    old_names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for name, value in reference.state_dict().items():
        for new_ending, old_ending in old_names.items():
            name = name.replace(new_ending, old_ending)
        old[f"module.{name}"] = value
    assert any(name.endswith("gamma") for name in old)
    save_pickled(old, tmp_path, new=False)
    assert_same_states(polyseme.load(tmp_path), reference.base_model)


def test_an_output_with_a_table_of_its_own(tmp_path: Path) -> None:
    reference = make_reference(
        FAMILIES["bert"], "BertForMaskedLM", tiny_config("bert"), tie_word_embeddings=False
    ).float()
    table, pieces = reference.cls.predictions.decoder.weight, reference.base_model.embeddings.word_embeddings.weight
    assert not torch.equal(table, pieces)
    reference.save_pretrained(tmp_path)
    write_config(reference, tmp_path, "bert")
    model = polyseme.load(tmp_path)
    their_outputs(reference, model)["masked"].check(our_outputs(model)["masked"])


def test_a_task_layer_is_left_out_and_said(tmp_path: Path) -> None:
    reference = make_reference(FAMILIES["bert"], "BertForTokenClassification", tiny_config("bert")).float()
    reference.save_pretrained(tmp_path)
    write_config(reference, tmp_path, "bert")
    with pytest.warns(PolysemeWarning, match=r"task layer of another library \(classifier.bias, classifier.weight\)"):
        model = polyseme.load(tmp_path)
    assert not model.bundle.outputs
    assert_same_states(model, reference.base_model)


def test_spanbert_loads_as_bert(tmp_path: Path) -> None:
    """Its folder: a config of the first years, which names no type; a cased vocab.txt; halves; no pooler."""
    tokenizer = wordpiece(lowercase=False)
    config = tiny_config("bert", n_pieces=tokenizer.get_vocab_size())
    reference = make_reference(FAMILIES["bert"], "BertModel", config).half()
    settings = {**FAMILIES["bert"].write_config(config), "directionality": "bidi", "pooler_fc_size": 768}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)) + "\n")
    tensors = {f"bert.{name}": value for name, value in reference.state_dict().items() if "pooler" not in name}
    save_pickled(tensors, tmp_path, new=False)
    model = polyseme.load(tmp_path)
    assert model.show().family == "bert"
    assert model.show().outputs == ()
    assert "The" in model.pieces(TEXT).pieces
    assert_same_states(model, reference.float())


def test_a_run_stands_for_its_model(tmp_path: Path) -> None:
    reference = reference_of("electra")
    folder = tmp_path / "run" / "model"
    reference.save_pretrained(folder)
    write_config(reference, folder, "electra")
    (tmp_path / "run" / "run.json").write_text("{}")
    assert_same_states(polyseme.load(tmp_path / "run"), reference.base_model)


def test_a_model_computes_in_the_precision_asked_for(tmp_path: Path) -> None:
    reference = reference_of("bert", "BertModel")
    reference.save_pretrained(tmp_path)
    write_config(reference, tmp_path, "bert")
    exact: Model = polyseme.load(tmp_path, dtype="fp64")
    rough: Model = polyseme.load(tmp_path, dtype="fp16")
    states = exact.pieces(TEXT).states
    assert states.dtype == "float64"
    assert 0 < abs(rough.pieces(TEXT).states - states).max() < 0.1 * abs(states).max()


def test_every_class_named_is_one_of_the_reference() -> None:
    for name, architecture in ARCHITECTURES:
        assert reference_class(FAMILIES[name], architecture).__name__ == architecture
