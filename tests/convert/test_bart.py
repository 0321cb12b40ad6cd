"""BART: two stacks against the reference, and what its files have beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BartModel

from convert.two_stacks import PRECISIONS, assert_both_sides_equal
from polyseme.bundle import count_parameters, named_tensors, new_bundle
from polyseme.convert.bart import FAMILY, read_config, write_config
from polyseme.convert.conversion_table import read
from polyseme.errors import ModelError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.recipes.published_sizes import SIZES
from references import make_pair, make_reference
from tiny_models import tiny_config, tiny_model, tiny_tokenizer, write_tokenizer

TINY: Any = FAMILY.tiny()
FULL = "BartForConditionalGeneration"


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_scale": TINY.width**0.5},
        {"decoder_heads": None, "decoder_inner_width": None, "decoder_layers": 1},
    ],
    ids=["as it is", "scaled", "alike"],
)
def test_both_stacks_equal_the_reference(changes: dict[str, Any], dtype: torch.dtype) -> None:
    assert_both_sides_equal(make_pair(FAMILY, FULL, TINY.replace(**changes)), dtype)


# --- the output's bias -----------------------------------------------------------------------------------------------


def test_the_bias_of_the_output_counts_and_is_not_trained() -> None:
    bundle = tiny_model("bart").bundle
    output = bundle.outputs["causal"]
    states = torch.randn(2, TINY.width, generator=torch.Generator().manual_seed(1))
    before = output.logits(states)
    assert "outputs.causal.bias" in named_tensors(bundle)
    assert "outputs.causal.bias" not in dict(bundle.named_parameters())
    output.bias[7] += 2.0
    assert torch.equal((output.logits(states) - before).abs().sum(0).nonzero()[:, 0], torch.tensor([7]))


def test_a_file_of_the_bare_model_has_an_output_without_a_bias(tmp_path: Path) -> None:
    """As facebook/bart-base is published: no prefix, nothing of the output."""
    reference = make_reference(FAMILY, "BartModel", tiny_config("bart")).float()
    reference.save_pretrained(tmp_path)
    write_tokenizer("bart", tmp_path)
    bundle = load_bundle(tmp_path)
    assert list(bundle.outputs) == ["causal"]
    assert not bundle.outputs["causal"].bias.any()
    assert bundle.outputs["causal"].table is bundle.encoder.piece_table()


def test_fairseq_s_version_numbers_are_passed_over() -> None:
    weights = {**make_reference(FAMILY, FULL).state_dict(), "model.encoder.version": torch.tensor([3.0])}
    assert not read(FAMILY.table(TINY, True), weights, "it").left_out


# --- one table of pieces ---------------------------------------------------------------------------------------------


def test_both_stacks_and_the_output_share_one_table(tmp_path: Path) -> None:
    tiny_model("bart").save(tmp_path / "model")
    bundle = load_bundle(tmp_path / "model")
    assert bundle.decoder is not None
    assert bundle.decoder.piece_table() is bundle.encoder.piece_table()
    assert sum(name.endswith("pieces.weight") for name in named_tensors(bundle)) == 1


def test_an_output_of_its_own_is_saved_as_the_reference_reads_it(tmp_path: Path) -> None:
    """It then ties none of its tables, so that each stack's must be in the file."""
    torch.manual_seed(2)
    bundle = new_bundle(FAMILY, tiny_config("bart"), ["causal"], tiny_tokenizer("bart"), tied=False)
    save_bundle(bundle, tmp_path / "model")
    theirs = BartModel.from_pretrained(tmp_path / "model")
    for stack in (theirs.encoder, theirs.decoder):
        assert torch.equal(stack.embed_tokens.weight, bundle.encoder.piece_table())


def test_stacks_with_tables_of_their_own_are_refused() -> None:
    weights = make_reference(FAMILY, FULL, tie_word_embeddings=False).state_dict()
    weights["model.decoder.embed_tokens.weight"] = weights["model.decoder.embed_tokens.weight"] + 1
    with pytest.raises(ModelError, match="3 names for one table of pieces"):
        read(FAMILY.table(TINY, False), weights, "it")


# --- configs ---------------------------------------------------------------------------------------------------------

PUBLISHED = """{"activation_dropout": 0.1, "activation_function": "gelu", "add_bias_logits": false,
"add_final_layer_norm": false, "attention_dropout": 0.1, "d_model": 768, "decoder_attention_heads": 12,
"decoder_ffn_dim": 3072, "decoder_layerdrop": 0.0, "decoder_layers": 6, "dropout": 0.1, "encoder_attention_heads": 12,
"encoder_ffn_dim": 3072, "encoder_layerdrop": 0.0, "encoder_layers": 6, "init_std": 0.02, "is_encoder_decoder": true,
"max_position_embeddings": 1024, "model_type": "bart", "normalize_before": false, "normalize_embedding": true,
"scale_embedding": false, "vocab_size": 50265}"""


def test_a_published_config_is_read() -> None:
    config = read_config(json.loads(PUBLISHED), "config.json")
    base = SIZES["bart-base"].config
    assert config == base.replace(attention_dropout_rate=0.1, inner_dropout_rate=0.1)
    assert config.decoder is not None
    assert (config.decoder.direction, config.decoder.cross, config.decoder.memory) == ("causal", True, "cache")
    assert config.direction == "both"


@pytest.mark.parametrize(
    ("entry", "value"), [("normalize_before", True), ("add_final_layer_norm", True), ("normalize_embedding", False)]
)
def test_what_no_published_bart_has_is_refused(entry: str, value: bool) -> None:
    with pytest.raises(ModelError, match=f"sets '{entry}' to {value}"):
        read_config({**write_config(TINY), entry: value}, "config.json")


def test_a_config_without_a_second_stack_is_no_bart() -> None:
    with pytest.raises(ModelError, match="'decoder_layers'"):
        write_config(TINY.replace(decoder_layers=None))


def test_other_settings_than_the_file_can_say_are_refused() -> None:
    with pytest.raises(ModelError, match=r"embedding_scale 2\.0 would become"):
        FAMILY.settings_of(TINY.replace(embedding_scale=2.0))


@pytest.mark.parametrize(("name", "count"), [("bart-base", 139_420_416), ("bart-large", 406_291_456)])
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    assert count_parameters("bart", SIZES[name].config, ["causal"]) == count


# --- what users call -------------------------------------------------------------------------------------------------


def test_embed_and_pieces_read_the_encoder() -> None:
    model = tiny_model("bart")
    [found] = model.embed("Sandy broke the law.", layer="all")
    assert found.vectors.shape == (5, TINY.n_layers + 1, TINY.width)
    assert model.pieces("Sandy broke the law.").states.shape[0] == TINY.n_layers + 1
