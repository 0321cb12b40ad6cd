"""GPT (Radford et al. 2018): the decoder of the Transformer, norms after, each piece sees those before it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import Settings
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.convert.family import BASE, SMALL, Family
from polyseme.convert.tensor_transforms import TRANSPOSE
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError, nearest
from polyseme.outputs.pieces import CausalOutput

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "max_positions": "n_positions",
        "norm_epsilon": "layer_norm_epsilon",
        "dropout_rate": "resid_pdrop",
        "attention_dropout_rate": "attn_pdrop",
        "embedding_dropout_rate": "embd_pdrop",
        "init_std": "initializer_range",
    },
    defaults={
        "n_positions": 512,
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "initializer_range": 0.02,
    },
    fixed={"n_segments": 0, "embedding_norm": False, "masks": ("causal",), "memory": "cache"},
)
"""What GPT and GPT-2 name alike."""

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
"""Its own names: its "gelu" is the one approximated by tanh."""

BUFFERS = [r"{p}h\.\d+\.attn\.(bias|masked_bias)", r"{p}position_ids"]
TASK_LAYERS = [r"(multiple_choice_head|score|classifier|qa_outputs)\..*"]


def conv1d(theirs: str, ours: str) -> list[Rule]:
    """A layer whose matrix is kept as [in, out]."""
    return [Rule((f"{theirs}.weight",), (f"{ours}.weight",), TRANSPOSE), Rule((f"{theirs}.bias",), (f"{ours}.bias",))]


LAYERS = [
    *module("{p}h.{i}.ln_1", "encoder.layers.{i}.attention_norm"),
    *conv1d("{p}h.{i}.attn.c_attn", "encoder.layers.{i}.attention.project"),
    *conv1d("{p}h.{i}.attn.c_proj", "encoder.layers.{i}.attention.output"),
    *module("{p}h.{i}.ln_2", "encoder.layers.{i}.feed_forward_norm"),
    *conv1d("{p}h.{i}.mlp.c_fc", "encoder.layers.{i}.feed_forward.up"),
    *conv1d("{p}h.{i}.mlp.c_proj", "encoder.layers.{i}.feed_forward.down"),
]
"""The stack, as GPT and GPT-2 name it."""


def causal_output(config: TransformerConfig, tied: bool) -> CausalOutput:
    return CausalOutput(config.width, config.n_pieces, tied=tied)


def causal_rules(pieces: str, *, tied: bool) -> tuple[list[Rule], list[Alias]]:
    """Where it shares the table of `pieces`, the output has no tensors of its own, and is always there."""
    if tied:
        return [], [Alias("lm_head.weight", pieces)]
    return [Rule(("lm_head.weight",), ("outputs.causal.table",))], []


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    name = theirs.get("afn", "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(f"{where} names an unknown activation {name!r}. {nearest(str(name), ACTIVATIONS)}")
    ours = SETTINGS.read(theirs, where)
    return TransformerConfig(**ours, inner_width=4 * ours["width"], activation=ACTIVATIONS[name])


def write_config(config: TransformerConfig) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {**SETTINGS.write(config), "afn": names.get(config.activation, "gelu")}


def gpt_table(config: TransformerConfig, tied: bool, *, pieces: str, positions: str) -> Table:
    """The table of GPT and GPT-2, which name the token layer otherwise."""
    causal, aliases = causal_rules(f"{{p}}{pieces}.weight", tied=tied)
    return Table(
        prefix="transformer.",
        n_sets=config.n_layers,
        body=[
            *module(f"{{p}}{pieces}", "encoder.embeddings.pieces", bias=False),
            *module(f"{{p}}{positions}", "encoder.embeddings.positions.table", bias=False),
            *LAYERS,
            *(module("{p}ln_f", "encoder.norm") if config.final_norm else []),
        ],
        outputs={"causal": causal},
        aliases=aliases,
        derived=BUFFERS,
        foreign=TASK_LAYERS,
    )


FAMILY = Family(
    name="openai-gpt",
    read_config=read_config,
    write_config=write_config,
    table=functools.partial(gpt_table, pieces="tokens_embed", positions="positions_embed"),
    outputs={"causal": causal_output},
    architectures=[("OpenAIGPTLMHeadModel", frozenset({"causal"})), ("OpenAIGPTModel", frozenset())],
    frame="gpt",
    base=lambda: TransformerConfig(n_pieces=40478, **BASE, norm_epsilon=1e-5, activation="gelu_new", **SETTINGS.fixed),
    small={**SMALL, "inner_width": 128},
    reference="openai",
)
