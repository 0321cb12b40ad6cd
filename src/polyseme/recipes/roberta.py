"""RoBERTa (Liu et al. 2019): BERT with large batches, full rows of 512 across documents, and new masks each time.

Rows are packed full, and may begin within a sentence; `--layout` gives the four formats of the paper, of which it used
full-sentences.
"""

from __future__ import annotations

from polyseme.recipes.bert import BASE
from polyseme.recipes.recipe import OWN_SIZE, size
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase

_BASE = BASE.but(
    "roberta-base",
    system="RoBERTa",
    paper="Liu et al. 2019",
    family="roberta",
    objective_settings={},
    tokenizer="byte-bpe",
    vocabulary=50265,
    lowercase=False,
    training={
        "phases": (Phase(length=512, batch_size=8192),),
        "optimizer": {"kind": "adamw", "lr": 6e-4, "betas": (0.9, 0.98)},
        "schedule": Schedule(kind="linear", warmup=24_000, max_warmup=0.1),
        "max_grad_norm": None,
    },
    published_steps=500_000,
    note="rows begin within sentences (layout=full-sentences: they do not)",
)

RECIPES = (
    _BASE.but("roberta-tiny", shape=size(2, 128, 2), vocabulary=4096, published_steps=None, note=OWN_SIZE),
    _BASE,
    _BASE.but(
        "roberta-large",
        shape=size(24, 1024, 16),
        training={"optimizer": {"lr": 4e-4}, "schedule": Schedule(kind="linear", warmup=30_000, max_warmup=0.1)},
    ),
)
