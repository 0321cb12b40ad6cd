"""Flair (Akbik et al. 2018): a forward and a backward language model of characters, trained side by side.

The two are independent but for the loss, which is the mean of theirs. So the published learning rate of 20 is 40 here,
and the norm of 0.25 that each gradient is held to is 0.25 / √2 for both together: the steps are the same where both are
held to it. The published rate is divided by four whenever the held-out loss has not fallen for ten splits of the
corpus; here it falls to zero over the second half.
"""

from __future__ import annotations

import dataclasses
import math

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_SCALING = Scaling(
    length=256,
    cpu_length=128,
    batch=0.25,
    gpu_utilization=0.04,
    optimizer="adamw",
    weight_decay=0.0,
    betas=(0.9, 0.99),
    dropout=0.25,
)

_PUBLISHED = Recipe(
    name="flair",
    system="Flair",
    paper="Akbik et al. 2018",
    family="flair",
    shape={
        "n_layers": 1,
        "token_width": 100,
        "width": 2048,
        "dropout_rate": 0.25,
        "embedding_dropout_rate": 0.25,
    },
    objective="two-way",
    tokenizer="characters",
    vocabulary=277,
    tied=False,
    training=TrainingSettings(
        phases=(Phase(length=250, batch_size=100),),
        optimizer=OptimizerSettings(kind="sgd", lr=40.0, momentum=0.0, nesterov=False, weight_decay=0.0),
        schedule=Schedule(kind="warmup-stable-decay", warmup=0, decay=0.5),
        max_grad_norm=0.25 / math.sqrt(2),
    ),
    scaling=_SCALING,
    compiled=False,
    note="the characters are the most frequent ones of the text; a tenth of the rows begin without memory; the "
    "learning rate falls over the second half, and not when the held-out loss stops falling",
)

RECIPES = (
    _PUBLISHED.but(
        "flair-tiny",
        shape={"token_width": 32, "width": 128},
        scaling=dataclasses.replace(_SCALING, rate=0.12),
        published_steps=None,
        note=f"{OWN_SIZE}; the characters are the most frequent ones of the text",
    ),
    _PUBLISHED.but("flair-fast", shape={"width": 1024}),
    _PUBLISHED,
)
