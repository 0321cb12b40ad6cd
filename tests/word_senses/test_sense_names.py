"""Names of groups of uses: neighbors that tell groups apart, and words that a masked model puts in their place."""

from __future__ import annotations

import pytest

from polyseme.plots.word_uses import Use
from polyseme.word_senses.sense_names import name_of, replacements, telling_neighbors
from tiny_models import tiny_model

BIRDS = ["The crane waded through the marsh.", "A crane built its nest in the marsh.", "In the marsh a crane flew up."]
MACHINES = ["The crane lifted a steel beam.", "A crane dropped the beam on steel.", "Beam by beam the crane worked."]


def uses(sentences: list[str]) -> list[Use]:
    return [Use(text, text.index("crane"), text.index("crane") + 5) for text in sentences]


def test_neighbors_tell_the_groups_apart() -> None:
    birds, machines = telling_neighbors(uses(BIRDS * 4 + MACHINES * 4), [0] * 12 + [1] * 12)
    assert birds[0] == "marsh"
    assert machines[0] == "beam"
    assert not {"the", "crane", "marsh"} & set(machines)


def test_a_single_group_is_told_apart_from_other_texts() -> None:
    background = {"the": 900, "of": 500, "house": 40, "marsh": 1}
    [birds] = telling_neighbors(uses(BIRDS * 4), [0] * 12, background)
    assert birds[0] == "marsh"
    assert "the" not in birds
    assert telling_neighbors(uses(BIRDS), [0] * 3) == [[]]


def test_what_is_said_once_tells_nothing() -> None:
    assert telling_neighbors(uses([BIRDS[0], MACHINES[0]]), [0, 1]) == [[], []]


def test_replacements_are_words_of_the_model_and_not_the_word() -> None:
    bundle = tiny_model("bert").bundle
    assert bundle.tokenizer is not None
    groups = replacements(bundle, "crane", [uses(BIRDS), uses(MACHINES)])
    assert len(groups) == 2
    assert groups == replacements(bundle, "crane", [uses(BIRDS), uses(MACHINES)])
    vocabulary = set(bundle.tokenizer.pieces(range(bundle.tokenizer.n_pieces)))
    for words in groups:
        assert words
        assert set(words) <= vocabulary
        assert "crane" not in words
    assert not set(groups[0]) & set(groups[1])  # each is more probable than in the mean of all groups


def test_a_text_with_a_mask_of_its_own_is_left_out() -> None:
    masked = Use("[MASK] and a crane", 13, 18)
    assert replacements(tiny_model("bert").bundle, "crane", [[masked]]) == [[]]


@pytest.mark.parametrize(
    ("replacing", "neighbors", "name"),
    [(["bird"], [], "bird"), ([], ["marsh", "nest", "fly"], "marsh, nest"), ([], [], "")],
)
def test_a_name_has_what_there_is(replacing: list[str], neighbors: list[str], name: str) -> None:
    assert name_of(replacing, neighbors) == name
