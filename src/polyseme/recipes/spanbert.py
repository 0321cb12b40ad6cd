"""SpanBERT (Joshi et al. 2020): spans of whole words are masked, and each is also predicted from its boundaries.

Rows are single sequences within a document, without a next sentence, and masks are dynamic. Fitted to a budget, rows
are packed, so that any text will do. The boundary output serves training alone: the model that is saved is a BERT with
its masked output.
"""

from __future__ import annotations

from polyseme.recipes.bert import BASE as BERT
from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.modern import FALLING_MASKS
from polyseme.recipes.recipe import OWN_SIZE, size
from polyseme.training.training_settings import Phase

_BASE = BERT.but(
    "spanbert-base",
    system="SpanBERT",
    paper="Joshi et al. 2020",
    objective_settings={
        "unit": "span",
        "span_shape": 0.2,
        "longest_span": 10,
        "boundary": True,
        "layout": "doc-sentences",
    },
    vocabulary=28_996,
    lowercase=False,
    training={
        "phases": (Phase(length=512, batch_size=256),),
        "optimizer": {"kind": "adamw", "epsilon": 1e-8, "weight_decay": 0.1},
    },
    scaling=Scaling(objective={**FALLING_MASKS, "layout": None}, local_start=True),
    published_steps=2_400_000,
    note="rows begin with a sentence; the boundary output is not saved with the model",
)

RECIPES = (
    _BASE.but("spanbert-tiny", shape=size(2, 128, 2), vocabulary=4096, published_steps=None, note=OWN_SIZE),
    _BASE.but("spanbert-small", shape=size(4, 512, 8), vocabulary=16_384, published_steps=None, note=OWN_SIZE),
    _BASE,
    _BASE.but("spanbert-large", shape=size(24, 1024, 16)),
)
