"""Reading a checkpoint: every key exactly one rule, every parameter exactly once; the rest is said."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from conformance.cases import REFERENCED, family_name
from polyseme.convert.conversion_table import CheckpointTensors, Rule, Table, read, write
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.convert.tensor_transforms import SAME
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.model_folder import load_bundle
from references import make_reference
from tiny_models import tiny_config, tiny_model, write_tokenizer

every_family = pytest.mark.parametrize("family", REFERENCED.values(), ids=family_name)
BERT = FAMILIES["bert"]


def checkpoint(family: Family) -> dict[str, Tensor]:
    """The weights of the reference's richest class."""
    weights: dict[str, Tensor] = make_reference(family, family.architectures[0][0]).state_dict()
    return weights


def read_by(family: Family, weights: dict[str, Tensor]) -> CheckpointTensors:
    return read(family.table(family.tiny(), True), weights, "the checkpoint")


def assert_same_reading(family: Family, found: CheckpointTensors, weights: dict[str, Tensor]) -> None:
    expected = read_by(family, weights)
    assert found.outputs == expected.outputs
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())


# --- names -----------------------------------------------------------------------------------------------------------


@every_family
def test_old_names_are_read(family: Family) -> None:
    """`module.` from data parallelism, `gamma` and `beta` from TensorFlow."""
    weights = checkpoint(family)

    def old(name: str) -> str:
        owner, _, leaf = name.rpartition(".")
        if "norm" in owner.lower() or ".ln_" in owner:
            leaf = {"weight": "gamma", "bias": "beta"}[leaf]
        return ".".join(filter(None, ("module", owner, leaf)))

    renamed = {old(name): tensor for name, tensor in weights.items()}
    assert any(name.endswith(".gamma") for name in renamed)
    assert_same_reading(family, read_by(family, renamed), weights)


@every_family
def test_a_body_without_its_prefix_is_read(family: Family) -> None:
    weights = make_reference(family, family.architectures[-1][0]).state_dict()
    prefix = family.table(family.tiny(), True).prefix
    if not prefix:
        assert family.name == "t5"  # its classes name the body alike
        return
    assert not any(name.startswith(prefix) for name in weights)
    prefixed = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
    assert_same_reading(family, read_by(family, prefixed), weights)


# --- both sides ------------------------------------------------------------------------------------------------------


@every_family
def test_unknown_and_missing_keys_are_listed_in_one_error(family: Family) -> None:
    weights = checkpoint(family)
    norms = ("embeddings.LayerNorm.bias", "h.0.ln_1.bias", "layernorm_embedding.bias", "layer_norm.weight")
    norms += ("embeddings.norm.weight",)
    lost = next(name for name in weights if name.endswith(norms))
    weights["encoder.flux_capacitor.weight"] = weights.pop(lost)
    with pytest.raises(ModelError) as error:
        read_by(family, weights)
    message = str(error.value)
    assert f"it lacks {lost}" in message
    assert "it has encoder.flux_capacitor.weight, which nothing here takes" in message
    assert "the checkpoint" in message
    assert "\n" not in message


def test_a_layer_too_many_and_a_layer_too_few_are_refused() -> None:
    weights = checkpoint(BERT)
    deeper, flatter = BERT.tiny().replace(n_layers=4), BERT.tiny().replace(n_layers=2)
    with pytest.raises(ModelError, match=r"it lacks bert\.encoder\.layer\.3\..* and 10 more"):
        read(BERT.table(deeper, True), weights, "it")
    with pytest.raises(ModelError, match=r"it has bert\.encoder\.layer\.2\..* and 10 more, which nothing here takes"):
        read(BERT.table(flatter, True), weights, "it")


def test_two_rules_for_one_parameter_are_refused() -> None:
    table = Table("", 1, [Rule(("a",), ("ours",)), Rule(("b",), ("ours",))], {})
    with pytest.raises(ModelError, match="Two rules of the conversion table fill 'ours'"):
        read(table, {"a": torch.zeros(1), "b": torch.ones(1)}, "it")


def test_a_parameter_without_a_rule_is_not_dropped_in_writing() -> None:
    table = Table("", 1, [Rule(("a",), ("ours",), SAME)], {})
    with pytest.raises(ModelError, match="no rule for: other"):
        write(table, {"ours": torch.zeros(1), "other": torch.ones(1)}, [], prefix=False)


def test_zeros_stand_in_for_what_may_be_absent() -> None:
    table = Table("", 1, [Rule(("a",), ("ours",))], {"causal": [Rule(("b",), ("bias",), absent=(2, 3))]})
    given = {"a": torch.ones(1), "b": torch.ones(2, 3)}
    found = read(table, given, "it")
    assert found.outputs == ["causal"]
    assert torch.equal(found.tensors["bias"], given["b"])
    found = read(table, {"a": given["a"]}, "it")
    assert found.outputs == ["causal"]
    assert torch.equal(found.tensors["bias"], torch.zeros(2, 3))
    with pytest.raises(ModelError, match="it lacks a"):
        read(table, {"b": given["b"]}, "it")


# --- second names ----------------------------------------------------------------------------------------------------


@every_family
def test_second_names_of_tied_tensors_may_be_there_or_not(family: Family) -> None:
    weights = make_reference(family, pieces_architecture(family)).state_dict()
    table = family.table(family.tiny(), True)
    aliases = [alias.theirs.replace("{p}", table.prefix) for alias in table.aliases]
    assert all(alias in weights for alias in aliases)
    bare = {name: tensor for name, tensor in weights.items() if name not in aliases}
    assert_same_reading(family, read_by(family, bare), weights)


@every_family
def test_a_second_name_stands_in_for_the_first(family: Family) -> None:
    """Files that keep what is tied only once do not all keep the same one."""
    weights = make_reference(family, pieces_architecture(family)).state_dict()
    table = family.table(family.tiny(), True)
    for alias in table.aliases:
        first = alias.same_as.replace("{p}", table.prefix)
        without = {name: tensor for name, tensor in weights.items() if name != first}
        assert_same_reading(family, read_by(family, without), weights)


@every_family
def test_tied_tensors_that_differ_are_refused(family: Family) -> None:
    weights = make_reference(family, pieces_architecture(family)).state_dict()
    table = family.table(family.tiny(), True)
    for alias in table.aliases:
        second = alias.theirs.replace("{p}", table.prefix)
        with pytest.raises(ModelError, match=f"'{second}' should be the same tensor .* 'tie_word_embeddings'"):
            read_by(family, {**weights, second: weights[second] + 1})


def pieces_architecture(family: Family) -> str:
    """The class with an output that predicts pieces, and no other."""
    return next(name for name, outputs in family.architectures if outputs in ({"masked"}, {"causal"}, {"permuted"}))


# --- other libraries' task layers ------------------------------------------------------------------------------------

TASKS = ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"]


def task_class(family: Family, task: str) -> Any:
    module = importlib.import_module(f"transformers.models.{family.reference}")
    stem = family.architectures[-1][0].removesuffix("Model")
    return getattr(module, f"{stem}{task}", None)


@pytest.mark.parametrize("task", TASKS)
@every_family
def test_task_layers_of_other_libraries_are_left_out(family: Family, task: str) -> None:
    chosen = task_class(family, task)
    if chosen is None:
        assert family.table(family.tiny(), True).outputs.keys() == {"causal"}  # these have fewer classes
        return
    weights = chosen(chosen.config_class(**family.write_config(family.tiny()))).state_dict()
    if family.name == "t5" and task != "ForQuestionAnswering":  # under a prefix, or the encoder alone
        with pytest.raises(ModelError, match="not those of the model that its config describes"):
            read_by(family, weights)
        return
    found = read_by(family, weights)
    prefix = family.table(family.tiny(), True).prefix
    body = make_reference(family, family.architectures[-1][0]).state_dict()
    assert found.left_out == sorted(name for name in weights if name.removeprefix(prefix) not in body)
    assert found.left_out


@every_family
def test_leaving_out_a_task_layer_is_said(family: Family, tmp_path: Path) -> None:
    task = "ForQuestionAnswering" if family.name == "t5" else "ForTokenClassification"
    chosen = task_class(family, task) or task_class(family, "ForSequenceClassification")
    settings = chosen.config_class(**family.write_config(tiny_config(family.name)))
    chosen(settings).save_pretrained(tmp_path)
    write_tokenizer(family.name, tmp_path)
    first = r"(classifier\.bias|score\.weight|classification_head\.dense\.bias|qa_outputs\.bias)"
    with pytest.warns(PolysemeWarning, match=rf"task layer of another library \({first}"):
        bundle = load_bundle(tmp_path)
    assert bundle.config == tiny_config(family.name)


def test_task_layers_that_were_trained_beside_the_masked_output_are_left_out(tmp_path: Path) -> None:
    """AntiBERTy's: `cls.species`, `cls.chain` and `cls.graft`, of which no library has a class."""
    tiny_model("bert").save(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    extra = {
        f"cls.{name}.{kind}": torch.ones(2) for name in ("chain", "graft", "species") for kind in ("weight", "bias")
    }
    save_file({**load_file(path), **extra}, path)
    with pytest.warns(
        PolysemeWarning, match=r"task layer of another library \(cls\.chain\.bias, .*cls\.species\.weight\)"
    ):
        bundle = load_bundle(tmp_path / "model")
    assert set(bundle.outputs) == {"pooled", "masked", "next"}


@pytest.mark.parametrize("name", ["cls.predictions.flux.weight", "cls.flux", "cls.flux.running_mean"])
def test_other_names_under_cls_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match=f"it has {name}, which nothing here takes"):
        read_by(BERT, {**checkpoint(BERT), name: torch.ones(2)})
