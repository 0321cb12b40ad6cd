"""ELECTRA (Clark et al. 2020): a discriminator that finds replaced pieces, a generator that replaced them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polyseme.convert.bert import BUFFERS, EMBEDDINGS, LAYERS, TASK_LAYERS, masked_output, masked_rules
from polyseme.convert.bert import SETTINGS as BERT_SETTINGS
from polyseme.convert.config_file import Settings
from polyseme.convert.conversion_table import Table, module
from polyseme.convert.family import BASE, SMALL, Family
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.outputs.labels import ReplacedOutput

SETTINGS: Settings = dataclasses.replace(
    BERT_SETTINGS, names={**BERT_SETTINGS.names, "width_of_embeddings": "embedding_size"}
)


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    ours = SETTINGS.read(theirs, where)
    embedding_width = ours.pop("width_of_embeddings")
    return TransformerConfig(
        **ours,
        embedding_width=None if embedding_width == ours["width"] else embedding_width,
        embedding_dropout_rate=ours["dropout_rate"],
    )


def table(config: TransformerConfig, tied: bool) -> Table:
    body = [*EMBEDDINGS, *LAYERS]
    if config.embedding_width is not None:
        body += module("{p}embeddings_project", "encoder.embeddings.map")
    masked, aliases = masked_rules(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        bias="generator_lm_head.bias",
        decoder="generator_lm_head",
        tied=tied,
    )
    return Table(
        prefix="electra.",
        n_sets=config.n_layers,
        body=body,
        outputs={
            "replaced": [
                *module("discriminator_predictions.dense", "outputs.replaced.dense"),
                *module("discriminator_predictions.dense_prediction", "outputs.replaced.predict"),
            ],
            "masked": masked,
        },
        aliases=aliases,
        derived=BUFFERS,
        foreign=[*TASK_LAYERS, r"sequence_summary\..*"],
    )


FAMILY = Family(
    name="electra",
    read_config=read_config,
    write_config=SETTINGS.write,
    table=table,
    outputs={
        "replaced": lambda config, tied: ReplacedOutput(config.width, activation=config.activation),
        "masked": lambda config, tied: masked_output(config, tied, activation="gelu"),
    },
    architectures=[
        ("ElectraForPreTraining", frozenset({"replaced"})),
        ("ElectraForMaskedLM", frozenset({"masked"})),
        ("ElectraModel", frozenset()),
    ],
    frame="bert",
    base=lambda: TransformerConfig(n_pieces=30522, **BASE),
    small={**SMALL, "embedding_width": 16},
    reference="electra",
)
