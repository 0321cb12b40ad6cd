"""Every objective names the parts of its loss that predict pieces, and how often each piece is a target."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.objectives.objective_table import OBJECTIVES, objective_from
from tiny_models import tiny_config, tiny_tokenizer

PARTS = {
    "masked": ("masked",),
    "causal": ("causal",),
    "streams": ("causal",),
    "bilm": ("forward", "backward"),
    "two-way": ("forward", "backward"),
    "permuted": ("permuted",),
    "denoising": ("denoising",),
    "spans": ("spans",),
    "replaced": ("masked",),  # the generator's
    "translation": (),  # its targets are smoothed
    "tlm": ("masked",),
    "skip-gram": ("skip-gram",),
    "cbow": ("cbow",),
    "glove": ("glove",),
    "distilled": ("masked",),
    "distilled-causal": ("causal",),
}


def test_every_objective_is_here() -> None:
    assert PARTS.keys() == OBJECTIVES.keys()


@pytest.mark.parametrize("name", PARTS)
def test_they_are_parts_of_the_loss(name: str) -> None:
    objective = objective_from(name, {})
    assert objective.prediction_parts == PARTS[name]
    assert objective.weights.keys() >= {*PARTS[name]}


def test_next_sentences_are_no_pieces() -> None:
    objective = objective_from("masked", {"next": "nsp"})
    assert objective.weights.keys() == {"masked", "next"}
    assert objective.prediction_parts == ("masked",)


def test_words_that_elmo_does_not_predict_count_as_unknown() -> None:
    family = FAMILIES["elmo"]
    config = tiny_config("elmo", n_outputs=5)
    objective = objective_from("bilm", {})
    nets = objective.nets(new_bundle(family, config, objective.needs.outputs, tiny_tokenizer("elmo")))
    counts = np.array([3, 1, 4, 1, 5, 9, 2])
    assert objective.target_counts(nets, counts).tolist() == [3 + 9 + 2, 1, 4, 1, 5, 0, 0]
    assert counts.tolist() == [3, 1, 4, 1, 5, 9, 2]
