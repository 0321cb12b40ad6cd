"""polyseme's own outputs as inputs: files of vectors, indexes and senses that were found before."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.api import Model
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.files.vector_files import open_writer
from polyseme.types import EmbeddedDocument, Word
from polyseme.word_senses.sense_groups import Senses
from polyseme.word_senses.similar_uses import Similar
from tiny_models import tiny_model

TEXTS = ["Dawn broke.", "Nothing here.", "The news broke; it broke.", "Sandy broke the law.", "We broke even, the law."]
VIEW = {
    "fingerprint": {"weights": "a", "config": "b"},
    "layer": {"mode": "one", "layers": [2], "weights": []},
}


@cache
def model() -> Model:
    return tiny_model("bert")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model().save(tmp_path / "model")
    return tmp_path / "model"


def same_senses(one: Senses, other: Senses) -> None:
    assert [dataclasses.replace(use, x=0, y=0, cosine=0) for use in one.uses] == [
        dataclasses.replace(use, x=0, y=0, cosine=0) for use in other.uses
    ]
    np.testing.assert_allclose([use.cosine for use in one.uses], [use.cosine for use in other.uses], atol=1e-3)
    assert [sense.id for sense in one.senses] == [sense.id for sense in other.senses]


def near(result: Similar) -> list[tuple[str, int, float]]:
    uses = [*(result.near.same or ()), *(result.near.other or ())]
    return [(use.id, use.start, pytest.approx(use.cosine, abs=1e-4)) for use in uses]


# --- vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "npz", "jsonl"])
def test_vectors_give_what_their_texts_give_and_are_not_embedded_again(
    texts: Path, folder: Path, tmp_path: Path, ending: str
) -> None:
    vectors = tmp_path / f"vectors.{ending}"
    polyseme.embed(texts, output=vectors, model=folder)
    of_texts = polyseme.senses("broke", source=texts, model=folder, n_senses=2, names="none")
    of_vectors = polyseme.senses("broke", source=vectors, n_senses=2, names="none")
    same_senses(of_texts, of_vectors)
    assert (of_texts.cost.documents, of_vectors.cost.documents) == (4, 0)
    found = polyseme.similar("It [broke] apart.", source=vectors)  # by the model that the file names
    assert near(found) == near(polyseme.similar("It [broke] apart.", source=texts, model=folder))
    assert found.cost.documents == 1


def test_of_all_layers_one_is_taken(texts: Path, folder: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.npz"
    polyseme.embed(texts, output=vectors, model=folder, layer="all")
    for layer in ("1", "mean:1:2"):
        expected = polyseme.similar("It [broke].", source=texts, model=folder, layer=layer)
        assert near(polyseme.similar("It [broke].", source=vectors, model=folder, layer=layer)) == near(expected)
    of_texts = polyseme.senses("broke", source=texts, model=folder, layer=1, names="none")
    same_senses(of_texts, polyseme.senses("broke", source=vectors, layer=1, names="none"))
    with pytest.raises(OptionError, match=r"has all layers of its model\. Name one"):
        polyseme.senses("broke", source=vectors)


def test_shards_are_vectors_too(texts: Path, folder: Path, tmp_path: Path) -> None:
    polyseme.embed(texts, output=tmp_path / "shards", model=folder, shard_rows=2)
    of_shards = polyseme.senses("broke", source=tmp_path / "shards", n_senses=2, names="none")
    same_senses(of_shards, polyseme.senses("broke", source=texts, model=folder, n_senses=2, names="none"))


def test_fields_go_along(texts: Path, folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text, "by": f"p{at}"}) + "\n" for at, text in enumerate(TEXTS)))
    polyseme.embed(rows, output=tmp_path / "vectors.parquet", model=folder, field="text", fields="by")
    expected = ["p0", "p2", "p2", "p3", "p4"]
    options: dict[str, Any] = {"fields": "by", "names": "none", "n_senses": 1}
    for found in (
        polyseme.senses("broke", source=rows, field="text", model=folder, **options),
        polyseme.senses("broke", source=tmp_path / "vectors.parquet", **options),
        polyseme.senses("broke", source=rows, field="text", model=folder, index=tmp_path / "uses", **options),
        polyseme.senses("broke", index=tmp_path / "uses", names="none"),
    ):
        assert [use.fields for use in found.uses] == [{"by": each} for each in expected]
    same = polyseme.similar("It [broke].", index=tmp_path / "uses", top=1).near.same or []
    assert set(same[0].fields) == {"by"}
    with pytest.raises(InputError, match="no field 'author'"):
        polyseme.senses("broke", source=tmp_path / "vectors.parquet", fields="author")


def test_vectors_that_do_not_fit_are_refused(texts: Path, folder: Path, tmp_path: Path) -> None:
    vectors, other = tmp_path / "vectors.parquet", tmp_path / "other"
    polyseme.embed(texts, output=vectors, model=folder)
    tiny_model("roberta").save(other)
    with pytest.raises(ModelError, match=r"vectors of .*vectors\.parquet do not fit: they differ in config, tokenizer"):
        polyseme.senses("broke", source=vectors, model=other)
    with pytest.raises(ModelError, match=r"differ in layer \(3 there, 1 here\)"):
        polyseme.similar("It [broke].", source=vectors, layer=1)
    for option, value in (("layer", 1), ("pool", "first")):
        with pytest.raises(ModelError, match=f"differ in {option}"):
            polyseme.senses("broke", source=vectors, **{option: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"vectors\.parquet has vectors in it, and .*texts\.txt texts"):
        polyseme.senses("broke", source=[vectors, texts])
    with pytest.raises(OptionError, match="'split' is for reading texts"):
        polyseme.senses("broke", source=vectors, split="sentence")
    polyseme.embed(texts, output=tmp_path / "per_text.npz", model=folder, per="text")
    with pytest.raises(InputError, match="one vector per text"):
        polyseme.senses("broke", source=tmp_path / "per_text.npz")
    polyseme.embed(texts, output=tmp_path / "low.npz", model=folder, layer=1)
    with pytest.raises(ModelError, match="differ in layer"):
        polyseme.senses("broke", source=[vectors, tmp_path / "low.npz"])


def test_vectors_whose_model_is_not_noted_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "old.npz", np.eye(4), provenance={"pool": "mean"})
    with pytest.raises(InputError, match=r"old\.npz does not say which model its vectors are of"):
        polyseme.senses("broke", source=tmp_path / "old.npz")


# --- an index ---------------------------------------------------------------------------------------------------------


def test_an_index_serves_senses_and_knows_its_model(texts: Path, folder: Path, tmp_path: Path) -> None:
    index = tmp_path / "uses"
    expected = polyseme.senses("broke", source=texts, model=folder, n_senses=2, names="none")
    made = polyseme.senses("broke", source=texts, index=index, model=folder, n_senses=2, names="none")
    asked = polyseme.senses("broke", index=index, n_senses=2, names="none")
    for result in (made, asked):
        same_senses(result, expected)
    assert asked.cost.documents == 0
    assert near(polyseme.similar("It [broke].", index=index)) == near(
        polyseme.similar("It [broke].", source=texts, model=folder)
    )
    with pytest.raises(InputError, match=r"'brok' does not occur in .*'broke' \(5 times\)"):
        polyseme.senses("brok", index=index)


# --- senses that were found before ------------------------------------------------------------------------------------


def write(path: Path, vectors: Any, word: str = "broke", *, provenance: dict[str, Any] | None = None) -> None:
    """A file of vectors with one use per text."""
    with open_writer(path, provenance=provenance or {"pool": "mean", "view": VIEW}) as writer:
        writer.write(
            [
                EmbeddedDocument(
                    id=str(number),
                    text=f"{word} {number}",
                    words=[Word(word, 0, len(word))],
                    offsets=np.array([[0, len(word)]]),
                    vectors=np.asarray(vector, np.float32)[None],
                )
                for number, vector in enumerate(vectors)
            ]
        )


def planted(n: int, seed: int) -> tuple[Any, Any]:
    """Vectors of three senses, and the sense of each."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    directions = np.random.default_rng(0).standard_normal((3, 16))
    return 2 + directions[labels] + 0.2 * rng.standard_normal((n, 16)), labels


def test_new_uses_get_the_senses_that_were_found_before(tmp_path: Path) -> None:
    before, gold = planted(90, 1)
    after, expected = planted(30, 2)
    write(tmp_path / "before.npz", before)
    write(tmp_path / "after.npz", after)
    saved = tmp_path / "broke.json"
    found = polyseme.senses("broke", source=tmp_path / "before.npz", names="none", n_senses=3, output=saved)
    number = {int(label): use.sense for label, use in zip(gold, found.uses, strict=True)}
    applied = polyseme.senses("broke", source=tmp_path / "after.npz", apply=saved)
    assert [use.sense for use in applied.uses] == [number[int(label)] for label in expected]
    assert [sense.id for sense in applied.senses] == [sense.id for sense in found.senses]
    assert applied.explanation == f"The 3 senses are those of {saved}, found in {tmp_path / 'before.npz'}."
    write(tmp_path / "one.npz", after[:1])  # one use is enough, and the other senses have none
    [use] = polyseme.senses("broke", source=tmp_path / "one.npz", apply=saved, output=tmp_path / "one.html").uses
    assert use.sense == number[0]
    polyseme.senses("broke", source=tmp_path / "one.npz", apply=saved, output=tmp_path / "one.svg")


def test_ids_of_senses_do_not_depend_on_the_order_of_texts(tmp_path: Path) -> None:
    vectors, _ = planted(60, 3)
    order = np.random.default_rng(0).permutation(60)
    write(tmp_path / "a.npz", vectors)
    documents = list(polyseme.read_vectors(tmp_path / "a.npz"))
    with open_writer(tmp_path / "b.npz", provenance={"pool": "mean", "view": VIEW}) as writer:
        writer.write([documents[at] for at in order])
    one, two = (
        polyseme.senses("broke", source=tmp_path / name, names="none", n_senses=3) for name in ("a.npz", "b.npz")
    )
    assert {sense.id for sense in one.senses} == {sense.id for sense in two.senses}
    assert len({sense.id for sense in one.senses}) == 3
    assert all(re.fullmatch("broke:[0-9a-f]{6}", sense.id) for sense in one.senses)


def test_senses_that_cannot_be_applied_are_refused(tmp_path: Path) -> None:
    vectors, _ = planted(30, 1)
    write(tmp_path / "broke.npz", vectors)
    saved = tmp_path / "broke.json"
    polyseme.senses("broke", source=tmp_path / "broke.npz", names="none", output=saved)
    write(tmp_path / "crane.npz", vectors, "crane")
    with pytest.raises(OptionError, match="has the senses of 'broke', not those of 'crane'"):
        polyseme.senses("crane", source=tmp_path / "crane.npz", apply=saved)
    with pytest.raises(OptionError, match="The number of senses is that of"):
        polyseme.senses("broke", source=tmp_path / "broke.npz", apply=saved, n_senses=2)
    other = {**VIEW, "fingerprint": {"weights": "x", "config": "b"}}
    write(tmp_path / "other.npz", vectors, provenance={"pool": "mean", "view": other})
    with pytest.raises(ModelError, match=r"do not fit the vectors of .*other\.npz: they differ in weights"):
        polyseme.senses("broke", source=tmp_path / "other.npz", apply=saved)
    with pytest.raises(InputError, match=r"There is no file .*nowhere"):
        polyseme.senses("broke", source=tmp_path / "broke.npz", apply=tmp_path / "nowhere.json")
    content = json.loads(saved.read_text())
    for damaged, message in (
        ("{", "cannot be read as JSON"),
        ("[]", "does not hold senses"),
        (json.dumps({**content, "center": [1.0]}), "its vectors differ in width"),
    ):
        (tmp_path / "damaged.json").write_text(damaged)
        with pytest.raises(InputError, match=message):
            polyseme.senses("broke", source=tmp_path / "broke.npz", apply=tmp_path / "damaged.json")


def test_a_model_for_names_must_fill_masks(texts: Path, tmp_path: Path) -> None:
    tiny_model("gpt2").save(tmp_path / "gpt2")
    with pytest.raises(ModelError, match="cannot fill masks"):
        polyseme.senses("broke", source=texts, model=model(), names=tmp_path / "gpt2")
    named = polyseme.senses("broke", source=texts, model=model())  # the model itself fills masks
    assert named.senses[0].replacements
    assert named.senses[0].name.startswith(", ".join(named.senses[0].replacements[:2]))
