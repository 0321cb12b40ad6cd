"""Heads are gone from the weights, and what is left computes what the whole model does with their outputs at zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertModel

import polyseme
from polyseme.api import Model, load
from polyseme.bundle import Bundle, named_tensors
from polyseme.convert.families import FAMILIES
from polyseme.encoders.transformer import Transformer
from polyseme.errors import ModelError, OptionError
from polyseme.model_folder import load_bundle
from polyseme.pruning.head_gates import apply_gates, fixed_gates
from polyseme.pruning.head_removal import (
    AttentionPlace,
    HeadPlace,
    attentions_of,
    heads_of,
    with_all_heads,
    without_heads,
)
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.types import Batch
from tiny_models import TEXT, tiny_config, tiny_model
from transfer.small_tasks import small_task

WITH_HEADS = [name for name, family in FAMILIES.items() if family.kind == "transformer"]
every_family = pytest.mark.parametrize("family", WITH_HEADS)


def some_heads(bundle: Bundle) -> list[HeadPlace]:
    """All heads of the middle layer, and of the others every second, not the same ones."""
    return [
        HeadPlace(at, head)
        for at, attention in attentions_of(bundle).items()
        for head in heads_of(attention)
        if (at.layer + head) % 2 == 0 or at == ("encoder", 1)
    ]


def states_of(bundle: Bundle, pieces: Tensor, lengths: Tensor, **more: Any) -> list[Tensor]:
    """All layers of all stacks, without the padding, and the query stream where there is one."""
    targets = {"targets": torch.tensor([[1, 4], [2, -1]])} if bundle.config.direction == "any-order" else {}
    stacks = [bundle.encoder(Batch(pieces, lengths, **targets), **more)]
    if bundle.decoder is not None:
        stacks.append(bundle.decoder(Batch(pieces, lengths, source=stacks[0])))
    real = torch.arange(pieces.shape[1]) < lengths[:, None]
    found = [layer[real] for states in stacks for layer in states.layers.values()]
    return [*found, *(layer[0] for layer in stacks[0].queries.values())]


def rows(bundle: Bundle) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(5, bundle.config.n_pieces, (2, 9), generator=generator), torch.tensor([9, 6])


@every_family
def test_a_pruned_model_is_the_whole_one_with_these_heads_at_zero(family: str, tmp_path: Path) -> None:
    changes = {"shared_biases": True} if family == "transfo-xl" else {}
    whole = tiny_model(family, **changes).bundle.double()
    gone = some_heads(whole)
    pruned = without_heads(whole, gone)
    pieces, lengths = rows(whole)
    gates = {at: torch.ones(each.n_heads) for at, each in attentions_of(whole).items()}
    for at, head in gone:
        gates[at][head] = 0.0
    with torch.no_grad():
        before = states_of(whole, pieces, lengths)
        with apply_gates(attentions_of(whole), fixed_gates(gates)):
            expected = states_of(whole, pieces, lengths)
        found = states_of(pruned, pieces, lengths)
        assert max(float((one - other).abs().max()) for one, other in zip(before, expected, strict=True)) > 1e-3
        for one, other in zip(found, expected, strict=True):
            assert float((one - other).abs().max()) <= 1e-12 * float(other.abs().max())
        filled = with_all_heads(pruned)
        assert filled.config == whole.config
        assert filled.n_parameters() == whole.n_parameters()
        for one, other in zip(states_of(filled, pieces, lengths), expected, strict=True):
            assert float((one - other).abs().max()) <= 1e-12 * float(other.abs().max())
    assert pruned.n_parameters() < whole.n_parameters()

    Model(pruned).save(tmp_path / "pruned")
    loaded = load_bundle(tmp_path / "pruned")
    assert (
        loaded.config == pruned.config == type(pruned.config).from_json(json.loads(json.dumps(pruned.config.to_json())))
    )
    assert "transformers.Auto" not in (tmp_path / "pruned" / "README.md").read_text()
    theirs, ours = named_tensors(loaded), named_tensors(pruned.float())
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)


@pytest.mark.parametrize(("family", "dtype"), [("bert", "fp32"), ("t5", "fp32"), ("xlnet", "fp32"), ("bert", "int8")])
@pytest.mark.filterwarnings("ignore:This processor has no instructions")
def test_packed_inference_runs_pruned_models(family: str, dtype: str, tmp_path: Path) -> None:
    pruned = without_heads((whole := tiny_model(family).bundle), some_heads(whole))
    texts = TEXT.strip().splitlines()[:3] * 20  # enough that weights are packed
    vectors = {}
    for name, bundle in (("pruned", pruned), ("filled", with_all_heads(pruned))):
        Model(bundle).save(tmp_path / name)
        embedded = load(tmp_path / name, dtype=dtype).embed(texts, layer="sum:0:-1")
        vectors[name] = np.concatenate([each.vectors for each in embedded[:3]])
    found, expected = vectors["pruned"], vectors["filled"]
    if dtype == "fp32":
        np.testing.assert_allclose(found, expected, atol=1e-4 * float(np.abs(expected).max()))
    cosines = (found * expected).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert cosines.min() > 0.995


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_texts_are_generated_with_a_cache_of_fewer_heads(family: str) -> None:
    pruned = without_heads((whole := tiny_model(family).bundle), some_heads(whole))
    options: dict[str, Any] = {"greedy": True, "max_new": 8}
    found, expected = (
        [model.generate(prompt, **options) for prompt in ("The vase broke", "We broke")]
        for model in (Model(pruned), Model(with_all_heads(pruned)))
    )
    assert found == expected


def test_attentions_are_those_of_the_heads_that_are_left() -> None:
    whole = tiny_model("bert").bundle
    first = AttentionPlace("encoder", 0)
    pruned = without_heads(whole, [HeadPlace(first, 1), HeadPlace(first, 2)])
    pieces, lengths = rows(whole)
    weights = [
        bundle.encoder(Batch(pieces, lengths), attentions=True).attentions["self"][0] for bundle in (whole, pruned)
    ]
    torch.testing.assert_close(weights[1], weights[0][:, [0, 3]])


def test_pruning_goes_on_where_it_ended() -> None:
    whole = tiny_model("bert").bundle
    at = AttentionPlace("encoder", 2)
    once = without_heads(whole, [HeadPlace(at, 0), HeadPlace(at, 3)])
    twice = without_heads(without_heads(whole, [HeadPlace(at, 3)]), [HeadPlace(at, 0)])
    assert once.config == twice.config
    assert all(torch.equal(one, other) for one, other in zip(once.parameters(), twice.parameters(), strict=True))
    with pytest.raises(ModelError, match="There is no head 3 in layer 3"):
        without_heads(once, [HeadPlace(at, 3)])


def test_cost_and_parameters_follow_from_the_heads_that_are_left() -> None:
    whole = tiny_model("bert").bundle
    pruned = without_heads(whole, some_heads(whole))
    n_gone, head = len(some_heads(whole)), 32 * 8
    assert whole.config.matrix_weights - pruned.config.matrix_weights == 4 * head * n_gone
    assert whole.n_parameters() - pruned.n_parameters() == (4 * head + 3 * 8) * n_gone
    assert whole.config.attention_widths - pruned.config.attention_widths == 8 * n_gone


def test_a_model_that_transformers_pruned_is_read(tmp_path: Path) -> None:
    """Version 4 wrote the heads that were gone into config.json, and smaller matrices."""
    whole = tiny_model("bert").bundle
    pruned = without_heads(whole, [HeadPlace(AttentionPlace("encoder", 0), 2)])
    Model(pruned).save(tmp_path / "model")
    settings = (tmp_path / "model" / "config.json").read_text()
    assert '"pruned_heads": {\n    "0": [\n      2\n    ]\n  }' in settings
    assert load_bundle(tmp_path / "model").config.heads_left == ((0, 1, 3), (0, 1, 2, 3), (0, 1, 2, 3))
    (tmp_path / "model" / "config.json").write_text(settings.replace("      2\n", "      7\n"))
    with pytest.raises(ModelError, match="'pruned_heads' must say of layers which heads are removed"):
        load_bundle(tmp_path / "model")


def test_models_without_heads_are_refused() -> None:
    with pytest.raises(ModelError, match="lstm has no attention heads"):
        attentions_of(tiny_model("lstm").bundle)
    with pytest.raises(ModelError, match="The heads that are left must be 3 lists"):
        tiny_config("bert", heads_left=((0,), (1,)))
    assert isinstance(tiny_model("bert").bundle.encoder, Transformer)


def test_other_libraries_open_a_pruned_model_with_its_heads_as_zeros(tmp_path: Path) -> None:
    pruned = without_heads((whole := tiny_model("bert").bundle), some_heads(whole))
    Model(pruned).save(tmp_path / "pruned")
    with pytest.raises(ModelError, match="fill-pruned"):
        polyseme.convert_model(model=tmp_path / "pruned", to="transformers", output=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    polyseme.convert_model(model=tmp_path / "pruned", to="transformers", output=tmp_path / "whole", fill_pruned=True)
    theirs = BertModel.from_pretrained(tmp_path / "whole").eval()
    pieces, lengths = rows(pruned)
    mask = torch.arange(pieces.shape[1]) < lengths[:, None]
    with torch.no_grad():
        expected = pruned.encoder(Batch(pieces, lengths))[-1]
        states = theirs(input_ids=pieces, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(states[mask], expected[mask], atol=1e-4, rtol=1e-4)

    polyseme.convert_model(model=tmp_path / "pruned", output=tmp_path / "copy", store="bf16")
    assert load_bundle(tmp_path / "copy").config == pruned.config
    with pytest.raises(OptionError, match=r"No head of .* is pruned"):
        polyseme.convert_model(model=tmp_path / "whole", output=tmp_path / "again", fill_pruned=True)


def test_a_pruned_model_is_fitted_to_a_task() -> None:
    pruned = without_heads((whole := tiny_model("bert").bundle), some_heads(whole))
    settings = FinetuneSettings(epochs=1, batch_size=4, reinit_layers=1)
    model = finetune_task(small_task("classify", n_train=8, n_dev=4), pruned, settings).model
    assert model.bundle is not None
    assert model.bundle.config == pruned.config
