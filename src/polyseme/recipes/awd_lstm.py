"""AWD-LSTM (Merity et al. 2018): three layers of LSTM, regularized everywhere, trained by SGD; weights are averaged
once it comes to a stand (NT-ASGD). The settings are those for WikiText-2, of 750 epochs.

Fitted to a budget it is trained by AdamW, since there is no time to wait for a stand, and has less dropout where a text
is read only a few times.
"""

from __future__ import annotations

import dataclasses

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_ROWS, _LENGTH = 80, 70
_EPOCHS, _WORDS = 750, 2_088_628
_DROPOUTS = {
    "embedding_dropout_rate": 0.65,
    "dropout_rate": 0.2,
    "output_dropout_rate": 0.4,
    "word_dropout_rate": 0.1,
    "weight_dropout_rate": 0.5,
}
_SCALING = Scaling(
    length=_LENGTH,
    cpu_length=_LENGTH // 2,
    batch=_ROWS * _LENGTH / 65_536,
    cpu_batch=512,
    gpu_utilization=0.04,
    optimizer="adamw",
    rate=0.1,
    matrix_factor=1.0,
    weight_decay=0.01,
    betas=(0.8, 0.99),
    max_grad_norm=0.25,
    dropout=_DROPOUTS["dropout_rate"],
    dropouts=_DROPOUTS,
    varied=True,
    sentence_starts=False,
    cpu_objective={"softmax": "sampled", "n_samples": 1024},
)

PUBLISHED = Recipe(
    name="awd-lstm",
    system="AWD-LSTM",
    paper="Merity et al. 2018",
    family="awd-lstm",
    shape={"n_layers": 3, "token_width": 400, "width": 1150, "top_width": 400, "locked_dropout": True, **_DROPOUTS},
    objective="streams",
    objective_settings={"activation": 2.0, "temporal": 1.0},
    tokenizer="words",
    frame="lm",
    vocabulary=33_278,
    training=TrainingSettings(
        phases=(Phase(length=_LENGTH, batch_size=_ROWS),),
        optimizer=OptimizerSettings(kind="nt-asgd", lr=30.0, weight_decay=1.2e-6),
        schedule=Schedule(kind="constant", warmup=0),
        max_grad_norm=0.25,
        varied=True,
        varied_by="normal",
        rate_by_length=True,
    ),
    scaling=_SCALING,
    compiled=False,
    published_steps=_EPOCHS * _WORDS // (_ROWS * _LENGTH),
    note="LSTMs, no QRNNs; not tuned further after convergence; for WikiText: --tokenizer blanks --documents line",
)

RECIPES = (
    PUBLISHED.but(
        "awd-lstm-tiny",
        shape={"n_layers": 2, "token_width": 128, "width": 256, "top_width": 128},
        vocabulary=8192,
        scaling=dataclasses.replace(
            _SCALING, dropouts={name: rate / 2 for name, rate in _DROPOUTS.items()}, dropout=0.1
        ),
        published_steps=None,
        note=f"{OWN_SIZE}, half the dropout; LSTMs, no QRNNs",
    ),
    PUBLISHED,
)
