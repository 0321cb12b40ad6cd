"""BART (Lewis et al. 2020): a corrupted text is read, and the original written.

The large model was trained as RoBERTa was, 500,000 steps of 8,000 rows, with 30% of the pieces infilled and all
sentences permuted.
"""

from __future__ import annotations

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe, size
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_LARGE = Recipe(
    name="bart-large",
    system="BART",
    paper="Lewis et al. 2020",
    family="bart",
    shape={
        **size(12, 1024, 16),
        "decoder_layers": 12,
        "decoder_heads": None,
        "decoder_inner_width": None,
        "max_positions": 1024,
    },
    objective="denoising",
    objective_settings={"infill_rate": 0.3, "permute": True},
    tokenizer="byte-bpe",
    vocabulary=50_265,
    training=TrainingSettings(
        phases=(Phase(length=512, batch_size=8000),),
        optimizer=OptimizerSettings(kind="adamw", lr=4e-4, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=30_000, max_warmup=0.1),
        max_grad_norm=0.1,
    ),
    scaling=Scaling(),
    published_steps=500_000,
    note="a row stands for a document; rate and warmup are RoBERTa's, clipping is ours: the paper does not say",
)

_BASE = _LARGE.but(
    "bart-base",
    shape={**size(6, 768, 12), "decoder_layers": 6},
    training={
        "phases": (Phase(length=512, batch_size=256),),
        "optimizer": {"lr": 1e-4},
        "schedule": Schedule(kind="linear", warmup=10_000, max_warmup=0.1),
    },
    published_steps=1_000_000,
    note="as the paper compares objectives at this size: in BERT's steps; a row stands for a document",
)


def _small(name: str, n_layers: int, width: int, n_heads: int) -> Recipe:
    """As many layers on either side."""
    return _BASE.but(
        name,
        shape={**size(n_layers, width, n_heads), "decoder_layers": n_layers, "max_positions": 512},
        vocabulary=16_384,
        published_steps=None,
        note=OWN_SIZE,
    )


RECIPES = (
    _small("bart-tiny", 3, 256, 4),
    _small("bart-small", 4, 512, 8),
    _BASE,
    _LARGE,
)
