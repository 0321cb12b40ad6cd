"""Convert → invert and save → load are identities, to the bit, for every family and every set of outputs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.cases import REFERENCED, family_name
from polyseme.bundle import Bundle, named_tensors, new_bundle
from polyseme.convert.conversion_table import never_missing, read, write
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.model_folder import load_bundle, save_bundle
from references import ask, by_stack, make_reference, our_stacks, ragged_batch, real, reference_class
from tiny_models import tiny_config, tiny_tokenizer
from tolerance import expect

every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=family_name)
every_referenced = pytest.mark.parametrize("family", REFERENCED.values(), ids=family_name)
every_referenced_architecture = pytest.mark.parametrize(
    ("family", "architecture"),
    [(family, name) for family in REFERENCED.values() for name, _ in family.architectures],
    ids=lambda value: value if isinstance(value, str) else value.name,
)


def tied_or_not(families: Iterable[Family]) -> pytest.MarkDecorator:
    """Every architecture, with outputs that are tied to the encoder, and where it has outputs, with others."""
    cases = [
        pytest.param(family, name, tied, id=f"{family.name}-{name}-{'tied' if tied else 'untied'}")
        for family in families
        for name, outputs in family.architectures
        for tied in ((True, False) if outputs else (True,))
    ]
    return pytest.mark.parametrize(("family", "architecture", "tied"), cases)


def drawn_bundle(family: Family, outputs: frozenset[str] | list[str], *, tied: bool) -> Bundle:
    torch.manual_seed(9)
    chosen = [name for name in family.outputs if name in outputs]
    bundle = new_bundle(family, tiny_config(family.name), chosen, tiny_tokenizer(family.name), tied=tied)
    for parameter in bundle.parameters():
        nn.init.normal_(parameter, std=0.1)
    return bundle.eval()


def assert_identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def with_those_that_have_no_tensors(family: Family, bundle: Bundle) -> list[str]:
    """The outputs a checkpoint is found to have: what shares all its tensors with the encoder is always there."""
    rules = family.table(bundle.config, bundle.tied).outputs
    return [name for name in family.outputs if name in bundle.outputs or never_missing(rules[name])]


def of_outputs(bundle: Bundle, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without those of outputs that the bundle has not, but that every checkpoint is found to have."""
    others = [f"outputs.{name}." for name in bundle.family.outputs if name not in bundle.outputs]
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(tuple(others))}


# --- tables ----------------------------------------------------------------------------------------------------------


@tied_or_not(FAMILIES.values())
def test_what_is_written_is_read_back(family: Family, architecture: str, tied: bool) -> None:
    outputs = dict(family.architectures)[architecture]
    bundle = drawn_bundle(family, outputs, tied=tied)
    table = family.table(bundle.config, tied)
    beside = any(table.outputs[name] for name in outputs)
    for prefix in (True, False) if not outputs else (True,):
        theirs = write(table, named_tensors(bundle), list(bundle.outputs), prefix=prefix)
        if table.prefix:
            assert all(name.startswith(table.prefix) for name in theirs) == (prefix and not beside)
        found = read(table, theirs, "what was written")
        assert found.outputs == with_those_that_have_no_tensors(family, bundle)
        assert not found.left_out
        assert_identical(of_outputs(bundle, found.tensors), named_tensors(bundle))


@every_referenced_architecture
def test_what_is_read_is_written_back(family: Family, architecture: str) -> None:
    """Everything the reference keeps, but for second names of what is tied, and buffers that follow from the config."""
    reference = make_reference(family, architecture)
    table = family.table(family.tiny(), True)
    theirs = reference.state_dict()
    found = read(table, theirs, "the reference")
    prefixed = any(name.startswith(table.prefix) for name in theirs)
    written = write(table, found.tensors, found.outputs, prefix=prefixed)
    aliases = {alias.theirs.replace("{p}", table.prefix if prefixed else "") for alias in table.aliases}
    kept = {name for name, _ in reference.named_parameters(remove_duplicate=False)}
    kept |= {name for name, _ in reference.named_buffers()} & set(written)
    stood_in = {name for rule in table.rules(found.outputs, "") if rule.absent for name in rule.theirs} - set(theirs)
    written = {name: tensor for name, tensor in written.items() if name not in stood_in}
    assert_identical(written, {name: theirs[name] for name in kept - aliases})


@every_referenced
def test_every_parameter_of_a_reference_is_counted_once(family: Family) -> None:
    """The bare class, tied tensors and all, has as many parameters as ours with the same outputs."""
    for architecture, _ in family.architectures:
        reference = make_reference(family, architecture)
        found = read(family.table(family.tiny(), True), reference.state_dict(), "the reference")
        ours = new_bundle(family, family.tiny(), found.outputs)
        assert ours.n_parameters() == sum(parameter.numel() for parameter in reference.parameters())


# --- folders ---------------------------------------------------------------------------------------------------------


@tied_or_not(FAMILIES.values())
def test_what_is_saved_is_loaded_back(family: Family, architecture: str, tied: bool, tmp_path: Path) -> None:
    bundle = drawn_bundle(family, dict(family.architectures)[architecture], tied=tied)
    save_bundle(bundle, tmp_path / "model")
    loaded = load_bundle(tmp_path / "model")
    assert loaded.family is family
    assert loaded.config == bundle.config
    assert list(loaded.outputs) == with_those_that_have_no_tensors(family, bundle)
    assert loaded.tied == tied or not (family.outputs and family.folder.described)
    assert_identical(of_outputs(bundle, named_tensors(loaded)), named_tensors(bundle))
    assert loaded.tokenizer is not None
    assert bundle.tokenizer is not None
    assert loaded.tokenizer.fingerprint == bundle.tokenizer.fingerprint


@every_family
def test_saving_what_was_loaded_writes_the_same_files(family: Family, tmp_path: Path) -> None:
    save_bundle(drawn_bundle(family, list(family.outputs), tied=True), tmp_path / "first")
    save_bundle(load_bundle(tmp_path / "first"), tmp_path / "second")
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "second").iterdir())
    for name in files:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def test_shards_hold_the_same_model(tmp_path: Path) -> None:
    bundle = drawn_bundle(FAMILIES["bert"], list(FAMILIES["bert"].outputs), tied=True)
    save_bundle(bundle, tmp_path / "model", shard_size=40_000)
    assert len(list((tmp_path / "model").glob("model-*-of-*.safetensors"))) > 2
    assert_identical(named_tensors(load_bundle(tmp_path / "model")), named_tensors(bundle))


@tied_or_not(REFERENCED.values())
def test_what_is_saved_the_reference_loads(family: Family, architecture: str, tied: bool, tmp_path: Path) -> None:
    """With equal states, and equal logits where the class has an output for pieces."""
    outputs = dict(family.architectures)[architecture]
    bundle = drawn_bundle(family, outputs, tied=tied)
    save_bundle(bundle, tmp_path / "model")
    reference = reference_class(family, architecture).from_pretrained(tmp_path / "model").eval()
    batch = ragged_batch(bundle.config)
    predicting = outputs & {"masked", "causal", "permuted"}

    def ask_all(reference: Any) -> dict[Any, torch.Tensor]:
        theirs = ask(reference, batch, output_hidden_states=True)
        stacks = by_stack(theirs, "hidden_states")
        found = {(i, n): layer[real(batch)] for i, stack in enumerate(stacks) for n, layer in enumerate(stack)}
        if predicting:
            logits = getattr(theirs, "prediction_logits", None)
            found["logits"] = (theirs.logits if logits is None else logits)[real(batch)]
        return found

    with torch.no_grad():
        expected = expect(reference, ask_all, torch.float32)
        stacks = our_stacks(bundle, batch)
        ours = {(i, n): states[n][real(batch)] for i, states in enumerate(stacks) for n in range(states.depth + 1)}
        for name in predicting:
            ours["logits"] = bundle.outputs[name].logits(stacks[-1][-1][real(batch)])
    assert ours.keys() == expected.keys()
    for place, each in expected.items():
        each.check(ours[place])
