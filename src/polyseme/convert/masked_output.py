"""The masked output, as every family of the BERT line has it under names of its own."""

from __future__ import annotations

from typing import Any

from polyseme.convert.conversion_table import Alias, Rule, module
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.outputs.pieces import MaskedOutput


def masked_output(
    config: TransformerConfig, tied: bool, *, activation: str | None = None, **options: Any
) -> MaskedOutput:
    """The output for a config; its activation is the stack's unless the family fixes one."""
    return MaskedOutput(
        config.width,
        config.width_of_embeddings,
        config.n_pieces,
        activation=config.activation if activation is None else activation,
        epsilon=config.norm_epsilon,
        tied=tied,
        **options,
    )


def masked_rules(
    *,
    dense: str,
    norm: str,
    bias: str,
    decoder: str,
    tied: bool,
    pieces: str = "{p}embeddings.word_embeddings",
    dense_bias: bool = True,
    norm_bias: bool = True,
) -> tuple[list[Rule], list[Alias]]:
    """Rules and aliases for its parts: `decoder` is the table of `pieces`, the encoder's own where `tied`.

    Where it is not, the decoder's bias is the one that counts; a `bias` beside it may be left from before.
    """
    rules = [
        *module(dense, "outputs.masked.dense", bias=dense_bias),
        *module(norm, "outputs.masked.norm", bias=norm_bias),
    ]
    aliases = []
    if tied:
        rules.append(Rule((bias,), ("outputs.masked.bias",)))
        aliases.append(Alias(f"{decoder}.weight", f"{pieces}.weight"))
        if bias != f"{decoder}.bias":
            aliases.append(Alias(f"{decoder}.bias", bias))
    else:
        rules.append(Rule((f"{decoder}.bias",), ("outputs.masked.bias",)))
        rules.append(Rule((f"{decoder}.weight",), ("outputs.masked.table",)))
        if bias != f"{decoder}.bias":
            aliases.append(Alias(bias, f"{decoder}.bias", checked=False))
    return rules, aliases
