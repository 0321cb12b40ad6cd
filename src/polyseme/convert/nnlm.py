"""The neural probabilistic language model (Bengio et al. 2003): a family of our own, as `lstm` is.

The output is y = b + W x + U tanh(d + H x): a softmax over the encoder's top layer, which is [tanh; x] with direct
connections. Without them, and where the tanh layer is as wide as the word vectors, U may be their table (`tied`), as it
is in later language models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import read_native_config, write_own
from polyseme.convert.conversion_table import Table, native_layout
from polyseme.convert.family import Family
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.fixed_context import FixedContextConfig
from polyseme.outputs.softmaxes import AdaptiveOutput, SoftmaxOutput
from polyseme.parts.initialization import skip_initialization


def read_config(theirs: Mapping[str, Any], where: str) -> FixedContextConfig:
    config: FixedContextConfig = read_native_config(FixedContextConfig, theirs, where)
    return config


def causal_output(config: FixedContextConfig, tied: bool) -> AdaptiveOutput | SoftmaxOutput:
    """A softmax over the top layer; a tied one shares the table of words where that is as wide as the layer."""
    if config.output_cutoffs:
        return AdaptiveOutput(config.widths[-1], config.n_pieces, config.output_cutoffs)
    return SoftmaxOutput(config.widths[-1], config.n_pieces, tied=tied and config.widths[-1] == config.token_width)


def table(config: FixedContextConfig, tied: bool) -> Table:
    with skip_initialization():
        encoder, output = build_encoder(config), causal_output(config, tied)
    own = [name for name, _ in output.named_parameters() if not (name == "table" and getattr(output, "tied", False))]
    return native_layout(
        [f"encoder.{name}" for name, _ in encoder.named_parameters()],
        {"causal": [f"outputs.causal.{name}" for name in own]},
    )


FAMILY = Family(
    name="nnlm",
    kind="fixed-context",
    read_config=read_config,
    write_config=write_own,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("NeuralProbabilisticLanguageModel", frozenset({"causal"})), ("WordVectors", frozenset())],
    frame="none",
    base=lambda: FixedContextConfig(n_pieces=16_384, token_width=30, width=100),
    small={"n_pieces": 99, "token_width": 16, "width": 16},
    reference=None,
)
