"""Transformer-XL (Dai et al. 2019): segments that remember, on whole words in clusters by frequency.

The standard size, on WikiText-103: 151M parameters, rows of 150 words with a memory of 150.
"""

from __future__ import annotations

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_STANDARD = Recipe(
    name="transformer-xl",
    system="Transformer-XL",
    paper="Dai et al. 2019",
    family="transfo-xl",
    shape={
        "n_layers": 16,
        "width": 410,
        "embedding_width": None,
        "n_heads": 10,
        "head_width": 41,
        "inner_width": 2100,
        "max_positions": 512,
        "cutoffs": (20_000, 40_000, 200_000),
        "narrowing": 1,
        "memory_length": 150,
        "clamp_distance": None,
        "dropout_rate": 0.1,
        "inner_dropout_rate": 0.1,
        "embedding_dropout_rate": 0.1,
        "attention_dropout_rate": 0.0,
    },
    objective="streams",
    tokenizer="words",
    frame="lm",
    vocabulary=267_735,
    training=TrainingSettings(
        phases=(Phase(length=150, batch_size=60),),
        optimizer=OptimizerSettings(kind="adamw", lr=2.5e-4, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.0),
        schedule=Schedule(kind="cosine", warmup=0),
        max_grad_norm=0.25,
    ),
    scaling=Scaling(length=64, batch=0.25, weight_decay=0.0, one_dropout=True),
    compiled=False,
    published_steps=200_000,
    note="for WikiText: --tokenizer blanks --documents line; layers have biases of their own",
)

RECIPES = (
    _STANDARD.but(
        "transformer-xl-tiny",
        shape={
            **size(4, 256, 4),
            "head_width": 64,
            "cutoffs": (2_000, 8_000),
            "memory_length": 64,
        },
        vocabulary=16_384,
        published_steps=None,
        note=OWN_SIZE,
    ),
    _STANDARD,
)
