"""The masked output, as every family of the BERT line has it under names of its own."""

from __future__ import annotations

from polyseme.convert.conversion_table import Alias, Rule, module
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.outputs.pieces import MaskedOutput


def masked_output(config: TransformerConfig, tied: bool, *, activation: str | None = None) -> MaskedOutput:
    """The output for a config; its activation is the stack's unless the family fixes one."""
    return MaskedOutput(
        config.width,
        config.width_of_embeddings,
        config.n_pieces,
        activation=config.activation if activation is None else activation,
        epsilon=config.norm_epsilon,
        tied=tied,
    )


def masked_rules(*, dense: str, norm: str, bias: str, decoder: str, tied: bool) -> tuple[list[Rule], list[Alias]]:
    """Rules and aliases for its parts: `decoder` is the table of pieces, the encoder's own where `tied`.

    Where it is not, the decoder's bias is the one that counts; a `bias` beside it may be left from before.
    """
    rules = [*module(dense, "outputs.masked.dense"), *module(norm, "outputs.masked.norm")]
    aliases = []
    if tied:
        rules.append(Rule((bias,), ("outputs.masked.bias",)))
        aliases.append(Alias(f"{decoder}.weight", "{p}embeddings.word_embeddings.weight"))
        if bias != f"{decoder}.bias":
            aliases.append(Alias(f"{decoder}.bias", bias))
    else:
        rules.append(Rule((f"{decoder}.bias",), ("outputs.masked.bias",)))
        rules.append(Rule((f"{decoder}.weight",), ("outputs.masked.table",)))
        if bias != f"{decoder}.bias":
            aliases.append(Alias(bias, f"{decoder}.bias", checked=False))
    return rules, aliases
