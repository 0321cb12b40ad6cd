"""T5 (Raffel et al. 2020), version 1.0 and 1.1: text to text, positions as a bias on the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyseme.convert.config_file import ACTIVATION_NAMES, Settings
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.convert.family import SMALL, Family, is_tied
from polyseme.convert.gpt import causal_rules
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError, nearest
from polyseme.outputs.pieces import TableOutput

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "d_model",
        "head_width": "d_kv",
        "n_layers": "num_layers",
        "n_heads": "num_heads",
        "inner_width": "d_ff",
        "decoder_layers": "num_decoder_layers",
        "max_positions": "n_positions",
        "n_buckets": "relative_attention_num_buckets",
        "max_distance": "relative_attention_max_distance",
        "norm_epsilon": "layer_norm_epsilon",
        "dropout_rate": "dropout_rate",
        "init_std": "initializer_factor",
    },
    defaults={
        "d_kv": 64,
        "n_positions": 512,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.1,
        "initializer_factor": 1.0,
    },
    fixed={
        "norm": "before",
        "norm_kind": "rms",
        "embedding_norm": False,
        "final_norm": True,
        "attention_bias": False,
        "attention_output_bias": False,
        "inner_bias": False,
        "scale": 1.0,
        "positions": "buckets",
        "n_segments": 0,
        "spread_by_width": True,
    },
)
"""Buckets know no bound; `n_positions` is how long the rows were that the published models were trained on, and what
windows are cut to."""

ACTIVATIONS = {**ACTIVATION_NAMES, "gated-gelu": "gelu_new"} | {
    f"gated-{theirs}": ours for theirs, ours in ACTIVATION_NAMES.items() if theirs != "gelu"
}
"""What `feed_forward_proj` may be; "gated-gelu" is the GELU approximated by tanh, whatever its name says."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """Version 1.0 multiplies by d^-½ before its output, which shares the table; version 1.1 does neither.

    `transformers` 5 writes that the output is tied whatever it is, and keeps the version in `scale_decoder_outputs`.
    """
    name = theirs.get("feed_forward_proj", "relu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(f"{where} names an unknown 'feed_forward_proj' {name!r}. {nearest(str(name), ACTIVATIONS)}")
    _check_inner(theirs, name, where)
    if theirs.get("num_decoder_layers") is None:
        theirs = {**theirs, "num_decoder_layers": theirs.get("num_layers")}
    ours = SETTINGS.read(theirs, where)
    if theirs.get("is_encoder_decoder", True) is False or "T5EncoderModel" in (theirs.get("architectures") or ()):
        ours["decoder_layers"] = None
    scaled = theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True))
    return TransformerConfig(
        **ours,
        activation=ACTIVATIONS[name],
        gated=name.startswith("gated-"),
        output_scale=ours["width"] ** -0.5 if scaled else 1.0,
        attention_dropout_rate=ours["dropout_rate"],
        inner_dropout_rate=ours["dropout_rate"],
        embedding_dropout_rate=ours["dropout_rate"],
    )


def _check_inner(theirs: Mapping[str, Any], name: str, where: str) -> None:
    """Refuse a config whose newer settings of the feed-forward part, which the reference follows, say otherwise."""
    activation, is_gated = theirs.get("dense_act_fn"), theirs.get("is_gated_act")
    same = activation is None or ACTIVATION_NAMES.get(str(activation)) == ACTIVATIONS[name]
    if not same or is_gated not in (None, name.startswith("gated-")):
        raise ModelError(
            f"{where} contradicts itself: 'feed_forward_proj' is {name!r}, but 'dense_act_fn' is {activation!r} and "
            f"'is_gated_act' {is_gated!r}. Remove what is wrong."
        )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    inner = ("gated-" if config.gated else "", config.activation)
    names = {
        ("gated-" if theirs.startswith("gated-") else "", ours): theirs
        for theirs, ours in reversed(ACTIVATIONS.items())
    }
    return {
        **SETTINGS.write(config),
        "feed_forward_proj": "gated-gelu" if inner == ("gated-", "gelu_new") else names[inner],
        "scale_decoder_outputs": config.output_scale != 1.0,
        "is_encoder_decoder": config.decoder_layers is not None,
    }


def tied(theirs: Mapping[str, Any], weights: Mapping[str, Tensor]) -> bool:
    """What the config says; but where it says tied and the weights hold an output of its own, the weights are right."""
    own, shared = weights.get("lm_head.weight"), weights.get("shared.weight")
    if own is None or shared is None or not is_tied(theirs, weights):
        return is_tied(theirs, weights)
    return own.shape == shared.shape and torch.equal(own, shared)


def attention(theirs: str, ours: str) -> list[Rule]:
    """Three projections and what puts the heads together."""
    return [
        *module(tuple(f"{theirs}.{name}" for name in "qkv"), f"{ours}.project", bias=False),
        *module(f"{theirs}.o", f"{ours}.output", bias=False),
    ]


def stack(name: str, n_layers: int, *, cross: bool, gated: bool) -> list[Rule]:
    """One of the two stacks, without its table of pieces; the table of distances is kept in the first layer."""
    distances = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias"
    rules = [
        *module(distances, f"{name}.positions.table", bias=False),
        *module(f"{name}.final_layer_norm", f"{name}.norm", bias=False),
    ]
    for number in range(n_layers):
        parts = [f"{name}.block.{number}.layer.{part}" for part in range(3 if cross else 2)]
        ours = f"{name}.layers.{number}"
        rules += attention(f"{parts[0]}.SelfAttention", f"{ours}.attention")
        rules += module(f"{parts[0]}.layer_norm", f"{ours}.attention_norm", bias=False)
        if cross:
            rules += attention(f"{parts[1]}.EncDecAttention", f"{ours}.cross")
            rules += module(f"{parts[1]}.layer_norm", f"{ours}.cross_norm", bias=False)
        inner = f"{parts[-1]}.DenseReluDense"
        up = (f"{inner}.wi_0", f"{inner}.wi_1") if gated else f"{inner}.wi"
        rules += module(up, f"{ours}.feed_forward.up", bias=False)
        rules += module(f"{inner}.wo", f"{ours}.feed_forward.down", bias=False)
        rules += module(f"{parts[-1]}.layer_norm", f"{ours}.feed_forward_norm", bias=False)
    return rules


def table(config: TransformerConfig, tied: bool) -> Table:
    """Where there is no second stack (`T5EncoderModel`), there is no output either."""
    n_written = config.decoder_layers
    causal, aliases = causal_rules("shared.weight", tied=tied)
    aliases += [Alias(f"{name}.embed_tokens.weight", "shared.weight") for name in ("encoder", "decoder")]
    return Table(
        prefix="",
        n_sets=0,
        body=[
            *module("shared", "encoder.embeddings.pieces", bias=False),
            *stack("encoder", config.n_layers, cross=False, gated=config.gated),
            *(stack("decoder", n_written, cross=True, gated=config.gated) if n_written is not None else []),
        ],
        outputs={} if n_written is None else {"causal": causal},
        aliases=aliases,
        derived=[r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"],
        foreign=[r"(classification_head|qa_outputs|classifier)\..*"],
    )


def causal_output(config: TransformerConfig, tied: bool) -> TableOutput:
    return TableOutput(config.width, config.n_pieces, tied=tied, scale=config.output_scale)


FAMILY = Family(
    name="t5",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("T5ForConditionalGeneration", frozenset({"causal"})), ("T5Model", frozenset())],
    frame="t5",
    first="pad",
    base=lambda: TransformerConfig(
        n_pieces=32128,
        width=768,
        n_layers=12,
        n_heads=12,
        inner_width=3072,
        max_positions=512,
        head_width=64,
        decoder_layers=12,
        norm_epsilon=1e-6,
        activation="relu",
        output_scale=768**-0.5,
        inner_dropout_rate=0.1,
        init_std=1.0,
        **SETTINGS.fixed,
    ),
    small={
        **SMALL,
        "head_width": 6,
        "inner_width": 48,
        "decoder_layers": 2,
        "n_buckets": 8,
        "max_distance": 10,
        "activation": "gelu_new",
        "gated": True,
        "output_scale": 32**-0.5,
    },
    reference="t5",
    encoder_class="T5EncoderModel",
    tied=tied,
)
