"""What the conformance battery runs over: every registered family, and small encoders for the rest of the contract."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from encoders.small_modules import Recurrent as Small
from encoders.small_modules import RecurrentConfig as SmallConfig
from encoders.small_modules import TwoWay, TwoWayConfig
from polyseme.config import EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.recurrent_config import RecurrentConfig
from polyseme.encoders.transformer_config import TransformerConfig
from spread import SPREAD

CAUSAL = TransformerConfig(
    n_pieces=99,
    width=32,
    n_layers=3,
    n_heads=4,
    inner_width=64,
    max_positions=40,
    n_segments=0,
    norm="before",
    norm_epsilon=1e-5,
    embedding_norm=False,
    final_norm=True,
    masks=("causal", "band:3", "causal"),
    memory="cache",
)
"""As GPT-2 is, with a band as GPT-3 has."""

ANY_ORDER = TransformerConfig(
    n_pieces=99,
    width=32,
    n_layers=3,
    n_heads=4,
    inner_width=64,
    embedding_norm=False,
    attention_bias=False,
    attention_output_bias=False,
    positions="relative",
    relative_segments=True,
    query_stream=True,
    sees_itself=True,
    memory="segment",
    memory_length=6,
)
"""As XLNet is."""

BUCKETS = TransformerConfig(
    n_pieces=99,
    width=32,
    n_layers=3,
    n_heads=4,
    head_width=6,
    inner_width=48,
    n_segments=0,
    norm="before",
    norm_kind="rms",
    norm_epsilon=1e-6,
    embedding_norm=False,
    final_norm=True,
    gated=True,
    attention_bias=False,
    attention_output_bias=False,
    inner_bias=False,
    scale=1.0,
    positions="buckets",
    n_buckets=8,
    max_distance=10,
)
"""As T5's encoder is."""

REFERENCED: dict[str, Family] = {name: family for name, family in FAMILIES.items() if family.reference is not None}
"""The families that `transformers` has, all of them Transformers; the others have tests of their own to equal."""

TRANSFORMERS: dict[str, TransformerConfig] = {
    **{name: family.tiny() for name, family in REFERENCED.items()},  # type: ignore[dict-item]
    "causal": CAUSAL,
    "any order": ANY_ORDER,
    "buckets": BUCKETS,
}

TANH = RecurrentConfig(n_pieces=99, token_width=12, width=10, n_layers=3, top_width=12, cells="tanh")
BOTH_WAYS = RecurrentConfig(n_pieces=99, token_width=12, width=8, n_layers=3, reads="both", memory="none")
CLIPPED = RecurrentConfig(
    n_pieces=99,
    token_width=12,
    width=10,
    n_layers=3,
    inner_width=14,
    skip=True,
    cell_clip=0.6,
    projection_clip=0.3,
    forget_bias=1.0,
    reads="backwards",
)

CONFIGS: dict[str, EncoderConfig] = {
    **{name: family.tiny() for name, family in FAMILIES.items()},
    **TRANSFORMERS,
    "tanh": TANH,
    "both ways": BOTH_WAYS,
    "clipped": CLIPPED,
}

ENCODERS: dict[str, Callable[[], Encoder]] = {
    **{name: lambda config=config: build_encoder(config) for name, config in CONFIGS.items()},  # type: ignore[misc]
    "recurrent": lambda: Small(SmallConfig(n_pieces=99, layer_widths=(12, 10, 8), memory="state")),
    "backward": lambda: Small(SmallConfig(n_pieces=99, layer_widths=(12, 10, 8), backwards=True)),
    "two-way": lambda: TwoWay(TwoWayConfig(n_pieces=99, layer_widths=(12, 10, 8))),
}


def redrawn(encoder: Encoder, dtype: torch.dtype = torch.float32) -> Encoder:
    """An encoder with weights spread widely enough that a wrong mask shows, ready for inference."""
    generator = torch.Generator().manual_seed(7)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=SPREAD, generator=generator)
    return encoder.to(dtype).eval()


def family_name(family: Family) -> str:
    return family.name
