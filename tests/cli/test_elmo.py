"""ELMo from the command line: embed and similar, carried state, and what is wrong with folders and words."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from cli.commands import Refuse, Run
from golden_elmo import GOLDEN, WITHIN, content, golden_bundle
from polyseme.api import Model
from polyseme.embedding import embed_files, flow
from polyseme.errors import PolysemeWarning
from polyseme.files import chunks
from polyseme.files.vector_files import read_provenance, read_vectors
from tiny_models import tiny_model

ELMO = GOLDEN / "allennlp"
SENTENCES = ["Dawn broke.", "", "The vase broke, and so did we.", "I saw a crane."]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES), encoding="utf-8")
    return path


@pytest.fixture
def elmo(tmp_path: Path) -> Path:
    """A folder with what was published, and no more, to spoil."""
    folder = tmp_path / "elmo"
    folder.mkdir()
    shutil.copy(ELMO / "options.json", folder / "elmo_2x64_options.json")
    shutil.copy(ELMO / "lm_weights.hdf5", folder / "elmo_2x64_weights.hdf5")
    return folder


# --- the verbs --------------------------------------------------------------------------------------------------------


def test_embed_writes_the_mix_as_hdf5(run: Run, source: Path, elmo: Path, tmp_path: Path) -> None:
    output = tmp_path / "vectors.h5"
    code, _, err = run("embed", source, "-m", elmo, "--layer", "mix", "-o", output)
    assert code == 0
    assert "4 texts, 17 words" in err
    model = Model(golden_bundle("allennlp"))
    for found, expected in zip(read_vectors(output), model.embed(SENTENCES, layer="mix"), strict=True):
        assert list(found.words) == list(expected.words)
        np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
    assert "carry_state" not in read_provenance(output)


@pytest.mark.parametrize("layer", ["-1", "mix", "0"])
def test_similar_finds_uses(run: Run, source: Path, elmo: Path, layer: str) -> None:
    code, out, err = run("similar", "We [broke] even.", "--in", source, "-m", elmo, "--layer", layer)
    assert code == 0
    assert out.count("[broke]") == 2
    assert "2 of them of 'broke'" in err


def test_without_a_softmax_there_is_no_score(refuse: Refuse, source: Path, elmo: Path) -> None:
    assert "cannot score" in refuse("score", source, "-m", elmo, folder=source.parent)


# --- carried state ----------------------------------------------------------------------------------------------------


def test_carried_state_equals_the_original_s(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ten batches of three as one file, in chunks that end anywhere."""
    for module in (flow, embed_files):
        monkeypatch.setattr(module, "ROWS_CARRIED", 3)
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 500)
    sentences = content("allennlp/sentences")
    path, output = tmp_path / "words.jsonl", tmp_path / "vectors.npz"
    rows = [{"words": sentences[row][number].split()} for number in range(10) for row in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = ("embed", path, "--field", "words", "-m", ELMO, "--carry-state", "-o", output)
    assert run(*given).code == 0
    found = list(read_vectors(output))
    for row in range(3):
        with h5py.File(ELMO / f"lm_embeddings_{row}.hdf5", "r") as file:
            for number in range(10):
                expected = np.concatenate(list(file[str(number)][()]), axis=-1)
                assert np.abs(found[3 * number + row].vectors - expected).max() < WITHIN
    assert read_provenance(output)["carry_state"] == "true"


def many() -> Iterator[str]:
    for number in range(150):
        yield "" if number % 11 == 3 else f"Dawn broke {number} times " * (number % 4 + 1)


@pytest.mark.parametrize("options", [[], ["--shard-rows", "40"], ["--per", "text"]], ids=["file", "shards", "texts"])
def test_batches_run_on_over_all_of_the_input(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Whatever chunks it is read in: as one call of `Model.embed` over all texts."""
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 700)
    tiny_model("elmo").save(tmp_path / "elmo")
    path, output = tmp_path / "in.jsonl", tmp_path / ("shards" if "--shard-rows" in options else "out.npz")
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in many()), encoding="utf-8")
    given = ("embed", path, "--field", "text", "-m", tmp_path / "elmo", "--carry-state", *options, "-o", output)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)  # texts without words have no vector of their own
        assert run(*given).code == 0
    expected = tiny_model("elmo").embed(list(many()), carry_state=True)
    found = list(read_vectors(output))
    assert len(found) == len(expected) == 150
    if "--per" in options:
        means = [each.vectors.mean(axis=0) for each in expected if len(each.words)]
        vectors = [each.vectors[0] for each, text in zip(found, many(), strict=True) if text]
        np.testing.assert_allclose(vectors, means, atol=1e-5)
        return
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-5)
    fresh = tiny_model("elmo").embed(list(many()))
    assert (
        max(
            float(np.abs(one.vectors - other.vectors).max(initial=0.0)) for one, other in zip(found, fresh, strict=True)
        )
        > 0.1
    )


def test_what_was_stopped_starts_anew(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 700)
    tiny_model("elmo").save(tmp_path / "elmo")
    path, output = tmp_path / "in.txt", tmp_path / "out.npz"
    path.write_text("\n".join(text or "so" for text in many()), encoding="utf-8")
    given = ("embed", path, "-m", tmp_path / "elmo", "--carry-state", "-o", output)
    embed = flow.Embedder.embed
    calls: list[int] = []

    def stopped(self: flow.Embedder, *given: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise OSError("stopped")
        return embed(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(flow.Embedder, "embed", stopped)
    assert run(*given).code != 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["elmo", "in.txt"]
    monkeypatch.setattr(flow.Embedder, "embed", embed)
    code, _, err = run(*given)
    assert code == 0
    assert "Resumed" not in err
    first = output.read_bytes()
    assert run(*given, "--force").code == 0
    assert output.read_bytes() == first


def test_an_encoder_without_state_has_none_to_carry(refuse: Refuse, tiny: Path, source: Path) -> None:
    given = ("embed", source, "-m", tiny, "--carry-state", "-o", source.parent / "v.npz")
    assert "no state to carry" in refuse(*given, folder=source.parent)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_options_and_weights_that_do_not_belong_together(refuse: Refuse, source: Path, elmo: Path) -> None:
    path = elmo / "elmo_2x64_options.json"
    options = json.loads(path.read_text())
    options["lstm"]["dim"] = 32
    path.write_text(json.dumps(options))
    said = refuse("embed", source, "-m", elmo, "-o", source.parent / "v.h5", folder=source.parent)
    assert "does not match its weights" in said
    assert "Check that the settings and the weights belong together." in said


def test_missing_datasets(refuse: Refuse, source: Path, elmo: Path) -> None:
    with h5py.File(elmo / "elmo_2x64_weights.hdf5", "a") as file:
        del file["CNN_proj"]
    said = refuse("embed", source, "-m", elmo, "-o", source.parent / "v.h5", folder=source.parent)
    assert "it lacks CNN_proj/W_proj" in said


def test_words_over_the_length_are_cut_and_said_once(run: Run, elmo: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(f"A {'x' * 60} and {'y' * 70} .\nAn {'é' * 30}\n", encoding="utf-8")
    code, _, err = run("embed", path, "-m", elmo, "-o", tmp_path / "v.npz")
    assert code == 0
    assert err.count("Of words longer than 48 bytes in UTF-8") == 1
    with pytest.warns(PolysemeWarning, match="Of words longer"):
        cut = tiny_model("elmo").embed([["x" * 48 + "y"]])[0].vectors
    np.testing.assert_array_equal(tiny_model("elmo").embed([["x" * 48]])[0].vectors, cut)


@pytest.mark.parametrize("word", ["", " ", "\t"])
def test_empty_words_are_refused_with_their_place(refuse: Refuse, elmo: Path, tmp_path: Path, word: str) -> None:
    path = tmp_path / "words.jsonl"
    path.write_text(json.dumps({"words": ["Dawn", word]}) + "\n", encoding="utf-8")
    given = ("embed", path, "--field", "words", "-m", elmo, "-o", tmp_path / "v.npz")
    said = refuse(*given, folder=tmp_path)
    assert "words.jsonl" in said
    assert "word" in said
