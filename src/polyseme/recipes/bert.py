"""BERT (Devlin et al. 2018), and the small ones of Turc et al. (2019).

Not as published: there is no next-sentence part (RoBERTa showed that nothing is lost), and rows are packed across
documents. `--objective next=nsp` gives both: rows of two segments, and next-sentence prediction.
"""

from __future__ import annotations

from polyseme.recipes.recipe import NO_DROPOUT, Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

ADAM = OptimizerSettings(kind="adamw-uncorrected", lr=1e-4, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01)
TRAINING = TrainingSettings(
    phases=(Phase(share=0.9, length=128, batch_size=256), Phase(share=0.1, length=512, batch_size=256)),
    optimizer=ADAM,
    schedule=Schedule(kind="linear", warmup=10_000, max_warmup=0.1),
    max_grad_norm=1.0,
)

BASE = Recipe(
    name="bert-base",
    system="BERT",
    paper="Devlin et al. 2018",
    family="bert",
    shape={"n_layers": 12, "width": 768, "n_heads": 12, "inner_width": 3072, "max_positions": 512},
    objective="masked",
    objective_settings={"static_copies": 10},
    tokenizer="wordpiece",
    vocabulary=30522,
    lowercase=True,
    training=TRAINING,
    published_steps=1_000_000,
    note="without the next-sentence part (next=nsp adds it)",
)

_SMALL = TRAINING.replace(
    phases=(Phase(length=128, batch_size=256),),
    optimizer=ADAM.replace(kind="adamw", lr=1e-3, betas=(0.9, 0.98)),
    schedule=Schedule(kind="linear", warmup=0.1),
)
_OURS = (
    "rows of 128 throughout, masks drawn anew each time, no dropout, and a learning rate of our own: for small budgets"
)


def _small(name: str, layers: int, width: int, **changes: object) -> Recipe:
    """A size of Turc et al., trained for a small budget."""
    return BASE.but(
        name,
        paper="Turc et al. 2019",
        shape={
            "n_layers": layers,
            "width": width,
            "n_heads": width // 64,
            "inner_width": 4 * width,
            **NO_DROPOUT,
        },
        objective_settings={},
        training=_SMALL,
        published_steps=None,
        note=f"without the next-sentence part; {_OURS}",
        **changes,
    )


RECIPES = (
    _small("bert-tiny", 2, 128, vocabulary=8192),
    _small("bert-mini", 4, 256, vocabulary=16384),
    _small("bert-small", 4, 512),
    BASE,
    BASE.but("bert-large", shape={"n_layers": 24, "width": 1024, "n_heads": 16, "inner_width": 4096}),
)
