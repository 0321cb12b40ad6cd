"""XLNet (Yang et al. 2019): two streams under any order of factorization, relative positions and segments, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import Settings, whole
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.convert.family import BASE, SMALL, Family
from polyseme.convert.tensor_transforms import TRANSPOSE, Chain, Each, Stack, reshape
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.outputs.pieces import TableOutput

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "d_model",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "inner_width": "d_inner",
        "activation": "ff_activation",
        "max_positions": "n_positions",
        "norm_epsilon": "layer_norm_eps",
        "dropout_rate": "dropout",
        "init_std": "initializer_range",
    },
    defaults={
        "ff_activation": "gelu",
        "n_positions": 512,
        "layer_norm_eps": 1e-12,
        "dropout": 0.1,
        "initializer_range": 0.02,
    },
    fixed={
        "embedding_norm": False,
        "attention_bias": False,
        "attention_output_bias": False,
        "positions": "relative",
        "n_segments": 3,
        "relative_segments": True,
        "query_stream": True,
        "sees_itself": True,
        "memory": "segment",
    },
    usual={"attn_type": "bi", "bi_data": False, "same_length": False, "untie_r": True},
)
"""Relative positions know no bound; `n_positions` is of our own making, and what windows are cut to: the published
models were trained on rows of 512."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    if "vocab_size" not in theirs and "n_token" in theirs:
        theirs = {**theirs, "vocab_size": theirs["n_token"]}
    ours = SETTINGS.read(theirs, where)
    if theirs.get("d_head") not in (None, ours["width"] // ours["n_heads"]):
        raise ModelError(f"In {where}, 'd_head' must be 'd_model' / 'n_head'. Got {theirs['d_head']!r} instead.")
    return TransformerConfig(
        **ours,
        memory_length=_read_bound(theirs, "mem_len", where),
        reuse=_read_bound(theirs, "reuse_len", where),
        clamp_distance=_read_bound(theirs, "clamp_len", where),
        attention_dropout_rate=ours["dropout_rate"],
        inner_dropout_rate=ours["dropout_rate"],
        embedding_dropout_rate=ours["dropout_rate"],
    )


def _read_bound(theirs: Mapping[str, Any], name: str, where: str) -> int | None:
    """A number that null, 0 and anything below leave without effect."""
    value = theirs.get(name)
    if value is None or (isinstance(value, int) and value <= 0):
        return None
    return whole(value, name, where)


def write_config(config: TransformerConfig) -> dict[str, Any]:
    return {
        **SETTINGS.write(config),
        "d_head": config.width_of_heads,
        "mem_len": config.memory_length,
        "reuse_len": config.reuse,
        "clamp_len": -1 if config.clamp_distance is None else config.clamp_distance,
    }


def table(config: TransformerConfig, tied: bool) -> Table:
    """Projections are kept by head, [in, heads, head width], and that of the heads' results as it is: [out, …]."""
    width = config.width
    by_head = Each(lambda theirs: theirs.flatten(1), lambda ours: ours.unflatten(1, (-1, config.width_of_heads)))
    theirs, ours = "{p}layer.{i}.rel_attn", "encoder.layers.{i}.attention"
    output = [Rule(("lm_loss.bias",), ("outputs.permuted.bias",))]
    if not tied:
        output.append(Rule(("lm_loss.weight",), ("outputs.permuted.table",)))
    return Table(
        prefix="transformer.",
        n_sets=config.n_layers,
        body=[
            *module("{p}word_embedding", "encoder.embeddings.pieces", bias=False),
            Rule(("{p}mask_emb",), ("encoder.query",), reshape((1, 1, width), (width,))),
            Rule(
                tuple(f"{theirs}.{name}" for name in "qkv"),
                (f"{ours}.project.weight",),
                Chain((by_head, TRANSPOSE, Stack(3))),
            ),
            Rule((f"{theirs}.o",), (f"{ours}.output.weight",), by_head),
            Rule((f"{theirs}.r",), (f"{ours}.relative.project.weight",), Chain((by_head, TRANSPOSE))),
            Rule((f"{theirs}.r_w_bias",), (f"{ours}.relative.content_bias",)),
            Rule((f"{theirs}.r_r_bias",), (f"{ours}.relative.position_bias",)),
            Rule((f"{theirs}.r_s_bias",), (f"{ours}.relative.segment_bias",)),
            Rule((f"{theirs}.seg_embed",), (f"{ours}.relative.segments",)),
            *module(f"{theirs}.layer_norm", "encoder.layers.{i}.attention_norm"),
            *module("{p}layer.{i}.ff.layer_1", "encoder.layers.{i}.feed_forward.up"),
            *module("{p}layer.{i}.ff.layer_2", "encoder.layers.{i}.feed_forward.down"),
            *module("{p}layer.{i}.ff.layer_norm", "encoder.layers.{i}.feed_forward_norm"),
        ],
        outputs={"permuted": output},
        aliases=[Alias("lm_loss.weight", "{p}word_embedding.weight")] if tied else [],
        foreign=[r"(sequence_summary|logits_proj|classifier|qa_outputs|start_logits|end_logits|answer_class)\..*"],
    )


FAMILY = Family(
    name="xlnet",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"permuted": lambda config, tied: TableOutput(config.width, config.n_pieces, tied=tied, bias="learned")},
    architectures=[("XLNetLMHeadModel", frozenset({"permuted"})), ("XLNetModel", frozenset())],
    frame="xlnet",
    base=lambda: TransformerConfig(n_pieces=32000, **BASE, inner_dropout_rate=0.1, **SETTINGS.fixed),
    small={**SMALL, "memory_length": 6, "reuse": 5, "clamp_distance": 7},
    reference="xlnet",
)
