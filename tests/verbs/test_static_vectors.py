"""Files of static vectors through the verbs: they need no case of their own there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.sklearn import ContextualVectorizer

WORDS = ["good", "bad", "film", "plot", "the", "is", "dull", "fine"]


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little file of GloVe's kind."""
    path = tmp_path_factory.mktemp("vectors") / "glove.txt"
    numbers = np.random.default_rng(1).standard_normal((len(WORDS), 8)).round(4)
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, numbers, strict=True)))
    return path


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rows = [("good", 1), ("fine", 1), ("bad", 0), ("dull", 0)] * 8
    folder = tmp_path_factory.mktemp("reviews")
    files = {}
    for split, things in {"train": ("film", "plot", "ending"), "dev": ("movie", "film and plot")}.items():
        lines = [f"The {thing} is {word}\t{label}" for word, label in rows for thing in things]
        files[split] = folder / f"{split}.tsv"
        files[split].write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    return files


@pytest.mark.parametrize(
    "options",
    [{"frozen": True, "head": "linear", "learning_rate": 0.05}, {"learning_rate": 0.01}],
    ids=["frozen", "tuned"],
)
def test_a_head_over_static_vectors_learns(
    glove: Path, reviews: dict[str, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    report = polyseme.finetune(
        "classify",
        model=glove,
        **reviews,
        epochs=12,
        batch_size=16,
        output=tmp_path / "model",
        **options,
    )
    assert report.seeds[0].dev["accuracy"] >= 0.95
    assert any("(" in note and "were read as the unknown piece" in note for note in report.notes)


def test_the_same_word_has_the_same_vector_everywhere(glove: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("The film is good.\nIs the plot good?\n")
    with pytest.warns(PolysemeWarning, match=r"no pieces for 2 words \(20\.0% of 10\)"):
        polyseme.embed(tmp_path / "texts.txt", model=glove, output=tmp_path / "vectors.npz")
    with np.load(tmp_path / "vectors.npz") as written:
        vectors = written["vectors"]
    assert np.array_equal(vectors[3], vectors[8])
    assert not vectors[[4, 9]].any()
    means = ContextualVectorizer(model=str(glove)).fit_transform([["good", "film"]])
    assert np.allclose(means, vectors[[3, 1]].mean(axis=0))


@pytest.mark.filterwarnings("ignore:This processor has no instructions for bf16")
def test_what_needs_context_is_refused(glove: Path) -> None:
    model = polyseme.load(glove)
    with pytest.raises(ModelError, match=r"cannot score texts.*direction: none"):
        model.score(["good film"])
    with pytest.raises(ModelError, match="cannot fill masks"):
        model.fill("good [MASK]")
    with pytest.raises(OptionError, match="cannot run in bf16"):
        polyseme.load(glove, device="cpu", dtype="bf16").embed([["good"]])
