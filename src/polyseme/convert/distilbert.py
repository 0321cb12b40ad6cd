"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, every second layer gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.bert import masked_output, masked_rules
from polyseme.convert.config_file import Settings
from polyseme.convert.conversion_table import Table, module
from polyseme.convert.family import BASE, Family
from polyseme.encoders.transformer_config import TransformerConfig

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "dim",
        "n_layers": "n_layers",
        "n_heads": "n_heads",
        "inner_width": "hidden_dim",
        "activation": "activation",
        "max_positions": "max_position_embeddings",
        "dropout_rate": "dropout",
        "attention_dropout_rate": "attention_dropout",
        "init_std": "initializer_range",
    },
    defaults={
        "activation": "gelu",
        "max_position_embeddings": 512,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "initializer_range": 0.02,
    },
    fixed={"n_segments": 0, "norm_epsilon": 1e-12},
)


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """Where `sinusoidal_pos_embds` is set, the checkpoint has the sinusoids in its table, like learned positions."""
    ours = SETTINGS.read(theirs, where)
    return TransformerConfig(**ours, embedding_dropout_rate=ours["dropout_rate"])


def table(config: TransformerConfig, tied: bool) -> Table:
    layer = "{p}transformer.layer.{i}"
    masked, aliases = masked_rules(
        dense="vocab_transform",
        norm="vocab_layer_norm",
        bias="vocab_projector.bias",
        decoder="vocab_projector",
        tied=tied,
    )
    return Table(
        prefix="distilbert.",
        n_sets=config.n_layers,
        body=[
            *module("{p}embeddings.word_embeddings", "encoder.embeddings.pieces", bias=False),
            *module("{p}embeddings.position_embeddings", "encoder.embeddings.positions.table", bias=False),
            *module("{p}embeddings.LayerNorm", "encoder.embeddings.norm"),
            *module(tuple(f"{layer}.attention.{name}_lin" for name in "qkv"), "encoder.layers.{i}.attention.project"),
            *module(f"{layer}.attention.out_lin", "encoder.layers.{i}.attention.output"),
            *module(f"{layer}.sa_layer_norm", "encoder.layers.{i}.attention_norm"),
            *module(f"{layer}.ffn.lin1", "encoder.layers.{i}.feed_forward.up"),
            *module(f"{layer}.ffn.lin2", "encoder.layers.{i}.feed_forward.down"),
            *module(f"{layer}.output_layer_norm", "encoder.layers.{i}.feed_forward_norm"),
        ],
        outputs={"masked": masked},
        aliases=aliases,
        derived=[r"{p}embeddings\.position_ids"],
        foreign=[r"(pre_classifier|classifier|qa_outputs)\..*"],
    )


FAMILY = Family(
    name="distilbert",
    read_config=read_config,
    write_config=SETTINGS.write,
    table=table,
    outputs={"masked": masked_output},
    architectures=[("DistilBertForMaskedLM", frozenset({"masked"})), ("DistilBertModel", frozenset())],
    frame="bert",
    base=lambda: TransformerConfig(n_pieces=30522, **{**BASE, "n_layers": 6}, n_segments=0),
    reference="distilbert",
)
