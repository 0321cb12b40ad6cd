"""BERT (Devlin et al. 2018), and the small ones of Turc et al. (2019).

Rows are pairs of segments, and the next sentence is a second part of the loss. What each paper found of that part is in
docs/pretrain.md. Fitted to a budget, the small sizes leave it out and read packed rows, so that any text will do;
`--objective next=nsp` gives it back.
"""

from __future__ import annotations

from typing import Any

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.modern import FALLING_MASKS
from polyseme.recipes.recipe import Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

BASE = Recipe(
    name="bert-base",
    system="BERT",
    paper="Devlin et al. 2018",
    family="bert",
    shape={**size(12, 768, 12), "max_positions": 512},
    objective="masked",
    objective_settings={"static_copies": 10, "next": "nsp"},
    tokenizer="wordpiece",
    vocabulary=30522,
    lowercase=True,
    training=TrainingSettings(
        phases=(Phase(share=0.9, length=128, batch_size=256), Phase(share=0.1, length=512, batch_size=256)),
        optimizer=OptimizerSettings(
            kind="adamw-uncorrected", lr=1e-4, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01
        ),
        schedule=Schedule(kind="linear", warmup=10_000, max_warmup=0.1),
        max_grad_norm=1.0,
    ),
    scaling=Scaling(objective=FALLING_MASKS, local_start=True),
    published_steps=1_000_000,
    note="a length is drawn for each short row, not for each document",
)


def _small(name: str, layers: int, width: int, **changes: Any) -> Recipe:
    """A size of Turc et al., who trained it as BERT."""
    return BASE.but(
        name,
        paper="Turc et al. 2019",
        shape=size(layers, width, width // 64),
        scaling=Scaling(objective={**FALLING_MASKS, "next": None}, local_start=True),
        published_steps=None,
        note="fitted to a budget without the next sentence (next=nsp adds it)",
        **changes,
    )


RECIPES = (
    _small("bert-tiny", 2, 128, vocabulary=4096),
    _small("bert-mini", 4, 256, vocabulary=16384),
    _small("bert-small", 4, 512),
    BASE,
    BASE.but("bert-large", shape=size(24, 1024, 16)),
)
