"""BART (Lewis et al. 2020): an encoder that sees both sides and a decoder that reads it and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import Settings
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.convert.family import SMALL, Family
from polyseme.convert.tensor_transforms import Copies, reshape
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.outputs.pieces import TableOutput

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "d_model",
        "n_layers": "encoder_layers",
        "n_heads": "encoder_attention_heads",
        "inner_width": "encoder_ffn_dim",
        "decoder_layers": "decoder_layers",
        "decoder_heads": "decoder_attention_heads",
        "decoder_inner_width": "decoder_ffn_dim",
        "activation": "activation_function",
        "max_positions": "max_position_embeddings",
        "dropout_rate": "dropout",
        "attention_dropout_rate": "attention_dropout",
        "inner_dropout_rate": "activation_dropout",
        "init_std": "init_std",
    },
    defaults={
        "activation_function": "gelu",
        "max_position_embeddings": 1024,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "init_std": 0.02,
    },
    fixed={"position_offset": 2, "n_segments": 0, "norm_epsilon": 1e-5},
)

REFUSED = {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False}
"""Options of the first years' files that no published BART sets so."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    for name, value in REFUSED.items():
        if theirs.get(name, not value) == value:
            raise ModelError(f"{where} sets {name!r} to {value}, as no published BART does; polyseme cannot load it.")
    ours = SETTINGS.read(theirs, where)
    for name, of_encoder in (("decoder_heads", "n_heads"), ("decoder_inner_width", "inner_width")):
        ours[name] = None if ours[name] == ours[of_encoder] else ours[name]
    return TransformerConfig(
        **ours,
        embedding_dropout_rate=ours["dropout_rate"],
        embedding_scale=ours["width"] ** 0.5 if theirs.get("scale_embedding", False) else 1.0,
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    second = config.decoder
    if second is None:
        raise ModelError("A BART has two stacks, and the config has no 'decoder_layers'.")
    return {
        **SETTINGS.write(config),
        "decoder_attention_heads": second.n_heads,
        "decoder_ffn_dim": second.inner_width,
        "scale_embedding": config.embedding_scale != 1.0,
    }


def attention(theirs: str, ours: str) -> list[Rule]:
    """Three projections and what puts the heads together."""
    return [
        *module(tuple(f"{theirs}.{name}_proj" for name in "qkv"), f"{ours}.project"),
        *module(f"{theirs}.out_proj", f"{ours}.output"),
    ]


def stack(name: str, n_layers: int, *, cross: bool) -> list[Rule]:
    """One of the two stacks, without its table of pieces."""
    rules = [
        *module(f"{{p}}{name}.embed_positions", f"{name}.embeddings.positions.table", bias=False),
        *module(f"{{p}}{name}.layernorm_embedding", f"{name}.embeddings.norm"),
    ]
    for number in range(n_layers):
        theirs, ours = f"{{p}}{name}.layers.{number}", f"{name}.layers.{number}"
        rules += attention(f"{theirs}.self_attn", f"{ours}.attention")
        rules += module(f"{theirs}.self_attn_layer_norm", f"{ours}.attention_norm")
        if cross:
            rules += attention(f"{theirs}.encoder_attn", f"{ours}.cross")
            rules += module(f"{theirs}.encoder_attn_layer_norm", f"{ours}.cross_norm")
        rules += module(f"{theirs}.fc1", f"{ours}.feed_forward.up")
        rules += module(f"{theirs}.fc2", f"{ours}.feed_forward.down")
        rules += module(f"{theirs}.final_layer_norm", f"{ours}.feed_forward_norm")
    return rules


def table(config: TransformerConfig, tied: bool) -> Table:
    """The output's bias is zeros in all published files, and not in those of the bare model.

    Where the output has a table of its own, the reference no longer ties those of the stacks either.
    """
    shared, of_stacks = "{p}shared.weight", [f"{{p}}{name}.embed_tokens.weight" for name in ("encoder", "decoder")]
    bias = (1, config.n_pieces)
    causal = [Rule(("final_logits_bias",), ("outputs.causal.bias",), reshape(bias, (config.n_pieces,)), absent=bias)]
    aliases: list[Alias] = []
    if tied:
        pieces = Rule((shared,), ("encoder.embeddings.pieces.weight",))
        aliases += [Alias(name, shared) for name in (*of_stacks, "lm_head.weight")]
    else:
        pieces = Rule((shared, *of_stacks), ("encoder.embeddings.pieces.weight",), Copies(3))
        causal.append(Rule(("lm_head.weight",), ("outputs.causal.table",)))
    return Table(
        prefix="model.",
        n_sets=0,
        body=[
            pieces,
            *stack("encoder", config.n_layers, cross=False),
            *stack("decoder", config.decoder_layers or 0, cross=True),
        ],
        outputs={"causal": causal},
        aliases=aliases,
        derived=[r"{p}(encoder|decoder)\.version"],
        foreign=[r"(classification_head|qa_outputs)\..*"],
    )


FAMILY = Family(
    name="bart",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": lambda config, tied: TableOutput(config.width, config.n_pieces, tied=tied, bias="kept")},
    architectures=[("BartForConditionalGeneration", frozenset({"causal"})), ("BartModel", frozenset())],
    frame="bart",
    first="end",
    base=lambda: TransformerConfig(
        n_pieces=50265,
        width=768,
        n_layers=6,
        n_heads=12,
        inner_width=3072,
        max_positions=1024,
        decoder_layers=6,
        attention_dropout_rate=0.0,
        **SETTINGS.fixed,
    ),
    small={**SMALL, "decoder_layers": 2, "decoder_heads": 2, "decoder_inner_width": 48},
    reference="bart",
)
