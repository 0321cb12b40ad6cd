"""ALBERT (Lan et al. 2020): BERT whose layers share one set of weights, under a narrow table of pieces.

Published: 125,000 steps of 4,096 rows, spans of one to three words masked, a length n with a chance that goes by 1 / n;
the geometric lengths here have the same mean (1.64); rows are pairs of segments, whose order is a second part of the
loss. Not as published: AdamW replaces LAMB, whose learning rate (1.76e-3, a share of each matrix's norm) means nothing
to it.
"""

from __future__ import annotations

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.modern import FALLING_MASKS
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_OTHER = "AdamW for LAMB"

_BASE = Recipe(
    name="albert-base",
    system="ALBERT",
    paper="Lan et al. 2020",
    family="albert",
    shape={**size(12, 768, 12), "embedding_width": 128, "max_positions": 512},
    objective="masked",
    objective_settings={"unit": "span", "span_shape": 0.44, "longest_span": 3, "next": "sop"},
    tokenizer="unigram",
    vocabulary=30_000,
    lowercase=True,
    training=TrainingSettings(
        phases=(Phase(length=512, batch_size=4096),),
        optimizer=OptimizerSettings(kind="adamw", lr=6e-4, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=3125, max_warmup=0.1),
        max_grad_norm=1.0,
    ),
    scaling=Scaling(objective=FALLING_MASKS),
    published_steps=125_000,
    note=f"{_OTHER}, at RoBERTa's learning rate",
)

_XLARGE = _BASE.but(
    "albert-xlarge",
    shape=size(24, 2048, 16),
    training={"optimizer": {"lr": 2e-4}},
    note=f"{_OTHER}, at GPT-3's learning rate for this width",
)

RECIPES = (
    _BASE.but(
        "albert-small",
        shape=size(6, 512, 8),
        vocabulary=16_384,
        scaling=Scaling(objective={**FALLING_MASKS, "next": None}),
        published_steps=None,
        note=f"{OWN_SIZE}; fitted to one without the order of sentences (next=sop adds it)",
    ),
    _BASE,
    _BASE.but("albert-large", shape=size(24, 1024, 16), training={"optimizer": {"lr": 4e-4}}),
    _XLARGE,
    _XLARGE.but("albert-xxlarge", shape=size(12, 4096, 64), training={"optimizer": {"lr": 1.2e-4}}),
)
