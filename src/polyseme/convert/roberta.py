"""RoBERTa (Liu et al. 2019): BERT without the next sentence, positions from pad + 1 on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polyseme.convert.bert import BUFFERS, EMBEDDINGS, LAYERS, POOLED, masked_output, masked_rules
from polyseme.convert.bert import SETTINGS as BERT_SETTINGS
from polyseme.convert.config_file import Settings, whole
from polyseme.convert.conversion_table import Table
from polyseme.convert.family import BASE, Family
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.outputs.labels import PooledOutput

SETTINGS: Settings = dataclasses.replace(
    BERT_SETTINGS, names={ours: theirs for ours, theirs in BERT_SETTINGS.names.items() if ours != "max_positions"}
)


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    ours = SETTINGS.read(theirs, where)
    offset = whole(theirs.get("pad_token_id", 1), "pad_token_id", where, least=0) + 1
    n_rows = theirs.get("max_position_embeddings", BERT_SETTINGS.defaults["max_position_embeddings"])
    whole(n_rows, "max_position_embeddings", where, least=offset + 1)
    return TransformerConfig(
        **ours, max_positions=n_rows - offset, position_offset=offset, embedding_dropout_rate=ours["dropout_rate"]
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    assert config.max_positions is not None
    return {
        **SETTINGS.write(config),
        "max_position_embeddings": config.max_positions + config.position_offset,
        "pad_token_id": config.position_offset - 1,
    }


def table(config: TransformerConfig, tied: bool) -> Table:
    masked, aliases = masked_rules(
        dense="lm_head.dense", norm="lm_head.layer_norm", bias="lm_head.bias", decoder="lm_head.decoder", tied=tied
    )
    return Table(
        prefix="roberta.",
        n_sets=config.n_layers,
        body=[*EMBEDDINGS, *LAYERS],
        outputs={"pooled": POOLED, "masked": masked},
        aliases=aliases,
        derived=BUFFERS,
        foreign=[r"(classifier|qa_outputs)\..*"],
    )


FAMILY = Family(
    name="roberta",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={
        "pooled": lambda config, tied: PooledOutput(config.width),
        "masked": lambda config, tied: masked_output(config, tied, activation="gelu"),
    },
    architectures=[("RobertaForMaskedLM", frozenset({"masked"})), ("RobertaModel", frozenset())],
    frame="roberta",
    base=lambda: TransformerConfig(n_pieces=50265, **BASE, position_offset=2, n_segments=1, norm_epsilon=1e-5),
    reference="roberta",
)
