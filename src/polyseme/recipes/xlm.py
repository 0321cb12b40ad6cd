"""XLM's translation language modeling (Lample and Conneau 2019), in a size for small budgets.

Published is a model of 12 layers of 1,024 that alternates between this objective and masked text of 15 languages. Here
two languages are read in pairs alone; `-m MODEL` begins with a model that was trained on text.
"""

from __future__ import annotations

from polyseme.recipes.bert import BASE
from polyseme.recipes.recipe import size
from polyseme.training.training_settings import Phase

RECIPES = (
    BASE.but(
        "xlm-tlm-tiny",
        system="XLM",
        paper="Lample and Conneau 2019",
        shape=size(4, 256, 4),
        objective="tlm",
        objective_settings={},
        vocabulary=8192,
        lowercase=False,
        training={"phases": (Phase(length=256, batch_size=64),), "optimizer": {"kind": "adamw", "betas": (0.9, 0.98)}},
        published_steps=None,
        note="a size of our own; translation pairs alone, WordPiece, and frequent pieces are masked as often as others",
    ),
)
