"""ELMo (Peters et al. 2018): the biLM over characters, in the sizes of the releases.

The settings are those with which the original was trained on the 1 Billion Word Benchmark, for 10 epochs of 768,648,884
words on 3 devices with 128 rows of 20 words each. There the gradient was 20 times that of the mean loss (it was
multiplied by the length of the rows), held to a norm of 10, and Adagrad's sums began with 1; here, where it is that of
the mean, the same steps come of a norm of 10 / 20 and of sums that begin with 1 / 20².
"""

from __future__ import annotations

import dataclasses
from typing import Any

from polyseme.config import EncoderConfig
from polyseme.convert.elmo import SIZES
from polyseme.recipes.budget_fit import Scaling
from polyseme.recipes.recipe import OWN_SIZE, Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_UNROLLED = 20
_EPOCHS, _WORDS, _ROWS = 10, 768_648_884, 3 * 128
_SOFTMAX = 793_471
"""Words of the published softmax, markers and the unknown word among them."""
_FREQUENT = 32_768
"""Words of the softmax where training is fitted to a budget: those that are read often enough to be learned."""
_TABLE = 2_000_000
"""Types of a corpus that can be read at most; the rarest beyond that are the unknown word."""
_SCALING = Scaling(
    length=_UNROLLED, cpu_length=_UNROLLED, batch=0.25, optimizer="adamw", weight_decay=0.0, betas=(0.9, 0.99)
)


def _shape(size: str) -> dict[str, Any]:
    """A release's size, with the softmax and the dropout it was trained with."""
    config = SIZES[size]
    of_any_encoder = {each.name for each in dataclasses.fields(EncoderConfig)}
    names = [each.name for each in dataclasses.fields(config) if each.name not in of_any_encoder]
    return {
        **{name: getattr(config, name) for name in names},
        "n_outputs": _SOFTMAX,
        "dropout_rate": 0.1,
        "embedding_dropout_rate": 0.1,
    }


_ORIGINAL = Recipe(
    name="elmo-original",
    system="ELMo",
    paper="Peters et al. 2018",
    family="elmo",
    shape=_shape("elmo-original"),
    objective="bilm",
    objective_settings={"softmax": "sampled", "n_samples": 8192},
    tokenizer="words",
    frame="elmo",
    vocabulary=_TABLE,
    training=TrainingSettings(
        phases=(Phase(length=_UNROLLED, batch_size=_ROWS),),
        optimizer=OptimizerSettings(
            kind="adagrad", lr=0.2, epsilon=1e-10, weight_decay=0.0, initial_sum=1 / _UNROLLED**2
        ),
        schedule=Schedule(kind="constant", warmup=0),
        max_grad_norm=10 / _UNROLLED,
    ),
    scaling=dataclasses.replace(_SCALING, shape={"n_outputs": _FREQUENT}, objective={"softmax": "full"}),
    compiled=False,
    published_steps=_EPOCHS * (_WORDS // (_ROWS * _UNROLLED)),
    note="the backward half reads the streams from their ends; a tenth of the rows begin without memory",
)

RECIPES = (
    _ORIGINAL.but(
        "elmo-tiny",
        shape={
            "token_width": 64,
            "width": 64,
            "inner_width": 256,
            "filter_widths": (1, 2, 3, 4),
            "filter_counts": (16, 32, 64, 128),
            "n_highways": 1,
            "n_outputs": 8192,
        },
        objective_settings={},
        vocabulary=200_000,
        scaling=dataclasses.replace(_SCALING, rate=0.08, objective={"softmax": "sampled", "n_samples": 1024}),
        published_steps=None,
        note=f"{OWN_SIZE}; a softmax over few words",
    ),
    _ORIGINAL.but("elmo-small", shape=_shape("elmo-small")),
    _ORIGINAL.but("elmo-medium", shape=_shape("elmo-medium")),
    _ORIGINAL,
)
