"""ModernBERT (Warner et al. 2024): rotary positions, layers with a local window among those that see all, gated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.convert.bert import masked_output, masked_rules
from polyseme.convert.config_file import Settings, flag, whole
from polyseme.convert.conversion_table import Table, module
from polyseme.convert.family import SMALL, Family
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.outputs.pieces import MaskedOutput
from polyseme.parts.masks import Local, get_mask, named_together
from polyseme.parts.rotary_positions import bases, in_full

SETTINGS = Settings(
    names={
        "n_pieces": "vocab_size",
        "width": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "inner_width": "intermediate_size",
        "activation": "hidden_activation",
        "max_positions": "max_position_embeddings",
        "norm_epsilon": "norm_eps",
        "dropout_rate": "hidden_dropout_prob",
        "attention_dropout_rate": "attention_dropout",
        "inner_dropout_rate": "mlp_dropout",
        "embedding_dropout_rate": "embedding_dropout",
        "init_std": "initializer_range",
    },
    defaults={
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
        "embedding_dropout": 0.0,
        "initializer_range": 0.02,
    },
    fixed={
        "norm": "before",
        "first_norm": False,
        "final_norm": True,
        "gated": True,
        "n_segments": 0,
        "spread_by_depth": True,
    },
    usual={"classifier_activation": "gelu", "classifier_bias": False, "decoder_bias": True},
)
"""`hidden_dropout_prob` and `attention_output_dropout` are of our own making: the reference has no dropout on what the
feed-forward part adds, and on what attention adds the rate of its weights."""

BASES = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}
"""A kind of layer → the old name of its rotary base, and what it is where a file does not give it."""


def read_config(theirs: Mapping[str, Any], where: str) -> TransformerConfig:
    ours = SETTINGS.read(theirs, where)
    attention_bias = flag(theirs, "attention_bias", where)
    return TransformerConfig(
        **ours,
        norm_kind="layer" if flag(theirs, "norm_bias", where) else "layer-no-bias",
        attention_bias=attention_bias,
        attention_output_bias=attention_bias,
        inner_bias=flag(theirs, "mlp_bias", where),
        attention_output_dropout_rate=_dropout(theirs, ours["attention_dropout_rate"], where),
        init_cutoff=_positive(theirs.get("initializer_cutoff_factor", 2.0), "initializer_cutoff_factor", where),
        positions=_positions(theirs, where),
        masks=_masks(theirs, ours["n_layers"], where),
    )


def _positions(theirs: Mapping[str, Any], where: str) -> str:
    """The bases of layers that see all and of local ones, as files name them today or did before."""
    rotary = theirs.get("rope_parameters") or {}
    named = []
    for kind, (old_name, default) in BASES.items():
        settings = (rotary.get(kind) if isinstance(rotary, Mapping) else None) or {}
        form = settings.get("rope_type", "default")
        if form != "default" or theirs.get("rope_scaling"):
            raise ModelError(f"{where} asks for rotary positions of type {form!r}; polyseme knows only 'default'.")
        base = settings.get("rope_theta", theirs.get(old_name, default))
        named.append(_positive(base, old_name, where))
    return ":".join(["rotary", *dict.fromkeys(map(in_full, named))])


def _masks(theirs: Mapping[str, Any], n_layers: int, where: str) -> tuple[str, ...]:
    """One mask for all layers where they follow a pattern, else one per layer."""
    local = f"local:{whole(theirs.get('local_attention', 128), 'local_attention', where, least=2) // 2}"
    every = whole(theirs.get("global_attn_every_n_layers", 3), "global_attn_every_n_layers", where)
    kinds = theirs.get("layer_types")
    if kinds is None:
        return (f"{local}:{every}",)
    if not isinstance(kinds, (list, tuple)) or len(kinds) != n_layers or not set(kinds) <= set(BASES):
        raise ModelError(f"In {where}, 'layer_types' must name {' or '.join(BASES)} for each of {n_layers} layers.")
    return named_together([local if kind == "sliding_attention" else "all" for kind in kinds], every)


def _dropout(theirs: Mapping[str, Any], default: float, where: str) -> float:
    """Of what attention adds: the reference has that of attention itself; a rate of its own is of our making."""
    rate = theirs.get("attention_output_dropout", default)
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise ModelError(f"In {where}, 'attention_output_dropout' must be from 0 to 1. Got {rate!r} instead.")
    return float(rate)


def _positive(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ModelError(f"In {where}, {name!r} must be a number above 0. Got {value!r} instead.")
    return float(value)


def write_config(config: TransformerConfig) -> dict[str, Any]:
    """Under the names of today, and under those that files had before where these say the same.

    A null for `pad_token_id` stands for the tokenizer's: the reference's default is a piece that few vocabularies have.
    """
    local = [mask for mask in map(get_mask, config.layer_masks) if isinstance(mask, Local)]
    kinds = ["sliding_attention" if mask.startswith("local") else "full_attention" for mask in config.layer_masks]
    written = {
        **SETTINGS.write(config),
        "norm_bias": config.norm_kind == "layer",
        "attention_output_dropout": config.attention_output_dropout_rate,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.inner_bias,
        "initializer_cutoff_factor": config.init_cutoff,
        "local_attention": 2 * local[0].width if local else 128,
        "layer_types": kinds,
        "rope_parameters": {},
        "pad_token_id": None,
    }
    if len(config.masks) == 1 and config.masks[0].count(":") == 2:
        written["global_attn_every_n_layers"] = int(config.masks[0].rpartition(":")[2])
    for (kind, (old_name, _)), base in zip(BASES.items(), bases(config.positions) or (0, 0), strict=True):
        written["rope_parameters"][kind] = {"rope_type": "default", "rope_theta": base}
        written[old_name] = base
    return written


def table(config: TransformerConfig, tied: bool) -> Table:
    shifted = config.norm_kind == "layer"
    masked, aliases = masked_rules(
        dense="head.dense",
        norm="head.norm",
        bias="decoder.bias",
        decoder="decoder",
        tied=tied,
        pieces="{p}embeddings.tok_embeddings",
        dense_bias=False,
        norm_bias=shifted,
    )
    layer, ours = "{p}layers.{i}", "encoder.layers.{i}"
    return Table(
        prefix="model.",
        n_sets=config.n_layers,
        body=[
            *module("{p}embeddings.tok_embeddings", "encoder.embeddings.pieces", bias=False),
            *module("{p}embeddings.norm", "encoder.embeddings.norm", bias=shifted),
            *module(f"{layer}.attn.Wqkv", f"{ours}.attention.project", bias=config.attention_bias),
            *module(f"{layer}.attn.Wo", f"{ours}.attention.output", bias=config.attention_output_bias),
            *(
                rule
                for i in range(1, config.n_layers)
                for rule in module(f"{{p}}layers.{i}.attn_norm", f"encoder.layers.{i}.attention_norm", bias=shifted)
            ),
            *module(f"{layer}.mlp_norm", f"{ours}.feed_forward_norm", bias=shifted),
            *module(f"{layer}.mlp.Wi", f"{ours}.feed_forward.up", bias=config.inner_bias),
            *module(f"{layer}.mlp.Wo", f"{ours}.feed_forward.down", bias=config.inner_bias),
            *module("{p}final_norm", "encoder.norm", bias=shifted),
        ],
        outputs={"masked": masked},
        aliases=aliases,
        derived=[r"{p}(rotary_emb|layers\.\d+\.attn\.rotary_emb)\..*inv_freq"],
        foreign=[r"(head|classifier)\..*"],
        signs={"masked": "decoder.bias"},
    )


def _masked_output(config: TransformerConfig, tied: bool) -> MaskedOutput:
    return masked_output(
        config,
        tied,
        activation="gelu",
        norm_kind=config.norm_kind,
        dense_bias=False,
        init_share=(2 * max(config.n_layers, 1)) ** -0.5,
    )


FAMILY = Family(
    name="modernbert",
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"masked": _masked_output},
    architectures=[("ModernBertForMaskedLM", frozenset({"masked"})), ("ModernBertModel", frozenset())],
    frame="bert",
    base=lambda: TransformerConfig(
        n_pieces=50_368,
        width=768,
        n_layers=22,
        n_heads=12,
        inner_width=1152,
        max_positions=8192,
        norm_kind="layer-no-bias",
        norm_epsilon=1e-5,
        attention_bias=False,
        attention_output_bias=False,
        inner_bias=False,
        positions="rotary:160000:10000",
        masks=("local:64:3",),
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        attention_output_dropout_rate=0.0,
        embedding_dropout_rate=0.0,
        init_cutoff=2.0,
        **SETTINGS.fixed,
    ),
    small={**SMALL, "n_layers": 5, "inner_width": 48, "masks": ("local:2:3",)},
    reference="modernbert",
    special_ids=[*Family.special_ids, ("start", "cls_token_id"), ("end", "sep_token_id")],
)
