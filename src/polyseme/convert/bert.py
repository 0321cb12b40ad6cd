"""BERT (Devlin et al. 2018), and SpanBERT, which is a BERT trained otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from polyseme.convert.config_file import Settings
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.convert.family import BASE, Family
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.outputs.labels import NextOutput, PooledOutput
from polyseme.outputs.pieces import MaskedOutput

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "inner_width": "intermediate_size",
        "activation": "hidden_act",
        "max_positions": "max_position_embeddings",
        "n_segments": "type_vocab_size",
        "norm_epsilon": "layer_norm_eps",
        "dropout_rate": "hidden_dropout_prob",
        "attention_dropout_rate": "attention_probs_dropout_prob",
        "init_std": "initializer_range",
    },
    defaults={
        "hidden_act": "gelu",
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
    },
)

LAYERS = [
    *module(
        tuple(f"{{p}}encoder.layer.{{i}}.attention.self.{name}" for name in ("query", "key", "value")),
        "encoder.layers.{i}.attention.project",
    ),
    *module("{p}encoder.layer.{i}.attention.output.dense", "encoder.layers.{i}.attention.output"),
    *module("{p}encoder.layer.{i}.attention.output.LayerNorm", "encoder.layers.{i}.attention_norm"),
    *module("{p}encoder.layer.{i}.intermediate.dense", "encoder.layers.{i}.feed_forward.up"),
    *module("{p}encoder.layer.{i}.output.dense", "encoder.layers.{i}.feed_forward.down"),
    *module("{p}encoder.layer.{i}.output.LayerNorm", "encoder.layers.{i}.feed_forward_norm"),
]
"""The stack, as BERT, RoBERTa and ELECTRA name it."""

EMBEDDINGS = [
    *module("{p}embeddings.word_embeddings", "encoder.embeddings.pieces", bias=False),
    *module("{p}embeddings.position_embeddings", "encoder.embeddings.positions.table", bias=False),
    *module("{p}embeddings.token_type_embeddings", "encoder.embeddings.segments", bias=False),
    *module("{p}embeddings.LayerNorm", "encoder.embeddings.norm"),
]
"""The token layer, as BERT, RoBERTa, ELECTRA and ALBERT name it."""

POOLED = module("{p}pooler.dense", "outputs.pooled.dense")
BUFFERS = [r"{p}embeddings\.(position_ids|token_type_ids)"]
TASK_LAYERS = [r"(classifier|qa_outputs|dropout)\..*"]
OWN_TASKS = r"cls\.(?!predictions\.|seq_relationship\.)\w+\.(.*\.)?(weight|bias)"
"""Task layers that others trained beside the masked output (AntiBERTy's `cls.species`)."""


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


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    ours = SETTINGS.read(theirs, where)
    return TransformerConfig(**ours, embedding_dropout_rate=ours["dropout_rate"])


def table(config: TransformerConfig, tied: bool) -> Table:
    masked, aliases = masked_rules(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        bias="cls.predictions.bias",
        decoder="cls.predictions.decoder",
        tied=tied,
    )
    return Table(
        prefix="bert.",
        n_sets=config.n_layers,
        body=[*EMBEDDINGS, *LAYERS],
        outputs={"pooled": POOLED, "masked": masked, "next": module("cls.seq_relationship", "outputs.next.dense")},
        aliases=aliases,
        derived=BUFFERS,
        foreign=[*TASK_LAYERS, OWN_TASKS],
    )


OUTPUTS: Mapping[str, Callable[[TransformerConfig, bool], nn.Module]] = {
    "pooled": lambda config, tied: PooledOutput(config.width),
    "masked": masked_output,
    "next": lambda config, tied: NextOutput(config.width),
}

FAMILY = Family(
    name="bert",
    read_config=read_config,
    write_config=SETTINGS.write,
    table=table,
    outputs=OUTPUTS,
    architectures=[
        ("BertForPreTraining", frozenset({"pooled", "masked", "next"})),
        ("BertForNextSentencePrediction", frozenset({"pooled", "next"})),
        ("BertForMaskedLM", frozenset({"masked"})),
        ("BertModel", frozenset()),
    ],
    frame="bert",
    base=lambda: TransformerConfig(n_pieces=30522, **BASE, norm_epsilon=1e-12),
    reference="bert",
)
