"""Causal Transformers that no published layout holds: a family of our own.

GPT-3 (Brown et al. 2020) has dense layers and layers that see a band of pieces in turn, and GPT-2's config.json cannot
say so. Here config.json holds our config under our names, and the weights are named as the bundle names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import read_native_config, write_own
from polyseme.convert.conversion_table import Table, native_layout
from polyseme.convert.family import SMALL, Family
from polyseme.convert.gpt import causal_output
from polyseme.convert.gpt2 import FAMILY as GPT2
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.parts.initialization import skip_initialization

NAME = "causal-transformer"
FIXED: Mapping[str, Any] = {
    "decoder_layers": None,
    "cross": False,
    "embedding_width": None,
    "adaptive": False,
    "query_stream": False,
    "memory": "cache",
}
"""What is the same in all of them: one stack, one table of pieces as wide as it is, and a cache of keys and values."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    return _causal(read_native_config(TransformerConfig, theirs, where))


def write_config(config: TransformerConfig) -> dict[str, Any]:
    return write_own(_causal(config))


def _causal(config: TransformerConfig) -> TransformerConfig:
    for name, value in FIXED.items():
        if getattr(config, name) != value:
            raise ModelError(
                f"In every model of the family {NAME!r} the setting {name!r} is {value!r}. Got "
                f"{getattr(config, name)!r} instead."
            )
    if config.n_layers and config.direction != "causal":
        raise ModelError(
            f"In a model of the family {NAME!r} every layer sees only the pieces before: its masks are 'causal' or "
            f"'band:WIDTH'. Got {', '.join(config.masks)} instead."
        )
    return config


def table(config: TransformerConfig, tied: bool) -> Table:
    with skip_initialization():
        names = [f"encoder.{name}" for name, _ in build_encoder(config).named_parameters()]
    return native_layout(names, {"causal": [] if tied else ["outputs.causal.table"]})


FAMILY = Family(
    name=NAME,
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("CausalTransformerModel", frozenset({"causal"})), ("CausalTransformer", frozenset())],
    frame=GPT2.frame,
    base=lambda: GPT2.base().replace(masks=("causal", "band:256")),
    small={**SMALL, "masks": ("causal", "band:3", "causal")},
    reference=None,
)
