"""ELECTRA (Clark et al. 2020): a small generator replaces pieces, the model finds out which."""

from __future__ import annotations

from polyseme.recipes.bert import BASE
from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, size
from polyseme.training.training_settings import Phase

_FOR_BUDGETS = {"mask_rate": 0.3, "final_mask_rate": 0.15, "weight": 5.0, "discriminator_rate": 0.25}
"""More targets at first, and less weight on the discriminator, whose gradients otherwise drown the generator's in the
tables that both read: the generator leaves the unigram entropy early, and the discriminator can learn from it. At the
generator's rate it does not: 12 layers of 256 ended at the entropy of the labels (0.349 nats) after 2,376 steps, where
the generator was 3.6 nats below that of the pieces."""

_SMALL = BASE.but(
    "electra-small",
    system="ELECTRA",
    paper="Clark et al. 2020",
    family="electra",
    shape={**size(12, 256, 4), "embedding_width": 128},
    objective="replaced",
    objective_settings={"generator_share": 1 / 4, "weight": 50.0},
    training={"phases": (Phase(length=128, batch_size=128),), "optimizer": {"lr": 5e-4}},
    scaling=Scaling(objective={**_FOR_BUDGETS, "generator_share": 1 / 2, "generator_depth": 1 / 3}, local_start=True),
    published_steps=1_000_000,
    note="",
)

RECIPES = (
    _SMALL.but(
        "electra-tiny",
        shape={**size(2, 128, 2), "embedding_width": None},
        vocabulary=4096,
        # One encoder for both: of its own, 2 layers of 128 detect nothing after five minutes on a CPU; so, they find 13
        # of 20 replaced words.
        scaling=Scaling(objective={**_FOR_BUDGETS, "generator_share": 1.0, "sharing": "all"}, local_start=True),
        published_steps=None,
        note=OWN_SIZE,
    ),
    _SMALL,
    _SMALL.but(
        "electra-base",
        shape={**size(12, 768, 12), "embedding_width": None},
        objective_settings={"generator_share": 1 / 3, "weight": 50.0},
        training={"phases": (Phase(length=512, batch_size=256),), "optimizer": {"lr": 2e-4}},
        published_steps=766_000,
    ),
    _SMALL.but(
        "electra-large",
        shape={**size(24, 1024, 16), "embedding_width": None},
        training={"phases": (Phase(length=512, batch_size=2048),), "optimizer": {"lr": 2e-4}},
        published_steps=400_000,
    ),
)
