"""The Transformer (Vaswani et al. 2017), which translates.

Base and big as for English to German: 4.5 million pairs of WMT 2014 under one vocabulary of 37,000 pieces, steps of
about 25,000 pieces on either side, and the schedule of the paper, whose highest rate is d^-½ · warmup^-½.
"""

from __future__ import annotations

from typing import Any

from polyseme.recipes.recipe import Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_WARMUP = 4000


def _size(layers: int, width: int, heads: int, dropout: float) -> dict[str, Any]:
    """Both stacks alike; weights are first drawn with a spread of 1/√width, which is nearly Glorot's."""
    return {
        **size(layers, width, heads),
        "decoder_layers": layers,
        "decoder_heads": None,
        "decoder_inner_width": None,
        "dropout_rate": dropout,
        "attention_dropout_rate": 0.0,
        "embedding_dropout_rate": dropout,
        "init_std": width**-0.5,
    }


_BASE = Recipe(
    name="transformer-base",
    system="Transformer",
    paper="Vaswani et al. 2017",
    family="transformer",
    shape=_size(6, 512, 8, 0.1),
    objective="translation",
    objective_settings={"smoothing": 0.1},
    tokenizer="byte-bpe",
    vocabulary=37_000,
    training=TrainingSettings(
        phases=(Phase(length=256, batch_size=98),),
        optimizer=OptimizerSettings(
            kind="adamw", lr=(512 * _WARMUP) ** -0.5, betas=(0.9, 0.98), epsilon=1e-9, weight_decay=0.0
        ),
        schedule=Schedule(kind="noam", warmup=_WARMUP, max_warmup=0.1),
        max_grad_norm=None,
    ),
    published_steps=100_000,
    note="pairs share rows, each hidden from the others; checkpoints are not averaged",
)

RECIPES = (
    _BASE.but(
        "transformer-tiny",
        shape=_size(4, 256, 4, 0.2),
        vocabulary=8192,
        training={
            "phases": (Phase(length=128, batch_size=64),),
            "optimizer": {"lr": 1e-3, "weight_decay": 0.01},
            "schedule": Schedule(kind="cosine", warmup=0.1, floor=0.02),
            "max_grad_norm": 1.0,
        },
        published_steps=None,
        note="a size and settings of our own, for small budgets and few pairs",
    ),
    _BASE,
    _BASE.but(
        "transformer-big",
        shape=_size(6, 1024, 16, 0.3),
        training={"optimizer": {"lr": (1024 * _WARMUP) ** -0.5}},
        published_steps=300_000,
    ),
)
