"""T5 (Raffel et al. 2020): spans are replaced by sentinels; version 1.0, as its baseline was pretrained.

Adafactor, which the paper takes, is not among our optimizers: AdamW replaces it. Adafactor's steps are as long as
weights are large, and T5's differ: tables begin with a spread of 1, queries with 1 / √(width · head width), as scores
are not scaled. So fitted training moves tables fast and matrices slowly: at the usual rates, 3 layers of 256 were at
5.10 nats after 106 s on an H200, at these at 4.44 (unigram entropy 7.13).
"""

from __future__ import annotations

from typing import Any

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings


def _size(layers: int, width: int, heads: int) -> dict[str, Any]:
    return {
        **size(layers, width, heads),
        "head_width": 64,
        "decoder_layers": layers,
        "max_positions": 512,
        "n_buckets": 32,
        "max_distance": 128,
        "activation": "relu",
        "gated": False,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "inner_dropout_rate": 0.1,
        "embedding_dropout_rate": 0.1,
    }


_BASE = Recipe(
    name="t5-base",
    system="T5",
    paper="Raffel et al. 2020",
    family="t5",
    shape=_size(12, 768, 12),
    objective="spans",
    objective_settings={"corruption_rate": 0.15, "mean_length": 3.0},
    tokenizer="unigram",
    vocabulary=32_100,
    training=TrainingSettings(
        phases=(Phase(length=512, batch_size=128),),
        optimizer=OptimizerSettings(kind="adamw", lr=1e-3, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.0),
        schedule=Schedule(kind="linear", warmup=10_000, max_warmup=0.1),
        max_grad_norm=1.0,
    ),
    scaling=Scaling(one_dropout=True, rate=0.2, matrix_factor=0.12),
    published_steps=524_288,
    note="AdamW and a schedule of our own for Adafactor; packed rows with ends between documents",
)

RECIPES = (
    _BASE.but("t5-tiny", shape=_size(3, 256, 4), vocabulary=16_384, published_steps=None, note=OWN_SIZE),
    _BASE.but("t5-small", shape=_size(6, 512, 8)),
    _BASE,
)
