"""A start from which a Transformer with learned positions sees what is near (Trockman and Kolter 2023).

A table of positions that is first drawn at random tells a layer nothing about which pieces are neighbors. Until that is
learned, a masked model predicts pieces by their frequency alone, and in a small budget that is all it does: BERT with 2
layers of 128 was at the unigram entropy after 2,600 steps, and left it after 200 with this start.

The table begins as sinusoids whose waves are as long as rows are, several times as large as the pieces' embeddings, and
in every head the keys' map begins as the queries', so that scores are highest where positions are alike. Only the first
values of weights differ; config and checkpoint are those of any other model.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn

from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.parts.positions import LearnedPositions

SIZE = 4.0
"""How large the positions are, against the pieces' embeddings."""
PEAK = 4.0
"""The score, about, of a piece with itself."""


@torch.no_grad()
def start_locally(nets: nn.Module, length: int) -> None:
    """Draw the first weights of every Transformer with learned positions in `nets` so, for rows of `length` pieces."""
    for encoder in nets.modules():
        if isinstance(encoder, Transformer) and isinstance(encoder.embeddings.positions, LearnedPositions):
            _start_positions(encoder, length)
            for layer in encoder.layers:
                _start_attention(cast(TransformerLayer, layer))


def _start_positions(encoder: Transformer, length: int) -> None:
    table = cast(LearnedPositions, encoder.embeddings.positions).table.weight
    n_rows, width = table.shape
    rates = float(length) ** (-torch.arange(0, width, 2, device=table.device) / width)
    angles = torch.arange(n_rows, device=table.device)[:, None] * rates
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
    table.copy_(waves * (SIZE * encoder.config.init_std * math.sqrt(2)))


def _start_attention(layer: TransformerLayer) -> None:
    attention = layer.attention
    queries, keys, _ = attention.project.weight.chunk(3)
    nn.init.normal_(queries, std=math.sqrt(PEAK / (queries.shape[1] * math.sqrt(attention.head_width))))
    keys.copy_(queries)
