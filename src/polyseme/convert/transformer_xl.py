"""Transformer-XL (Dai et al. 2019): segments that remember, relative positions, pieces in clusters by frequency.

`transformers` has dropped the class; its folders, by their old name "transfo-xl", are read and written as it left them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.config_file import Settings, whole
from polyseme.convert.conversion_table import Alias, Rule, Table, module
from polyseme.convert.family import SMALL, Family
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.outputs.softmaxes import ClusteredOutput

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "d_model",
        "width_of_embeddings": "d_embed",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "head_width": "d_head",
        "inner_width": "d_inner",
        "narrowing": "div_val",
        "max_positions": "n_positions",
        "norm_epsilon": "layer_norm_epsilon",
        "dropout_rate": "dropout",
        "attention_dropout_rate": "dropatt",
        "init_std": "init_std",
    },
    defaults={
        "div_val": 1,
        "n_positions": 512,
        "layer_norm_epsilon": 1e-5,
        "dropout": 0.1,
        "dropatt": 0.0,
        "init_std": 0.02,
    },
    fixed={
        "adaptive": True,
        "embedding_norm": False,
        "activation": "relu",
        "attention_bias": False,
        "attention_output_bias": False,
        "positions": "relative",
        "n_segments": 0,
        "first_memory": "zeros",
    },
    usual={"attn_type": 0, "adaptive": True, "sample_softmax": -1},
)
"""Relative positions know no bound; `n_positions` is of our own making, and what windows are cut to."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    cutoffs = theirs.get("cutoffs", [])
    if not isinstance(cutoffs, list):
        raise ModelError(f"In {where}, 'cutoffs' must be a list of whole numbers. Got {cutoffs!r} instead.")
    shared = bool(theirs.get("proj_share_all_but_first", True))
    if theirs.get("tie_projs", _tie_projs(len(cutoffs), shared)) != _tie_projs(len(cutoffs), shared):
        raise ModelError(f"In {where}, 'tie_projs' is not what follows from 'proj_share_all_but_first' and 'cutoffs'.")
    ours = SETTINGS.read(theirs, where)
    embedding_width = ours.pop("width_of_embeddings")
    memory_length = whole(theirs.get("mem_len"), "mem_len", where, least=0)
    clamp = theirs.get("clamp_len", -1)
    return TransformerConfig(
        **ours,
        embedding_width=None if embedding_width == ours["width"] else embedding_width,
        cutoffs=tuple(whole(each, "cutoffs", where) for each in cutoffs),
        shared_maps=shared,
        shared_biases=not theirs.get("untie_r", True),
        norm="before" if theirs.get("pre_lnorm", False) else "after",
        masks=(_mask(memory_length, where) if theirs.get("same_length", False) else "causal",),
        memory="segment" if memory_length else "none",
        memory_length=memory_length or None,
        clamp_distance=whole(clamp, "clamp_len", where) if clamp > 0 else None,
        embedding_scale=ours["width"] ** 0.5,
        inner_dropout_rate=ours["dropout_rate"],
        embedding_dropout_rate=ours["dropout_rate"],
    )


def _mask(memory_length: int, where: str) -> str:
    """`same_length`: every piece sees as many as the memory is long, itself counted."""
    if not memory_length:
        raise ModelError(f"{where} sets 'same_length' without a memory; then no piece would see any.")
    return f"band:{memory_length}"


def _tie_projs(n_cutoffs: int, shared: bool) -> list[bool]:
    return [False, *[shared] * n_cutoffs]


def write_config(config: TransformerConfig) -> dict[str, Any]:
    return {
        **SETTINGS.write(config),
        **SETTINGS.usual,
        "cutoffs": list(config.cutoffs),
        "proj_share_all_but_first": config.shared_maps,
        "tie_projs": _tie_projs(len(config.cutoffs), config.shared_maps),
        "untie_r": not config.shared_biases,
        "pre_lnorm": config.norm == "before",
        "same_length": config.masks != ("causal",),
        "mem_len": config.memory_length or 0,
        "clamp_len": -1 if config.clamp_distance is None else config.clamp_distance,
    }


def table(config: TransformerConfig, tied: bool) -> Table:
    """The tables of the output are second names of the token layer's, but for the first map and what is not shared."""
    n_clusters = len(config.cutoffs) + 1
    n_tables = n_clusters if config.narrowing > 1 else 1
    mapped = config.narrowing > 1 or config.embedding_width is not None
    body, output = [*LAYERS], []
    aliases: list[Alias] = []
    if n_clusters > 1:  # their places in the first softmax
        output.append(Rule(("crit.cluster_weight",), ("outputs.causal.cluster_table",)))
        output.append(Rule(("crit.cluster_bias",), ("outputs.causal.cluster_bias",)))
    for number in range(n_tables):
        pieces, theirs = f"{{p}}word_emb.emb_layers.{number}.weight", f"crit.out_layers.{number}"
        body.append(Rule((pieces,), (f"encoder.embeddings.pieces.tables.{number}.weight",)))
        output.append(Rule((f"{theirs}.bias",), (f"outputs.causal.biases.{number}",)))
        if tied:
            aliases.append(Alias(f"{theirs}.weight", pieces))
        else:
            output.append(Rule((f"{theirs}.weight",), (f"outputs.causal.tables.{number}",)))
    body += [
        Rule((f"{{p}}word_emb.emb_projs.{number}",), (f"encoder.embeddings.pieces.maps.{number}.weight",))
        for number in range(n_tables if mapped else 0)
    ]
    for number in range(n_clusters if mapped else 0):
        theirs = f"crit.out_projs.{number}"
        if number and config.shared_maps:
            aliases.append(Alias(theirs, f"{{p}}word_emb.emb_projs.{number if config.narrowing > 1 else 0}"))
        else:
            output.append(Rule((theirs,), (f"outputs.causal.maps.{number}",)))
    for theirs, ours in (("r_w_bias", "content_bias"), ("r_r_bias", "position_bias")):
        if config.shared_biases:
            body.append(Rule((f"{{p}}{theirs}",), (f"encoder.positions.{ours}",)))
            aliases += [
                Alias(f"{{p}}layers.{number}.dec_attn.{theirs}", f"{{p}}{theirs}") for number in range(config.n_layers)
            ]
        else:
            body.append(
                Rule((f"{{p}}layers.{{i}}.dec_attn.{theirs}",), (f"encoder.layers.{{i}}.attention.relative.{ours}",))
            )
    return Table(
        prefix="transformer.",
        n_sets=config.n_layers,
        body=body,
        outputs={"causal": output},
        aliases=aliases,
        derived=[r"{p}pos_emb\.inv_freq"],
        foreign=[r"score\..*"],
    )


LAYERS = [
    *module("{p}layers.{i}.dec_attn.qkv_net", "encoder.layers.{i}.attention.project", bias=False),
    *module("{p}layers.{i}.dec_attn.o_net", "encoder.layers.{i}.attention.output", bias=False),
    *module("{p}layers.{i}.dec_attn.r_net", "encoder.layers.{i}.attention.relative.project", bias=False),
    *module("{p}layers.{i}.dec_attn.layer_norm", "encoder.layers.{i}.attention_norm"),
    *module("{p}layers.{i}.pos_ff.CoreNet.0", "encoder.layers.{i}.feed_forward.up"),
    *module("{p}layers.{i}.pos_ff.CoreNet.3", "encoder.layers.{i}.feed_forward.down"),
    *module("{p}layers.{i}.pos_ff.layer_norm", "encoder.layers.{i}.feed_forward_norm"),
]


def causal_output(config: TransformerConfig, tied: bool) -> ClusteredOutput:
    return ClusteredOutput(
        config.width,
        config.width_of_embeddings,
        config.n_pieces,
        cutoffs=config.cutoffs,
        narrowing=config.narrowing,
        tied=tied,
        shared_maps=config.shared_maps,
    )


FAMILY = Family(
    name="transfo-xl",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("TransfoXLLMHeadModel", frozenset({"causal"})), ("TransfoXLModel", frozenset())],
    frame="none",
    base=lambda: TransformerConfig(
        n_pieces=267_735,
        width=410,
        head_width=41,
        n_layers=16,
        n_heads=10,
        inner_width=2100,
        max_positions=512,
        cutoffs=(20_000, 40_000, 200_000),
        norm_epsilon=1e-5,
        masks=("causal",),
        memory="segment",
        memory_length=150,
        embedding_scale=410**0.5,
        attention_dropout_rate=0.0,
        inner_dropout_rate=0.1,
        **SETTINGS.fixed,
    ),
    small={
        **SMALL,
        "embedding_width": 24,
        "head_width": 6,
        "cutoffs": (20, 60),
        "narrowing": 2,
        "memory_length": 6,
        "clamp_distance": 7,
        "embedding_scale": 32**0.5,
    },
    reference=None,
)
