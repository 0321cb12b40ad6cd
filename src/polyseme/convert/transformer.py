"""The Transformer (Vaswani et al. 2017): an encoder and a decoder that reads it; a family of our own.

No library keeps one in a folder, so config.json holds our config under our names, and the weights are named as the
bundle names them. Both stacks and the output share one table of pieces, multiplied by √width where pieces are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import read_native_config, write_own
from polyseme.convert.conversion_table import Table, native_layout
from polyseme.convert.family import SMALL, Family
from polyseme.convert.gpt import causal_output
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.parts.initialization import skip_initialization

SHARED = "embeddings.pieces.weight"
"""The table of pieces, which the decoder has from the encoder."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    return _with_two_stacks(read_native_config(TransformerConfig, theirs, where))


def write_config(config: TransformerConfig) -> dict[str, Any]:
    return write_own(_with_two_stacks(config))


def _with_two_stacks(config: TransformerConfig) -> TransformerConfig:
    if config.decoder_layers is None:
        raise ModelError("A model of the family 'transformer' has two stacks, and the config has no 'decoder_layers'.")
    if config.adaptive or config.embedding_width is not None:
        raise ModelError(
            "The stacks of the family 'transformer' and its output share one table, as wide as they are: "
            "'embedding_width' and 'adaptive' must be left as they are."
        )
    return config


def table(config: TransformerConfig, tied: bool) -> Table:
    names: list[str] = []
    with skip_initialization():
        for stack, stack_config in (("encoder", config), ("decoder", config.decoder)):
            if stack_config is not None:
                parameters = [name for name, _ in build_encoder(stack_config).named_parameters()]
                names += [f"{stack}.{name}" for name in parameters if stack == "encoder" or name != SHARED]
    return native_layout(names, {"causal": [] if tied else ["outputs.causal.table"]})


FAMILY = Family(
    name="transformer",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("SequenceToSequenceModel", frozenset({"causal"})), ("SequenceToSequenceStacks", frozenset())],
    frame="transformer",
    first="start",
    base=lambda: TransformerConfig(
        n_pieces=37_000,
        width=512,
        n_layers=6,
        n_heads=8,
        inner_width=2048,
        decoder_layers=6,
        norm_epsilon=1e-5,
        embedding_norm=False,
        activation="relu",
        positions="sinusoidal",
        sinusoids="interleaved",
        n_segments=0,
        embedding_scale=512**0.5,
    ),
    small={
        **SMALL,
        "max_positions": None,
        "decoder_layers": 2,
        "decoder_heads": 2,
        "decoder_inner_width": 48,
        "embedding_scale": 32**0.5,
    },
    reference=None,
)
