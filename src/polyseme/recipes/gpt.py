"""GPT-2 (Radford et al. 2019), trained as GPT-3 was (Brown et al. 2020), whose settings were published."""

from __future__ import annotations

from typing import Any

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_SMALL = Recipe(
    name="gpt-small",
    system="GPT-2",
    paper="Radford et al. 2019; Brown et al. 2020",
    family="gpt2",
    shape={**size(12, 768, 12), "max_positions": 1024},
    objective="causal",
    tokenizer="byte-bpe",
    vocabulary=50257,
    training=TrainingSettings(
        phases=(Phase(length=1024, batch_size=512),),
        optimizer=OptimizerSettings(kind="adamw", lr=6e-4, betas=(0.9, 0.95), epsilon=1e-8, weight_decay=0.1),
        schedule=Schedule(kind="cosine", warmup=715, max_warmup=0.1, floor=0.1),
        max_grad_norm=1.0,
    ),
    scaling=Scaling(length=256),
    published_steps=572_000,
    note="GPT-3's rows were of 2,048 pieces; steps have as many pieces, in twice as many rows",
)


def _small(name: str, n_layers: int, width: int, n_heads: int, vocabulary: int, **changes: Any) -> Recipe:
    return _SMALL.but(
        name,
        shape={**size(n_layers, width, n_heads), "max_positions": 512},
        vocabulary=vocabulary,
        published_steps=None,
        note=OWN_SIZE,
        **changes,
    )


RECIPES = (
    _small("gpt-tiny", 2, 128, 4, 4096, scaling=Scaling(length=256, rate=0.08)),
    _small("gpt-mini", 8, 384, 6, 16_384),
    _SMALL,
)
