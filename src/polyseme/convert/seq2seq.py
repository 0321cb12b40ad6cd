"""Recurrent sequence-to-sequence models (Sutskever et al. 2014, Bahdanau et al. 2015): a family of our own.

No library keeps one in a folder, so config.json holds our config under our names, and the weights are named as the
bundle names them. Both stacks and the output share one table of pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from polyseme.convert.config_file import read_native_config, write_own
from polyseme.convert.conversion_table import Table, native_layout
from polyseme.convert.family import Family
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.recurrent_config import RecurrentConfig, RecurrentDecoderConfig
from polyseme.errors import ModelError
from polyseme.outputs.pieces import CausalOutput
from polyseme.parts.initialization import skip_initialization

SHARED = "stack.tokens.table"
"""The table of pieces, which the decoder has from the encoder."""


def read_config(theirs: Mapping[str, Any], where: str) -> RecurrentConfig:
    config: RecurrentConfig = read_native_config(RecurrentConfig, theirs, where)
    _decoder(config)
    return config


def write_config(config: RecurrentConfig) -> dict[str, Any]:
    _decoder(config)
    return write_own(config)


def _decoder(config: RecurrentConfig) -> RecurrentDecoderConfig:
    if config.decoder is None:
        raise ModelError("A model of the family 'seq2seq' has two stacks, and the config has no 'decoder_layers'.")
    if config.output_cutoffs:
        raise ModelError("The output of the family 'seq2seq' has one table: 'output_cutoffs' must be left out.")
    return config.decoder


def table(config: RecurrentConfig, tied: bool) -> Table:
    with skip_initialization():
        encoder = [f"encoder.{name}" for name, _ in build_encoder(config).named_parameters()]
        decoder = [name for name, _ in build_encoder(_decoder(config)).named_parameters() if name != SHARED]
    names = [*encoder, *(f"decoder.{name}" for name in decoder)]
    return native_layout(names, {"causal": [] if tied else ["outputs.causal.table"]})


def causal_output(config: RecurrentConfig, tied: bool) -> nn.Module:
    return CausalOutput(_decoder(config).widths[-1], config.n_pieces, tied=tied)


FAMILY = Family(
    name="seq2seq",
    kind="recurrent",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("SequenceToSequenceModel", frozenset({"causal"})), ("SequenceToSequenceStacks", frozenset())],
    frame="transformer",
    first="start",
    base=lambda: RecurrentConfig(
        n_pieces=8192,
        token_width=512,
        width=256,
        n_layers=2,
        reads="both",
        memory="none",
        decoder_layers=2,
        init_std=0.3,  # with less, states are so small at first that the decoder long ignores the source
    ),
    small={
        "n_pieces": 99,
        "token_width": 24,
        "width": 12,
        "n_layers": 2,
        "decoder_layers": 2,
        "decoder_width": 20,
        "decoder_attention": "additive",
        "decoder_feeding": "attentional",
    },
    reference=None,
)
