"""Recurrent language models, plain and LSTM: a family of our own, since no library keeps one in a folder.

config.json holds our config under our names, and the weights are named as the bundle names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from polyseme.convert.config_file import read_native_config, write_own
from polyseme.convert.conversion_table import Table, native_layout
from polyseme.convert.family import Family
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.recurrent_config import RecurrentConfig
from polyseme.errors import ModelError
from polyseme.outputs.pieces import CausalOutput
from polyseme.outputs.softmaxes import AdaptiveOutput
from polyseme.parts.initialization import skip_initialization


def read_config(theirs: Mapping[str, Any], where: str) -> RecurrentConfig:
    config: RecurrentConfig = read_native_config(RecurrentConfig, theirs, where)
    if config.decoder is not None:
        raise ModelError("A model of the family 'lstm' has one stack, and the config has 'decoder_layers'.")
    return config


def table(config: RecurrentConfig, tied: bool) -> Table:
    with skip_initialization():
        names = [f"encoder.{name}" for name, _ in build_encoder(config).named_parameters()]
    outputs: dict[str, list[str]] = {}
    if config.direction == "causal" and not config.spelled:
        with skip_initialization():
            output = causal_output(config, tied and not config.output_cutoffs)
        own = [f"outputs.causal.{name}" for name, _ in output.named_parameters()]
        shared = tied and not config.output_cutoffs
        outputs["causal"] = [] if shared else own
    return native_layout(names, outputs)


def causal_output(config: RecurrentConfig, tied: bool) -> nn.Module:
    if config.direction != "causal" or config.spelled:
        raise ModelError("Only a recurrent encoder that reads one way, over a table of pieces, predicts the next one.")
    if config.output_cutoffs:
        return AdaptiveOutput(config.widths[-1], config.n_pieces, config.output_cutoffs)
    if tied and config.widths[-1] != config.token_width:
        raise ModelError(
            f"The output cannot share the table of pieces: it is {config.token_width} wide and the top layer "
            f"{config.widths[-1]}. Give the top layer that width ('top_width'), or the output a table of its own."
        )
    return CausalOutput(config.widths[-1], config.n_pieces, tied=tied)


FAMILY = Family(
    name="lstm",
    kind="recurrent",
    read_config=read_config,
    write_config=write_own,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("RecurrentLanguageModel", frozenset({"causal"})), ("RecurrentEncoder", frozenset())],
    frame="none",
    base=lambda: RecurrentConfig(n_pieces=10_000, token_width=650, width=650, n_layers=2),
    small={"n_pieces": 99, "token_width": 16, "width": 16, "n_layers": 3, "inner_width": 24},
    reference=None,
)
