"""ALBERT (Lan et al. 2020): layers that share their weights, and a token layer narrower than the stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polyseme.convert.bert import BUFFERS, EMBEDDINGS, OUTPUTS, TASK_LAYERS, masked_rules
from polyseme.convert.bert import SETTINGS as BERT_SETTINGS
from polyseme.convert.config_file import Settings, whole
from polyseme.convert.conversion_table import Rule, Table, module
from polyseme.convert.family import BASE, SMALL, Family
from polyseme.encoders.transformer_config import TransformerConfig

SETTINGS: Settings = dataclasses.replace(
    BERT_SETTINGS,
    names={
        **{ours: theirs for ours, theirs in BERT_SETTINGS.names.items() if ours != "n_layers"},
        "embedding_width": "embedding_size",
    },
    defaults={
        **BERT_SETTINGS.defaults,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "embedding_size": 128,
    },
)


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """A group's layers stand one above the other; each round through a group adds all of them."""
    ours = SETTINGS.read(theirs, where)
    rounds, n_groups, in_group = (
        whole(theirs.get(name, default), name, where)
        for name, default in (("num_hidden_layers", 12), ("num_hidden_groups", 1), ("inner_group_num", 1))
    )
    layer_map = tuple(
        int(number / (rounds / n_groups)) * in_group + inner for number in range(rounds) for inner in range(in_group)
    )
    return TransformerConfig(
        **ours,
        n_layers=len(layer_map),
        layer_map=layer_map,
        sets_in_group=in_group,
        embedding_dropout_rate=ours["dropout_rate"],
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    """The other way round: rounds, groups, and layers in each."""
    return {
        **SETTINGS.write(config),
        "num_hidden_layers": config.n_layers // config.sets_in_group,
        "num_hidden_groups": (max(config.weight_sets) + 1) // config.sets_in_group,
        "inner_group_num": config.sets_in_group,
    }


def table(config: TransformerConfig, tied: bool) -> Table:
    """How ALBERT's checkpoints are named."""
    layers = [
        rule
        for number in range(max(config.weight_sets) + 1)
        for rule in _layer(
            "{{p}}encoder.albert_layer_groups.{}.albert_layers.{}".format(*divmod(number, config.sets_in_group)),
            f"encoder.layers.{number}",
        )
    ]
    masked, aliases = masked_rules(
        dense="predictions.dense",
        norm="predictions.LayerNorm",
        bias="predictions.bias",
        decoder="predictions.decoder",
        tied=tied,
    )
    return Table(
        prefix="albert.",
        n_sets=1,
        body=[*EMBEDDINGS, *module("{p}encoder.embedding_hidden_mapping_in", "encoder.embeddings.map"), *layers],
        outputs={
            "pooled": module("{p}pooler", "outputs.pooled.dense"),
            "masked": masked,
            "next": module("sop_classifier.classifier", "outputs.next.dense"),
        },
        aliases=aliases,
        derived=BUFFERS,
        foreign=TASK_LAYERS,
    )


def _layer(theirs: str, ours: str) -> list[Rule]:
    return [
        *module(tuple(f"{theirs}.attention.{name}" for name in ("query", "key", "value")), f"{ours}.attention.project"),
        *module(f"{theirs}.attention.dense", f"{ours}.attention.output"),
        *module(f"{theirs}.attention.LayerNorm", f"{ours}.attention_norm"),
        *module(f"{theirs}.ffn", f"{ours}.feed_forward.up"),
        *module(f"{theirs}.ffn_output", f"{ours}.feed_forward.down"),
        *module(f"{theirs}.full_layer_layer_norm", f"{ours}.feed_forward_norm"),
    ]


FAMILY = Family(
    name="albert",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs=OUTPUTS,
    architectures=[
        ("AlbertForPreTraining", frozenset({"pooled", "masked", "next"})),
        ("AlbertForMaskedLM", frozenset({"masked"})),
        ("AlbertModel", frozenset()),
    ],
    frame="bert",
    next_objective="sop",
    base=lambda: TransformerConfig(
        n_pieces=30000,
        **BASE,
        embedding_width=128,
        layer_map=(0,) * 12,
        activation="gelu_new",
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        embedding_dropout_rate=0.0,
    ),
    small={**SMALL, "embedding_width": 16, "n_layers": 4, "layer_map": (0, 1, 0, 1), "sets_in_group": 2},
    reference="albert",
)
