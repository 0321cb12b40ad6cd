"""What the conformance battery runs over: every registered family, and small encoders for the rest of the contract."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from encoders.small_modules import Recurrent, RecurrentConfig, TwoWay, TwoWayConfig
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.encoders.base import Encoder
from polyseme.encoders.kinds import build_encoder
from polyseme.encoders.transformer_config import TransformerConfig
from references import SPREAD

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

TRANSFORMERS: dict[str, TransformerConfig] = {
    **{name: family.tiny() for name, family in FAMILIES.items()},  # type: ignore[dict-item]
    "causal": CAUSAL,
    "any order": ANY_ORDER,
    "buckets": BUCKETS,
}

ENCODERS: dict[str, Callable[[], Encoder]] = {
    **{name: lambda config=config: build_encoder(config) for name, config in TRANSFORMERS.items()},  # type: ignore[misc]
    "recurrent": lambda: Recurrent(RecurrentConfig(n_pieces=99, layer_widths=(12, 10, 8), memory="state")),
    "backward": lambda: Recurrent(RecurrentConfig(n_pieces=99, layer_widths=(12, 10, 8), backwards=True)),
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
