"""ELECTRA (Clark et al. 2020): a small generator replaces pieces, the model finds out which."""

from __future__ import annotations

from polyseme.recipes.bert import ADAM, BASE
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings


def _training(*, length: int, rows: int, lr: float) -> TrainingSettings:
    return TrainingSettings(
        phases=(Phase(length=length, batch_size=rows),),
        optimizer=ADAM.replace(lr=lr),
        schedule=Schedule(kind="linear", warmup=10_000, max_warmup=0.1),
        max_grad_norm=1.0,
    )


_SMALL = BASE.but(
    "electra-small",
    system="ELECTRA",
    paper="Clark et al. 2020",
    family="electra",
    shape={"n_layers": 12, "width": 256, "embedding_width": 128, "n_heads": 4, "inner_width": 1024},
    objective="replaced",
    objective_settings={"generator_share": 1 / 4, "weight": 50.0},
    training=_training(length=128, rows=128, lr=5e-4),
    published_steps=1_000_000,
    note="",
)

RECIPES = (
    _SMALL,
    _SMALL.but(
        "electra-base",
        shape={"width": 768, "embedding_width": None, "n_heads": 12, "inner_width": 3072},
        objective_settings={"generator_share": 1 / 3, "weight": 50.0},
        training=_training(length=512, rows=256, lr=2e-4),
        published_steps=766_000,
    ),
    _SMALL.but(
        "electra-large",
        shape={"n_layers": 24, "width": 1024, "embedding_width": None, "n_heads": 16, "inner_width": 4096},
        training=_training(length=512, rows=2048, lr=2e-4),
        published_steps=400_000,
    ),
)
