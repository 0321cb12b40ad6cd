"""GPT-2 (Radford et al. 2019): GPT with norms before each part and one above the top."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import Settings, flag, whole
from polyseme.convert.family import BASE, Family
from polyseme.convert.gpt import SETTINGS as GPT_SETTINGS
from polyseme.convert.gpt import causal_output, gpt_table
from polyseme.encoders.transformer_config import TransformerConfig

SETTINGS: Settings = dataclasses.replace(
    GPT_SETTINGS,
    names={**GPT_SETTINGS.names, "activation": "activation_function"},
    defaults={**GPT_SETTINGS.defaults, "n_positions": 1024, "activation_function": "gelu_new"},
    fixed={**GPT_SETTINGS.fixed, "norm": "before", "final_norm": True, "spread_by_depth": True},
)


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    """`reorder_and_upcast_attn` is about half precision only, and says nothing here."""
    ours = SETTINGS.read(theirs, where)
    inner = theirs.get("n_inner")
    return TransformerConfig(
        **ours,
        inner_width=4 * ours["width"] if inner is None else whole(inner, "n_inner", where),
        scale=None if flag(theirs, "scale_attn_weights", where, default=True) else 1.0,
        scale_by_layer=flag(theirs, "scale_attn_by_inverse_layer_idx", where),
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    return {
        **SETTINGS.write(config),
        "n_inner": config.inner_width,
        "scale_attn_weights": config.scale is None,
        "scale_attn_by_inverse_layer_idx": config.scale_by_layer,
    }


FAMILY = Family(
    name="gpt2",
    read_config=read_config,
    write_config=write_config,
    table=functools.partial(gpt_table, pieces="wte", positions="wpe"),
    outputs={"causal": causal_output},
    architectures=[("GPT2LMHeadModel", frozenset({"causal"})), ("GPT2Model", frozenset())],
    frame="gpt2",
    base=lambda: TransformerConfig(
        n_pieces=50257, **{**BASE, "max_positions": 1024}, norm_epsilon=1e-5, activation="gelu_new", **SETTINGS.fixed
    ),
    beyond="causal-transformer",
    reference="gpt2",
)
