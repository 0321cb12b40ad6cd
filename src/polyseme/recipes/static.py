"""Static vectors: word2vec (Mikolov et al. 2013), GloVe (Pennington et al. 2014), fastText (Bojanowski et al. 2017).

The settings are the defaults of the published programs. The updates of a row of text, and of a step of GloVe's pairs,
are computed together and added up, so the learning rate is that of a single pair.
"""

from __future__ import annotations

from typing import Any

from polyseme.recipes.recipe import Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_WORDS = 400_000
"""Words of a vocabulary at most; the programs have no bound, or one that memory sets."""


def _plain_sgd(rate: float, **changes: Any) -> TrainingSettings:
    """Plain SGD with a rate that falls in a straight line."""
    settings = TrainingSettings(
        phases=(Phase(length=1024, batch_size=8),),
        optimizer=OptimizerSettings(kind="sgd", lr=rate, momentum=0.0, nesterov=False, weight_decay=0.0),
        schedule=Schedule(kind="linear", warmup=0, floor=1e-4),
        summed=True,
        threads=1,
        max_grad_norm=None,
    )
    return settings.replace(**changes)


_SKIP_GRAM = Recipe(
    name="skip-gram",
    system="word2vec",
    paper="Mikolov et al. 2013",
    family="static",
    shape={"width": 100},
    objective="skip-gram",
    tokenizer="words",
    frame="lm",
    vocabulary=_WORDS,
    min_count=5,
    lowercase=True,
    training=_plain_sgd(0.025),
    budget="5epochs",
    compiled=False,
    note="noise words are shared by 16 consecutive words; updates of up to 1,024 words are added up; lower case",
)

RECIPES = (
    _SKIP_GRAM,
    _SKIP_GRAM.but("cbow", objective="cbow", training={"optimizer": {"lr": 0.05}}),
    _SKIP_GRAM.but(
        "fasttext",
        system="fastText",
        paper="Bojanowski et al. 2017",
        shape={"min_ngram": 3, "max_ngram": 6, "n_buckets": 2_000_000},
        objective_settings={"subsample": 1e-4, "power": 0.5},
        training={"optimizer": {"lr": 0.05}},
        note=f"{_SKIP_GRAM.note}; noise by the root of counts, as in the program",
    ),
    _SKIP_GRAM.but(
        "glove",
        system="GloVe",
        paper="Pennington et al. 2014",
        shape={"width": 50},
        objective="glove",
        training={
            "phases": (Phase(length=256, batch_size=64),),
            "optimizer": OptimizerSettings(kind="adagrad", lr=0.05, epsilon=0.0, weight_decay=0.0, initial_sum=1.0),
            "schedule": Schedule(kind="constant", warmup=0),
        },
        budget="25epochs",
        note="updates of 16,384 pairs are added up before AdaGrad sees them; lower case; a piece is a pair here",
    ),
)
