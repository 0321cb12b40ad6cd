"""GPT-2 (Radford et al. 2019): GPT with norms before each part and one above the top."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import by_model_type, refuse_unknown_positions
from polyseme.convert.config_mapping import Settings, whole
from polyseme.convert.conversion_table import Table, module
from polyseme.convert.family import Family
from polyseme.convert.gpt import BUFFERS, LAYERS, TASK_LAYERS, causal_output, causal_rules, checked
from polyseme.convert.gpt import SETTINGS as GPT_SETTINGS
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError

SETTINGS: Settings = dataclasses.replace(
    GPT_SETTINGS,
    names={**GPT_SETTINGS.names, "activation": "activation_function"},
    defaults={**GPT_SETTINGS.defaults, "n_positions": 1024, "activation_function": "gelu_new"},
    fixed={**GPT_SETTINGS.fixed, "norm": "before", "final_norm": True, "spread_by_depth": True},
)


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """`reorder_and_upcast_attn` is about half precision only, and says nothing here."""
    refuse_unknown_positions(theirs, where)
    ours = SETTINGS.read(theirs, where)
    inner = theirs.get("n_inner")
    return TransformerConfig(
        **ours,
        inner_width=4 * ours["width"] if inner is None else whole(inner, "n_inner", where),
        scale=None if _flag(theirs, "scale_attn_weights", True, where) else 1.0,
        scale_by_layer=_flag(theirs, "scale_attn_by_inverse_layer_idx", False, where),
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    written = {
        **SETTINGS.write(config),
        "n_inner": config.inner_width,
        "scale_attn_weights": config.scale is None,
        "scale_attn_by_inverse_layer_idx": config.scale_by_layer,
    }
    return checked(written, config, read_config)


def table(config: TransformerConfig, tied: bool) -> Table:
    causal, aliases = causal_rules("{p}wte.weight", tied=tied)
    return Table(
        prefix="transformer.",
        n_sets=config.n_layers,
        body=[
            *module("{p}wte", "encoder.embeddings.pieces", bias=False),
            *module("{p}wpe", "encoder.embeddings.positions.table", bias=False),
            *LAYERS,
            *module("{p}ln_f", "encoder.norm"),
        ],
        outputs={"causal": causal},
        aliases=aliases,
        derived=BUFFERS,
        foreign=TASK_LAYERS,
    )


def _flag(theirs: Mapping[str, Any], name: str, otherwise: bool, where: str) -> bool:
    value = theirs.get(name, otherwise)
    if not isinstance(value, bool):
        raise ModelError(f"In {where}, {name!r} must be true or false. Got {value!r} instead.")
    return value


FAMILY = Family(
    name="gpt2",
    kind="transformer",
    detect=by_model_type("gpt2"),
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("GPT2LMHeadModel", frozenset({"causal"})), ("GPT2Model", frozenset())],
    frame="gpt2",
    base=lambda: TransformerConfig(
        n_pieces=50257,
        width=768,
        n_layers=12,
        n_heads=12,
        inner_width=3072,
        max_positions=1024,
        norm_epsilon=1e-5,
        activation="gelu_new",
        **SETTINGS.fixed,
    ),
    reference="gpt2",
)
