"""Encoders as they are built today, in ModernBERT's layout (Warner et al. 2024), in sizes for small budgets.

Rotary positions, gated feed-forward layers, norms before each part, no biases. Unlike ModernBERT, every layer sees the
whole row: rows are short. Published is the base size: 1.7 trillion pieces in rows of 1,024, then 300 billion of 8,192.
"""

from __future__ import annotations

from typing import Any

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

FALLING_MASKS = {"mask_rate": 0.3, "final_mask_rate": 0.15, "static_copies": None}
"""Many targets at first, and in the end the usual share, so that rows look as those that the model is used on."""


def _size(n_layers: int, width: int, n_heads: int) -> dict[str, Any]:
    """The gated part has three matrices: two thirds of the usual width give it as many weights; in 64s."""
    inner_width = -(-width * 8 // 3 // 64) * 64
    return {"n_layers": n_layers, "width": width, "n_heads": n_heads, "inner_width": inner_width}


_BASE = Recipe(
    name="modern-base",
    system="ModernBERT",
    paper="Warner et al. 2024",
    family="modernbert",
    shape={
        "n_layers": 22,
        "width": 768,
        "n_heads": 12,
        "inner_width": 1152,
        "masks": ("local:64:3",),
        "max_positions": 1024,
    },
    objective="masked",
    objective_settings={"mask_rate": 0.3},
    tokenizer="wordpiece",
    vocabulary=32_768,
    lowercase=True,
    training=TrainingSettings(
        phases=(Phase(length=1024, batch_size=4608),),
        optimizer=OptimizerSettings(kind="adamw", lr=8e-4, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=1e-5),
        schedule=Schedule(kind="warmup-stable-decay", warmup=636, max_warmup=0.1, decay=0.1),
        max_grad_norm=None,
    ),
    scaling=Scaling(objective=FALLING_MASKS),
    published_steps=364_000,
    note="the published tokenizer is of 50,368 byte-level pieces; AdamW for StableAdamW; without the phase of rows of "
    "8,192, and without the growing batch at the beginning",
)

_OURS = {"masks": ("all",), "positions": "rotary:10000", "max_positions": 512}


def _small(name: str, n_layers: int, width: int, n_heads: int, vocabulary: int) -> Recipe:
    return _BASE.but(
        name,
        shape={**_size(n_layers, width, n_heads), **_OURS},
        vocabulary=vocabulary,
        published_steps=None,
        note="a size of our own; every layer sees the whole row",
    )


RECIPES = (
    _small("modern-tiny", 2, 128, 4, 4096),
    _small("modern-mini", 4, 256, 4, 8192),
    _small("modern-small", 12, 384, 6, 16_384),
    _BASE,
)
