"""ULMFiT's second stage: a language model is trained further on the texts of a task (Howard and Ruder 2018).

Its layers learn at rates that fall by 2.6 from each to the one below, over a slanted triangle. The first stage is any
recipe of a recurrent language model, the third `finetune --ulmfit`.
"""

from __future__ import annotations

from polyseme.recipes.awd_lstm import PUBLISHED
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase

LAYER_DECAY = 1 / 2.6

RECIPES = (
    PUBLISHED.but(
        "ulmfit-target",
        system="ULMFiT target LM",
        paper="Howard and Ruder 2018",
        training={
            "phases": (Phase(length=70, batch_size=64),),
            "optimizer": OptimizerSettings(kind="adamw", lr=4e-3, betas=(0.7, 0.99), epsilon=1e-8, weight_decay=0.0),
            "schedule": Schedule(kind="slanted-triangular", warmup=0.0),
            "layer_decay": LAYER_DECAY,
            "varied_by": "quarters",
            "rate_by_length": False,
        },
        scaling=None,
        published_steps=None,
        budget="15epochs",
        only_further=True,
        note="trains a recurrent language model further (-m), with its shape and its tokenizer",
    ),
)
