"""XLNet (Yang et al. 2019): pieces in a random order, two streams, relative positions.

The published models carried a memory of 384 pieces, half of each row of 512 overlapping the next; here a row is read
by itself unless a memory is requested (--objective memory=true --set memory_length=384), and then no rows overlap.
"""

from __future__ import annotations

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_LARGE = Recipe(
    name="xlnet-large",
    system="XLNet",
    paper="Yang et al. 2019",
    family="xlnet",
    shape={**size(24, 1024, 16), "max_positions": 512, "memory_length": None, "reuse": None, "clamp_distance": None},
    objective="permuted",
    objective_settings={"one_in": 6},
    tokenizer="unigram",
    vocabulary=32_000,
    training=TrainingSettings(
        phases=(Phase(length=512, batch_size=8192),),
        optimizer=OptimizerSettings(kind="adamw", lr=4e-4, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=40_000, max_warmup=0.1),
        max_grad_norm=0.25,
    ),
    scaling=Scaling(one_dropout=True),
    published_steps=500_000,
    note="rows of one stretch, not of two segments; no memory unless requested",
)

_BASE = _LARGE.but(
    "xlnet-base",
    shape=size(12, 768, 12),
    training={"phases": (Phase(length=512, batch_size=2048),), "optimizer": {"lr": 1e-4}},
    published_steps=None,
    note=f"{_LARGE.note}; how long the base size was trained is not published",
)

RECIPES = (
    _BASE.but("xlnet-tiny", shape=size(4, 256, 4), vocabulary=16_384, note=OWN_SIZE),
    _BASE.but("xlnet-small", shape=size(4, 512, 8), vocabulary=16_384, note=OWN_SIZE),
    _BASE,
    _LARGE,
)
