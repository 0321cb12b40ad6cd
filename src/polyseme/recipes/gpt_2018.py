"""GPT as published in 2018 (Radford et al.): norms after the sums, lowercased BPE pieces, 100 epochs of BooksCorpus."""

from __future__ import annotations

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_EPOCHS, _PIECES, _ROWS, _LENGTH = 100, 1.18e9, 64, 512
"""The pieces of the text were not published; these agree with the computing that was, 0.96 petaflop/s-days."""

_PUBLISHED = Recipe(
    name="gpt-2018",
    system="GPT",
    paper="Radford et al. 2018",
    family="openai-gpt",
    shape={**size(12, 768, 12), "max_positions": 512},
    objective="causal",
    tokenizer="bpe",
    vocabulary=40_478,
    lowercase=True,
    training=TrainingSettings(
        phases=(Phase(length=_LENGTH, batch_size=_ROWS),),
        optimizer=OptimizerSettings(kind="adamw", lr=2.5e-4, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="cosine", warmup=2000, max_warmup=0.1),
        max_grad_norm=1.0,
    ),
    scaling=Scaling(length=256),
    published_steps=round(_EPOCHS * _PIECES / (_ROWS * _LENGTH)),
    note="the number of steps follows from the published 0.96 petaflop/s-days; packed rows across documents",
)

RECIPES = (
    _PUBLISHED.but("gpt-2018-small", shape=size(4, 512, 8), vocabulary=16_384, published_steps=None, note=OWN_SIZE),
    _PUBLISHED,
)
