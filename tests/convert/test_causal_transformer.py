"""Causal Transformers in our own layout: GPT-3's alternating masks against GPT-Neo, which has them too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

import polyseme
from generating.writing import rereading, step_by_step
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.causal_transformer import FAMILY
from polyseme.convert.families import FAMILIES, family_for
from polyseme.errors import ModelError
from polyseme.model_folder import check_saving
from polyseme.parts.initialization import skip_initialization
from polyseme.types import Batch
from tiny_models import tiny_model, tiny_tokenizer

WIDTH, N_LAYERS, BAND = 32, 4, 3
TEXTS = ["The vase broke, and so did the record that Sandy broke.", "Dawn broke."]


def gpt_neo() -> tuple[GPTNeoForCausalLM, Bundle]:
    """Layers that see everything before and layers that see a band, theirs and ours.

    Theirs has no biases for queries, keys and values, no scale, and attention in fp32, whatever the weights are.
    """
    torch.manual_seed(5)
    theirs = GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=99, hidden_size=WIDTH, num_layers=N_LAYERS, num_heads=4, intermediate_size=64, window_size=BAND,
            attention_types=[[["global", "local"], N_LAYERS // 2]], max_position_embeddings=40,
            attn_implementation="eager",
        )
    ).double().eval()  # fmt: skip
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    config: Any = FAMILY.tiny()
    config = config.replace(n_layers=N_LAYERS, masks=("causal", f"band:{BAND}"), attention_bias=False, scale=1.0)
    ours = new_bundle(FAMILY, config, ["causal"]).double().eval()
    names = {
        "attention_norm": "ln_1",
        "attention.output": "attn.attention.out_proj",
        "feed_forward_norm": "ln_2",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    state = {name.removeprefix("transformer."): tensor for name, tensor in theirs.state_dict().items()}
    filled = {
        "encoder.embeddings.pieces.weight": state["wte.weight"],
        "encoder.embeddings.positions.table.weight": state["wpe.weight"],
        "encoder.norm.weight": state["ln_f.weight"],
        "encoder.norm.bias": state["ln_f.bias"],
    }
    for n in range(N_LAYERS):
        attention = [state[f"h.{n}.attn.attention.{each}_proj.weight"] for each in "qkv"]
        filled[f"encoder.layers.{n}.attention.project.weight"] = torch.cat(attention)
        for mine, other in names.items():
            for kind in ("weight", "bias"):
                filled[f"encoder.layers.{n}.{mine}.{kind}"] = state[f"h.{n}.{other}.{kind}"]
    loaded = ours.load_state_dict(filled, strict=False)
    assert not loaded.unexpected_keys
    assert all(name.startswith("outputs.") for name in loaded.missing_keys)
    ours.tie()
    return theirs, ours


def test_layers_and_logits_equal_gpt_neo_s() -> None:
    theirs, ours = gpt_neo()
    ids = torch.randint(0, 99, (3, 17), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True)
        states = ours.encoder(Batch(ids), layers=range(N_LAYERS + 1))
        logits: Any = ours.outputs["causal"].logits(states[N_LAYERS])  # type: ignore[operator]
    for number in range(N_LAYERS + 1):
        assert (states[number] - expected.hidden_states[number]).abs().max() < 1e-5
    assert (logits - expected.logits).abs().max() < 1e-4


@pytest.mark.parametrize("fast", [False, True])
def test_steps_with_a_cache_equal_reading_all_again(fast: bool) -> None:
    """Beyond the band, too, where a layer no longer sees the first pieces."""
    _, ours = gpt_neo()
    ids = torch.randint(0, 99, (2, 14), generator=torch.Generator().manual_seed(4))
    stepwise, whole = step_by_step(ours, fast=fast), rereading(ours)
    with torch.inference_mode():
        scores, memory = stepwise.start(Batch(ids[:, :2]), 30)
        for place in range(2, 14):
            expected, _ = whole.start(Batch(ids[:, :place]), 30)
            assert (scores - expected).abs().max() < 1e-9, place
            scores, memory = stepwise.step(Batch(ids[:, place : place + 1]), memory)


def test_what_is_saved_scores_embeds_and_generates_as_before(tmp_path: Path) -> None:
    model = tiny_model(FAMILY.name, masks=("band:2", "causal", "band:4"))
    model.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["masks"]) == (FAMILY.name, ["band:2", "causal", "band:4"])
    again = polyseme.load(tmp_path / "model", device="cpu")
    assert again.bundle.config == model.bundle.config
    wider = tiny_model(FAMILY.name, masks=("causal",))
    scores, same, other = ([list(each.piece_log_probs) for each in each.score(TEXTS)] for each in (model, again, wider))
    assert same == scores
    assert other != scores
    assert (again.embed(TEXTS)[0].vectors == model.embed(TEXTS)[0].vectors).all()
    assert again.generate(TEXTS[1:], max_new=20, greedy=True) == model.generate(TEXTS[1:], max_new=20, greedy=True)


def test_a_model_is_saved_in_gpt_2_s_layout_where_that_holds_it() -> None:
    gpt2: Any = FAMILIES["gpt2"].tiny()
    assert family_for("gpt2", gpt2).name == "gpt2"
    for changes in ({"masks": ("causal", "band:3", "causal")}, {"positions": "rotary"}, {"gated": True}):
        assert family_for("gpt2", gpt2.replace(**changes)) is FAMILY
    assert family_for("gpt2", gpt2.replace(masks=("all",))).name == "gpt2"  # which refuses it
    assert family_for("bert", FAMILIES["bert"].tiny().replace(masks=("causal",))).name == "bert"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"masks": ("causal", "all", "causal")}, "every layer sees only the pieces before.*Got causal, all, causal"),
        ({"decoder_layers": 1}, "the setting 'decoder_layers' is None. Got 1"),
        ({"memory": "none"}, "the setting 'memory' is 'cache'. Got 'none'"),
        ({"embedding_width": 8}, "the setting 'embedding_width' is None. Got 8"),
    ],
)
def test_what_it_cannot_be(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        FAMILY.settings_of(FAMILY.tiny().replace(**changes))


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("bert", {"final_norm": True}, "family 'bert' cannot say all of them.*final_norm True would become False"),
        ("bert", {"n_segments": 0}, "must be|cannot say|The model lacks .*segments"),
        ("gpt2", {"masks": ("all",)}, r"masks \('all',\) would become \('causal',\)"),
        ("t5", {"decoder_layers": None}, "cannot say|The model lacks"),
    ],
)
def test_what_no_layout_holds_is_refused_without_weights(family: str, changes: dict[str, Any], said: str) -> None:
    config = FAMILIES[family].tiny().replace(**changes)
    with pytest.raises(ModelError, match=said), skip_initialization():
        check_saving(new_bundle(FAMILIES[family], config, ["causal" if family != "bert" else "masked"]))


def test_its_specials_are_gpt_2_s() -> None:
    assert tiny_tokenizer(FAMILY.name).specials == tiny_tokenizer("gpt2").specials
