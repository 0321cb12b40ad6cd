"""GPT and GPT-2: the options that published checkpoints use, their files as they were published, their rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

import polyseme
from convert.comparing import TEXT, assert_same_states
from convert.test_options import assert_equals_the_reference
from polyseme.api import Model
from polyseme.bundle import new_bundle
from polyseme.convert.conversion_table import read
from polyseme.convert.families import FAMILIES
from polyseme.errors import ModelError
from polyseme.model_folder import save_bundle
from polyseme.recipes.published_sizes import SIZES
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Batch
from references import make_reference, ragged_batch, real, reference_inputs
from tiny_models import tiny_config, tiny_model, write_tokenizer
from tolerance import expect

BOTH = ["openai-gpt", "gpt2"]
both = pytest.mark.parametrize("name", BOTH)
GPT2 = FAMILIES["gpt2"]


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"scale_by_layer": True},
        {"scale": 1.0},
        {"scale": 1.0, "scale_by_layer": True},
        {"activation": "gelu_sigmoid"},
        {"inner_width": 40},
    ],
    ids=str,
)
def test_options_of_gpt2(changes: dict[str, Any]) -> None:
    assert_equals_the_reference(GPT2, GPT2.tiny().replace(**changes))


def test_the_order_of_scaling_is_a_matter_of_precision_only() -> None:
    """`reorder_and_upcast_attn`, as Stanford's GPT-2s have it."""
    config = GPT2.tiny().replace(scale_by_layer=True)
    options = {"reorder_and_upcast_attn": True}
    assert GPT2.read_config({**GPT2.write_config(config), **options}, "config.json") == config
    reference = make_reference(GPT2, "GPT2Model", config, **options).float()
    plain = make_reference(GPT2, "GPT2Model", config)
    batch = ragged_batch(config)

    def states(model: Any) -> dict[str, torch.Tensor]:
        return {"states": model(**reference_inputs(batch)).last_hidden_state[real(batch)]}

    with torch.no_grad():
        expect(plain, states, torch.float32)["states"].check(states(reference)["states"])


def test_the_inner_width_is_four_times_the_width_unless_said() -> None:
    theirs = {**GPT2.write_config(GPT2.tiny()), "n_inner": None}
    assert GPT2.read_config(theirs, "config.json").inner_width == 128  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("openai-gpt", {"inner_width": 64}, "inner_width 64 would become 128"),
        ("openai-gpt", {"scale_by_layer": True}, "scale_by_layer True would become False"),
        ("gpt2", {"masks": ("causal", "band:3", "causal")}, r"masks .* would become \('causal',\)"),
        ("gpt2", {"norm": "after"}, "norm 'after' would become 'before'"),
    ],
)
def test_what_a_config_cannot_say_is_not_written(name: str, changes: dict[str, Any], said: str) -> None:
    family = FAMILIES[name]
    with pytest.raises(ModelError, match=said):
        family.settings_of(family.tiny().replace(**changes))


@pytest.mark.parametrize(
    ("name", "entry", "value", "said"),
    [
        ("gpt2", "n_inner", 0, "'n_inner' must be a whole number"),
        ("gpt2", "scale_attn_weights", "yes", "'scale_attn_weights' must be true or false. Got 'yes'"),
        ("gpt2", "activation_function", "gelo", "Did you mean 'gelu'"),
        ("openai-gpt", "afn", "gelu_new", "unknown activation 'gelu_new'"),
        ("gpt2", "add_cross_attention", True, "'add_cross_attention'"),
        ("openai-gpt", "n_embd", None, "does not say 'n_embd'"),
    ],
)
def test_a_config_that_cannot_be(name: str, entry: str, value: Any, said: str) -> None:
    family = FAMILIES[name]
    with pytest.raises(ModelError, match=said):
        family.read_config({**family.write_config(family.tiny()), entry: value}, "config.json")


# --- files -----------------------------------------------------------------------------------------------------------


@both
def test_files_as_they_were_published(name: str, tmp_path: Path) -> None:
    """Without prefix, without the tied table, with the causal masks of each layer written out."""
    family = FAMILIES[name]
    reference = make_reference(family, family.architectures[0][0], tiny_config(name)).float()
    masks = {
        f"h.{i}.attn.{kind}": value
        for i in range(3)
        for kind, value in (("bias", torch.ones(1, 1, 40, 40).tril()), ("masked_bias", torch.tensor(-1e4)))
    }
    body = {f"{key}": value.contiguous() for key, value in reference.transformer.state_dict().items()}
    save_file({**body, **masks}, tmp_path / "model.safetensors")
    reference.config.save_pretrained(tmp_path)
    write_tokenizer(name, tmp_path)
    model = polyseme.load(tmp_path)
    assert tuple(model.bundle.outputs) == ("causal",)
    assert_same_states(model, reference.base_model)
    ids = torch.from_numpy(model.pieces(TEXT).ids)[None]
    with torch.no_grad():
        ours = model.bundle.outputs["causal"].logits(model.bundle.encoder(Batch(ids), layers=[-1])[-1])
        expected = expect(reference, lambda each: {"logits": each(ids).logits}, torch.float32)
    expected["logits"].check(ours)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@both
def test_transformers_generates_as_before_from_what_is_saved(name: str, tied: bool, tmp_path: Path) -> None:
    """Logits and the greedy path, from an `AutoModelForCausalLM`."""
    torch.manual_seed(1)
    bundle = new_bundle(FAMILIES[name], tiny_config(name), ["causal"], tiny_model(name).bundle.tokenizer, tied=tied)
    for parameter in bundle.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save_bundle(bundle.eval(), tmp_path / "saved")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    ids = torch.randint(1, bundle.config.n_pieces, (2, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        states = bundle.encoder(Batch(ids), layers=[-1])[-1]
        expected = expect(loaded, lambda each: {"logits": each(ids).logits}, torch.float32)
        expected["logits"].check(bundle.outputs["causal"].logits(states))
    table = bundle.encoder.piece_table()
    assert (bundle.outputs["causal"].table is table) == tied


def test_an_output_of_its_own_is_read_where_it_is_there() -> None:
    reference = make_reference(GPT2, "GPT2LMHeadModel", tie_word_embeddings=False)
    found = read(GPT2.table(GPT2.tiny(), False), reference.state_dict(), "it")
    assert found.outputs == ["causal"]
    assert torch.equal(found.tensors["outputs.causal.table"], reference.lm_head.weight)
    bare = make_reference(GPT2, "GPT2Model", tie_word_embeddings=False)
    assert read(GPT2.table(GPT2.tiny(), False), bare.state_dict(), "it").outputs == []


# --- words -----------------------------------------------------------------------------------------------------------


@both
def test_vectors_of_words_and_of_nothing(name: str) -> None:
    """Rows have no specials, so the first word is the row's first piece, and a text without words is no row at all."""
    model = tiny_model(name)
    [found, nothing] = model.embed([["Dawn", "broke"], ""])
    pieces = model.pieces(["Dawn", "broke"])
    assert found.vectors.shape == (2, 32)
    assert nothing.vectors.shape == (0, 32)
    np.testing.assert_allclose(found.vectors[1], pieces.states[-1][-1], atol=1e-5 * np.abs(pieces.states[-1]).max())
    assert model.pieces("").states.shape == (4, 0, 32)


@both
def test_a_word_does_not_change_with_what_follows(name: str) -> None:
    model = tiny_model(name)
    one, other = model.embed(["The vase broke", "The vase is flat"])
    np.testing.assert_allclose(one.vectors[:2], other.vectors[:2], atol=1e-5)
    assert np.abs(one.vectors[2] - other.vectors[2]).max() > 0.1


@pytest.mark.parametrize(("size", "folder"), [("gpt", "openai-gpt"), ("gpt2", "gpt2")])
def test_published_vocabularies_fit_the_published_sizes(
    size: str, folder: str, vocabulary: Callable[[str], Path], tmp_path: Path
) -> None:
    """The whole vocabulary over a small stack: saved, loaded by both, and embedding a text."""
    published = SIZES[size]
    family = FAMILIES[published.family]
    tokenizer = load_tokenizer(vocabulary(folder), frame=family.frame)
    assert tokenizer.n_pieces == published.vocabulary
    torch.manual_seed(0)
    config = published.config.replace(n_layers=2, width=16, n_heads=2, inner_width=64)
    Model(new_bundle(family, config, ["causal"], tokenizer).eval()).save(tmp_path / "saved")
    model = polyseme.load(tmp_path / "saved")
    assert model.show().window == published.positions
    assert len(model.embed(TEXT)[0].vectors) == len(model.embed(TEXT)[0].words)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs(TEXT)["input_ids"] == model.pieces(TEXT).ids.tolist()
    written = json.loads((tmp_path / "saved" / "config.json").read_text(encoding="utf-8"))
    assert written["architectures"] == [family.architectures[0][0]]
    assert_same_states(model, transformers.AutoModel.from_pretrained(tmp_path / "saved").eval())
