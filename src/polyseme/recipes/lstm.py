"""LSTM language models: of words (Zaremba et al. 2014; Merity et al. 2017) and of characters (Graves 2013).

The states are carried from row to row. Rows of the word-level ones vary in length (Merity et al.), so texts are not
cut at the same places in every epoch.
"""

from __future__ import annotations

from polyseme.recipes.recipe import Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_OURS = "AdamW and a schedule of our own instead of SGD with a rate that is lowered by hand"

_WORDS = Recipe(
    name="lstm-lm",
    system="LSTM language model",
    paper="Zaremba et al. 2014",
    family="lstm",
    shape={
        "n_layers": 2,
        "token_width": 650,
        "width": 650,
        "inner_width": None,
        "dropout_rate": 0.5,
        "embedding_dropout_rate": 0.5,
    },
    objective="streams",
    tokenizer="words",
    frame="lm",
    vocabulary=33_278,
    training=TrainingSettings(
        phases=(Phase(length=48, batch_size=64),),
        optimizer=OptimizerSettings(kind="adamw", lr=2e-3, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.0),
        schedule=Schedule(kind="cosine", warmup=0.02, floor=0.02),
        max_grad_norm=0.5,
        varied=True,
    ),
    compiled=False,
    note=f"{_OURS}; the output is tied; for WikiText: --tokenizer blanks --documents line",
)

_CHARACTERS = _WORDS.but(
    "char-lm",
    paper="Graves 2013; Karpathy 2015",
    shape={"token_width": 128, "width": 1024, "dropout_rate": 0.1, "embedding_dropout_rate": 0.0},
    tokenizer="characters",
    vocabulary=512,
    tied=False,
    training={"phases": (Phase(length=128, batch_size=128),), "max_grad_norm": 1.0, "varied": False},
    note=_OURS,
)

RECIPES = (
    _WORDS.but(
        "lstm-tiny",
        shape={"token_width": 200, "width": 200, "dropout_rate": 0.2, "embedding_dropout_rate": 0.2},
        vocabulary=8192,
        training={"phases": (Phase(length=32, batch_size=32),)},
        note=f"a size for small budgets; {_OURS}; the output is tied",
    ),
    _WORDS,
    _CHARACTERS,
    _CHARACTERS.but(
        "char-lm-tiny",
        shape={"n_layers": 1, "token_width": 64, "width": 256, "dropout_rate": 0.0},
        vocabulary=256,
        training={"phases": (Phase(length=64, batch_size=32),)},
        note=f"a size for small budgets; {_OURS}",
    ),
)
