"""The neural probabilistic language model (Bengio et al. 2003): a word from the n - 1 words before it.

`nnlm-2003` is the best single network of the paper on the Brown corpus (their MLP9: 100 tanh units over four vectors of
30 numbers), trained by stochastic gradient descent. `nnlm` keeps the network and has what was learned since: wider
vectors, one table for words that are read and words that are predicted, dropout, and AdamW.
"""

from __future__ import annotations

from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_EPOCHS, _WORDS, _LENGTH = 20, 800_000, 16
"""Of the Brown corpus; a step has so many words."""
_SCALING = Scaling(
    length=32,
    cpu_length=32,
    batch=0.25,
    optimizer="adamw",
    weight_decay=0.1,
    betas=(0.9, 0.99),
    dropout=0.5,
    cpu_objective={"softmax": "sampled", "n_samples": 1024},
)

_PUBLISHED = Recipe(
    name="nnlm-2003",
    system="NNLM",
    paper="Bengio et al. 2003",
    family="nnlm",
    shape={"token_width": 30, "width": 100, "order": 5},
    objective="streams",
    tokenizer="words",
    frame="lm",
    vocabulary=16_384,
    tied=False,
    training=TrainingSettings(
        phases=(Phase(length=_LENGTH, batch_size=1),),
        optimizer=OptimizerSettings(kind="sgd", lr=1e-3 * _LENGTH, weight_decay=1e-4, momentum=0.0, nesterov=False),
        schedule=Schedule(kind="constant", warmup=0),
        max_grad_norm=None,
    ),
    scaling=_SCALING,
    compiled=False,
    published_steps=_EPOCHS * _WORDS // _LENGTH,
    note=f"a step has {_LENGTH} words instead of one, at {_LENGTH} times the rate, which then fell by 1 + 1e-8 t",
)

RECIPES = (
    _PUBLISHED.but(
        "nnlm-tiny",
        shape={"token_width": 128, "width": 128},
        vocabulary=8192,
        tied=True,
        published_steps=None,
        note=f"{OWN_SIZE}; the output is tied",
    ),
    _PUBLISHED.but(
        "nnlm",
        shape={"token_width": 384, "width": 384},
        vocabulary=33_278,
        tied=True,
        published_steps=None,
        note=f"{OWN_SIZE}; the output is tied; for WikiText: --tokenizer blanks --documents line",
    ),
    _PUBLISHED,
)
