"""ModernBERT's files: today's names and those of before, options, task layers, and what the reference loads of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from polyseme.convert.conversion_table import read
from polyseme.convert.modernbert import FAMILY, read_config, table, write_config
from polyseme.encoders.transformer import Transformer
from polyseme.errors import ModelError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.types import Batch
from references import assert_close, make_pair, make_reference, our_stacks, ragged_batch, real, reference_inputs
from tiny_models import tiny_model

TINY: Any = FAMILY.tiny()

OLD = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "hidden_activation": "gelu",
    "max_position_embeddings": 8192,
    "norm_eps": 1e-05,
    "position_embedding_type": "absolute",
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "local_attention": 128,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "decoder_bias": True,
    "norm_bias": False,
}
"""As answerdotai/ModernBERT-base says it, under the names of its time."""


def test_old_names_say_what_the_new_ones_do() -> None:
    config = read_config(OLD, "config.json")
    assert config.layer_masks == ("all", "local:64", "local:64") * 7 + ("all",)
    assert config.positions == "rotary:160000:10000"
    new = {name: value for name, value in write_config(config).items() if name not in OLD or name == "vocab_size"}
    assert {"layer_types", "rope_parameters"} <= set(new)
    sizes = {name: OLD[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    assert read_config({**new, **sizes, "intermediate_size": 1152}, "config.json") == config


@pytest.mark.parametrize(
    "changes",
    [
        {"masks": ("all",)},
        {"masks": ("local:3", "all", "local:3", "local:3", "all")},
        {"masks": ("local:1:2",), "positions": "rotary:500"},
        {"positions": "rotary:1234567:98765.4321"},
        {"norm_kind": "layer", "attention_bias": True, "attention_output_bias": True, "inner_bias": True},
        {"activation": "silu", "norm_epsilon": 1e-3},
    ],
    ids=str,
)
def test_options_equal_the_reference(changes: dict[str, Any]) -> None:
    config = TINY.replace(**changes)
    assert FAMILY.config_of(FAMILY.settings_of(config), "config.json") == config
    pair = make_pair(FAMILY, "ModernBertForMaskedLM", config)
    batch = ragged_batch(config)
    with torch.no_grad():
        theirs = pair.reference(**reference_inputs(batch), output_hidden_states=True)
        states = our_stacks(pair.ours, batch)[0]
    for number, layer in enumerate(theirs.hidden_states):
        assert_close(states[number][real(batch)], layer[real(batch)], 1e-10)
    ours = pair.ours.outputs["masked"].logits(states[-1][real(batch)])
    assert_close(ours, theirs.logits[real(batch)], 1e-10)


def test_positions_that_are_given_are_the_reference_s() -> None:
    pair = make_pair(FAMILY, "ModernBertModel", TINY.replace(masks=("all",)))
    batch = ragged_batch(TINY)
    batch.positions = torch.randint(0, 30, batch.pieces.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = pair.reference(**reference_inputs(batch), position_ids=batch.positions).last_hidden_state
        ours = pair.ours.encoder(batch)[-1]
    assert_close(ours[real(batch)], theirs[real(batch)], 1e-10)


def test_a_rotary_cache_is_the_whole_row() -> None:
    """Keys are turned once, where they are written."""
    encoder = Transformer(TINY.replace(masks=("causal",), memory="cache")).double().eval()
    pieces = ragged_batch(TINY).pieces
    with torch.no_grad():
        whole = encoder(Batch(pieces))[-1]
        first = encoder(Batch(pieces[:, :6]), memory=encoder.new_memory(4, capacity=11))
        last = encoder(Batch(pieces[:, 6:]), memory=first.memory)
    assert_close(torch.cat([first[-1], last[-1]], dim=1), whole, 1e-12)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("classifier_bias", True, "all published models have False"),
        ("decoder_bias", False, "all published models have True"),
        ("classifier_activation", "silu", "all published models have 'gelu'"),
        ("layer_types", ["full_attention"], "for each of 5 layers"),
        ("layer_types", ["chunked_attention"] * 5, "full_attention or sliding_attention"),
        ("local_attention", 0, "'local_attention' must be a whole number from 2"),
        ("norm_bias", "no", "'norm_bias' must be true or false"),
        ("rope_parameters", {"full_attention": {"rope_type": "yarn"}}, "of type 'yarn'"),
        ("rope_parameters", {"sliding_attention": {"rope_theta": -1}}, "'local_rope_theta' must be a number above 0"),
    ],
)
def test_what_is_not_known_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_config({**write_config(TINY), name: value}, "config.json")


def test_what_config_json_cannot_say_is_refused_on_saving() -> None:
    with pytest.raises(ModelError, match="n_segments"):
        FAMILY.settings_of(TINY.replace(n_segments=2))


def test_rates_of_dropout_that_the_reference_lacks_are_kept() -> None:
    config = TINY.replace(dropout_rate=0.1, attention_output_dropout_rate=0.2)
    written = write_config(config)
    assert read_config(written, "config.json") == config
    del written["attention_output_dropout"]
    assert read_config(written, "config.json").attention_output_dropout_rate == config.attention_dropout_rate


def test_a_classifier_s_head_is_left_out() -> None:
    """It has the names of the masked output's first half."""
    reference = make_reference(FAMILY, "ModernBertForSequenceClassification")
    result = read(table(TINY, True), reference.state_dict(), "the classifier")
    assert result.outputs == []
    assert result.left_out == ["classifier.bias", "classifier.weight", "head.dense.weight", "head.norm.weight"]


def test_auto_classes_load_what_is_saved(tmp_path: Path) -> None:
    model = tiny_model("modernbert")
    model.save(tmp_path / "model")
    reference = AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    assert type(reference).__name__ == "ModernBertForMaskedLM"
    assert reference.config.pad_token_id == model.bundle.tokenizer.specials["pad"]
    reference.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer.json").write_bytes((tmp_path / "model/tokenizer.json").read_bytes())
    loaded = load_bundle(tmp_path / "theirs")
    batch = ragged_batch(model.bundle.config)
    with torch.no_grad():
        logits = reference(**reference_inputs(batch)).logits[real(batch)]
        for bundle in (model.bundle, loaded):
            assert_close(bundle.outputs["masked"].logits(bundle.encoder(batch)[-1][real(batch)]), logits, 1e-5)
    save_bundle(loaded, tmp_path / "again")
    assert load_bundle(tmp_path / "again").config == model.bundle.config
