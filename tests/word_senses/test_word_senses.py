"""Senses: as many as the uses have, one where there is one, and said how; groups, examples and maps."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.api import Model
from polyseme.errors import InputError, MissingPackageError, OptionError
from polyseme.verb_options.word_options import SensesOptions
from polyseme.word_senses import sense_groups as senses_module
from polyseme.word_senses.clustering import (
    MIN_EASE,
    MIN_USES,
    center_vectors,
    cluster,
    count_senses,
    cut_costs,
    distinct_rows,
    k_means,
    order_by_size,
)
from polyseme.word_senses.nearest_neighbors import Floats, unit
from polyseme.word_senses.projection import MAPS, pca
from polyseme.word_senses.sense_groups import Senses, examples, group, senses_of
from tiny_models import tiny_model

WIDTH = 48


def uses(sizes: list[int], seed: int = 0, *, apart: float = 1.0) -> tuple[Floats, Any]:
    """Vectors of uses of a word: something in common, as many senses as sizes, and topics across them."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rng.shuffle(labels)
    topics = rng.standard_normal((len(labels), 6)) @ rng.standard_normal((6, WIDTH)) * 0.25
    noise = 0.6 * rng.standard_normal((len(labels), WIDTH))
    common = rng.standard_normal(WIDTH)
    return unit(common + apart * rng.standard_normal((len(sizes), WIDTH))[labels] + topics + noise), labels


def agree(one: Any, other: Any) -> bool:
    """Whether two ways of grouping are the same but for the names."""
    return bool(((one[:, None] == one) == (other[:, None] == other)).all())


# --- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [[60], [200], [50, 40], [60, 20], [40, 40, 30], [50, 40, 30, 30]])
def test_as_many_senses_are_found_as_there_are(sizes: list[int], seed: int) -> None:
    vectors, labels = uses(sizes, seed)
    found = group(vectors, seed=seed)
    assert found.count.n_senses == len(sizes), found.explanation
    assert agree(found.labels, labels)


def test_uses_of_one_sense_are_found_to_have_one_however_many_and_it_is_said() -> None:
    for n_uses in (25, 100, 400):
        found = group(uses([n_uses], seed=n_uses)[0])
        assert found.count.n_senses == 1
        assert found.count.ease[0] < MIN_EASE
        assert f"fall into 2 groups only {found.count.ease[0]:.2f} times as easily" in found.explanation
        assert "set their number with --n-senses" in found.explanation
        assert "--n-senses" not in group(uses([n_uses], seed=n_uses)[0], 2).explanation


def test_topics_that_run_into_each_other_are_no_senses() -> None:
    rng = np.random.default_rng(1)
    drawn_out = rng.uniform(-3, 3, (150, 1)) * rng.standard_normal(WIDTH) + rng.standard_normal((150, WIDTH))
    assert group(unit(drawn_out + 4 * rng.standard_normal(WIDTH))).count.n_senses == 1


def test_near_copies_are_no_sense_of_their_own() -> None:
    vectors, _ = uses([80], seed=3)
    rng = np.random.default_rng(3)
    copies = unit(vectors[5] + 0.01 * rng.standard_normal((40, WIDTH)))
    found = group(np.concatenate([vectors, copies]), scale=0.9)
    assert found.count.n_senses == 1
    assert found.count.n_distinct <= 80
    assert len(found.labels) == 120


def test_few_uses_say_nothing() -> None:
    vectors, _ = uses([MIN_USES - 1])
    found = group(vectors)
    assert found.count.n_senses == 1
    assert found.explanation == (
        f"Uses to tell senses apart by, near copies counted once: {MIN_USES - 1}. That is too few; at least "
        f"{MIN_USES} are needed. To see the uses in groups all the same, set their number with --n-senses (n_senses=…)."
    )


def test_the_number_can_be_given_and_the_found_one_is_said_too() -> None:
    vectors, labels = uses([50, 40])
    found = group(vectors, 3)
    assert found.labels.max() == 2
    assert found.explanation.startswith(
        "The number was given. By itself polyseme finds 2 senses: The uses fall into 2 groups"
    )
    assert agree(group(vectors, 2).labels, labels)


def test_the_same_seed_gives_the_same_senses() -> None:
    vectors, _ = uses([30, 30], apart=0.4)
    assert (group(vectors, 3, seed=7).labels == group(vectors, 3, seed=7).labels).all()


def test_of_very_many_uses_some_are_compared_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senses_module, "MOST_COMPARED", 120)
    vectors, labels = uses([400, 200])
    found = group(vectors)
    assert agree(found.labels, labels)
    assert "Of 600 uses 120 were drawn and compared" in found.explanation


def test_distinct_rows_lie_apart_and_the_others_near_one_of_them() -> None:
    vectors, _ = uses([60], seed=2)
    kept = distinct_rows(vectors, 0.9, same=0.2)
    distances = 1 - vectors @ vectors.T
    assert 1 < len(kept) < 60
    assert (distances[np.ix_(kept, kept)] + np.eye(len(kept)) > 0.18 - 1e-6).all()
    assert (distances[:, kept].min(axis=1) <= 0.18 + 1e-6).all()


def test_identical_uses_can_be_counted_and_grouped() -> None:
    vectors = unit(np.ones((30, 4)))
    assert count_senses(vectors, np.random.default_rng(0)).n_senses >= 1
    assert group(vectors).labels.tolist() == [0] * 30
    assert set(group(vectors, 2).labels.tolist()) <= {0, 1}


# --- parting ---------------------------------------------------------------------------------------------------------


def test_parting_costs_nothing_where_nothing_hangs_together() -> None:
    costs = cut_costs(center_vectors(uses([40, 40, 40], apart=3)[0]), 5)
    assert costs[:2] == pytest.approx([0, 0], abs=1e-6)
    assert (costs[2:] > 0.1).all()


@given(st.integers(1, 30), st.data())
def test_means_find_as_many_groups_as_are_wanted(n: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, n))
    points = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=float)[:, None]
    labels = k_means(points, wanted, np.random.default_rng(0))
    assert set(labels.tolist()) == set(range(wanted))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_the_largest_group_goes_first(labels: list[int]) -> None:
    found = order_by_size(np.array(labels))
    counts = np.bincount(found)
    assert agree(found, np.array(labels))
    assert (counts[:-1] >= counts[1:]).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12])
def test_few_vectors_can_be_parted(n: int) -> None:
    vectors = center_vectors(uses([n])[0])
    for n_groups in range(1, n + 1):
        assert set(cluster(vectors, n_groups, np.random.default_rng(0)).tolist()) <= set(range(n_groups))


def test_examples_begin_with_the_medoid() -> None:
    vectors, labels = uses([20, 10])
    for label, its in enumerate(examples(vectors, order_by_size(labels))):
        members = np.flatnonzero(order_by_size(labels) == label)
        assert its[0] == members[(vectors[members] @ vectors[members].T).mean(axis=1).argmax()]
        assert len(its) == len(set(its)) == 5


# --- maps ------------------------------------------------------------------------------------------------------------


def test_a_map_of_principal_directions_keeps_their_distances() -> None:
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((20, 2)) @ np.linalg.qr(rng.standard_normal((9, 2)))[0].T
    points = pca(plane.astype(np.float32), 0)
    expected = np.linalg.norm(plane[:, None] - plane, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points, axis=-1), expected, atol=1e-5)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 40])
@pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:RuntimeWarning")
def test_a_map_has_a_point_a_use(name: str, n: int) -> None:
    package = {"tsne": "sklearn", "umap": "umap"}.get(name)
    if package is not None:
        pytest.importorskip(package)
    points = MAPS[name](uses([n])[0], 0)
    assert points.shape == (n, 2)
    assert np.isfinite(points).all()


def test_a_map_whose_package_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)  # as if it were not installed
    with pytest.raises(MissingPackageError, match=r"polyseme\[maps\]"):
        MAPS["umap"](uses([10])[0], 0)


# --- of a text -------------------------------------------------------------------------------------------------------


@cache
def model() -> Model:
    return tiny_model("bert")


def senses(word: str, source: Path, **options: Any) -> Senses:
    return senses_of(model().bundle, SensesOptions(word=word, source=source, **options))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    lines = ["Dawn broke.", "Nothing here.", "The news Broke; BROKE, I say!", "Sandy broke the law.", "broken", ""]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_use_of_the_word_is_there_whatever_its_case(source: Path) -> None:
    found = senses("broke", source)
    assert [(use.text[use.start : use.end], use.id) for use in found.uses] == [
        ("broke", "1"),
        ("Broke", "3"),
        ("BROKE", "3"),
        ("broke", "4"),
    ]
    assert found.n_senses == 1
    assert found.headline == "4 uses"
    assert sorted(found.examples[0]) == [0, 1, 2, 3]
    assert len(found.of(1)) == 4
    assert found.cost.documents == 3


def test_the_vectors_are_those_of_embed(source: Path) -> None:
    found = senses("broke", source, layer=1, context=0)
    documents = model().embed(source.read_text().splitlines(), layer=1)
    vectors = [
        vector
        for document in documents
        for word, vector in zip(document.words, document.vectors, strict=True)
        if word.lower() == "broke"
    ]
    expected = pca(unit(np.stack(vectors)), 0)
    np.testing.assert_allclose([(use.x, use.y) for use in found.uses], expected, atol=1e-4)


def test_given_words_are_found_too(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text('{"words": ["New York", "broke"]}\n{"words": ["new york"]}\n')
    found = senses("New York", tmp_path / "words.jsonl", field="words")
    assert [use.text for use in found.uses] == ["New York broke", "new york"]


def test_a_word_that_is_not_there_is_refused_with_those_like_it(source: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"'brokes' does not occur in .*sentences.txt\. There is: 'broke' \(4 times\), 'broken' \(once\)\.",
    ):
        senses("brokes", source)
    with pytest.raises(InputError, match="Uses are those of a single word"):
        senses("broke even", source)
    with pytest.raises(InputError, match=r"'zebra' does not occur in .*sentences.txt\. Words are found by their form"):
        senses("zebra", source)


def test_a_word_that_occurs_once_is_refused_with_its_use(source: Path) -> None:
    with pytest.raises(InputError, match=r"'law' occurs only once in .*\(Sandy broke the law\.\).* at least 2"):
        senses("law", source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_senses": 0}, "from 1 to that of the uses, 4"),
        ({"n_senses": 5}, "Got 5 instead"),
        ({"map": "tsen"}, "Did you mean 'tsne'"),
        ({"layer": "all"}, "one vector"),
        ({"word": " "}, "empty or blank"),
        ({"word": ""}, "empty or blank"),
    ],
)
def test_what_cannot_be_is_refused(source: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        senses(**{"word": "broke", "source": source, **options})
