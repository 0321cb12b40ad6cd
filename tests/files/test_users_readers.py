"""Each format with the reader its users have, in every shape: words or texts, one layer or all, fields, fp16, bf16."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from polyseme.errors import OptionError, OutputError, PolysemeWarning
from polyseme.files import vectors_hdf5 as hdf5
from polyseme.files.vector_files import FORMATS, Per, Store, open_writer, read_vectors
from polyseme.types import EmbeddedDocument, Word

ABOUT = {"model": "a model", "layer": "-1"}
TEXTS = (["The", "bank", "broke"], [], ["日本", "naïve\0"])
FIELDS: list[dict[str, Any]] = [
    {"stars": 4, "who": "Zoë"},
    {"stars": None, "who": ""},
    {"stars": {"n": 1}, "who": "[x]"},
]
IN_PARQUET = [{"stars": "4", "who": "Zoë"}, {"stars": None, "who": ""}, {"stars": '{"n": 1}', "who": "[x]"}]
"""A column has one type; numbers and objects have text in common."""
every_format = pytest.mark.parametrize("suffix", sorted(FORMATS))


def documents(per: Per = "word", shape: tuple[int, ...] = (4,), *, fields: bool = True) -> list[EmbeddedDocument]:
    rng = np.random.default_rng(7)
    made = []
    for number, texts in enumerate(TEXTS):
        words, at = [], 0
        for word in texts:
            words.append(Word(word, at, at + len(word)))
            at += len(word) + 1
        words = words if per == "word" else []
        made.append(
            EmbeddedDocument(
                text=" ".join(texts),
                words=words,
                id=f"t{number}",
                fields=FIELDS[number] if fields else {},
                offsets=np.array([(word.start, word.end) for word in words], np.int64).reshape(-1, 2),
                vectors=rng.standard_normal((len(words) if per == "word" else 1, *shape)).astype(np.float32),
            )
        )
    return made


def write(path: Path, given: list[EmbeddedDocument], per: Per = "word", store: Store | None = None) -> Path:
    with open_writer(path, provenance=ABOUT, per=per, store=store) as writer:
        writer.write(given[:2])
        writer.write(given[2:])
    return path


@every_format
@pytest.mark.parametrize("per", ["word", "text"])
@pytest.mark.parametrize("shape", [(4,), (3, 4)], ids=["one layer", "all layers"])
def test_everything_comes_back(tmp_path: Path, suffix: str, per: Per, shape: tuple[int, ...]) -> None:
    given = documents(per, shape)
    back = list(read_vectors(write(tmp_path / f"out{suffix}", given, per)))
    for one, other, kept in zip(back, given, IN_PARQUET if suffix == ".parquet" else FIELDS, strict=True):
        assert (one.id, one.text, list(one.words)) == (other.id, other.text, list(other.words))
        assert dict(one.fields) == kept
        np.testing.assert_array_equal(one.offsets, other.offsets, strict=True)
        np.testing.assert_array_equal(one.vectors, other.vectors, strict=True)


@every_format
@pytest.mark.parametrize("store", ["fp32", "fp16"])
def test_what_is_stored(tmp_path: Path, suffix: str, store: Store) -> None:
    given = documents()
    dtype = {"fp32": np.float32, "fp16": np.float16}[store]
    for one, other in zip(read_vectors(write(tmp_path / f"out{suffix}", given, store=store)), given, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors.astype(dtype), strict=True)


def test_bf16_is_torchs_and_only_safetensors_has_it(tmp_path: Path) -> None:
    given = documents()
    given[0].vectors[0] = [np.nan, np.inf, -0.0, 1.00390625]  # the last lies half way
    path = write(tmp_path / "out.safetensors", given, store="bf16")
    expected = torch.cat([torch.from_numpy(one.vectors) for one in given]).bfloat16()
    found = safetensors.torch.load_file(path)["vectors"]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0))
    back = np.concatenate([one.vectors for one in read_vectors(path)])
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, expected.float().numpy())
    for suffix in set(FORMATS) - {".safetensors"}:
        with pytest.raises(
            OptionError, match=r"no bf16; it holds fp32 or fp16 or fp64. For bf16, end the name in .safetensors"
        ):
            open_writer(tmp_path / f"no{suffix}", store="bf16")


@every_format
def test_numbers_that_do_not_fit_are_refused_with_their_document(tmp_path: Path, suffix: str) -> None:
    given = documents()
    given[2].vectors[1, 3] = -70_000
    with pytest.raises(OutputError, match=r"'t2' do not fit fp16: 70000 is more than it can hold"):
        write(tmp_path / f"out{suffix}", given, store="fp16")
    assert not any(tmp_path.iterdir())


@every_format
def test_a_document_may_have_fewer_fields_than_another(tmp_path: Path, suffix: str) -> None:
    fewer = [documents()[0], documents(fields=False)[1]]
    path = write(tmp_path / f"out{suffix}", fewer)
    assert [dict(one.fields) for one in read_vectors(path)] == [FIELDS[0], {"stars": None, "who": None}]


# --- the readers ------------------------------------------------------------------------------------------------------


def test_parquet_by_polars_and_arrow(tmp_path: Path) -> None:
    given = documents()
    frame = pl.read_parquet(write(tmp_path / "out.parquet", given))
    assert frame.columns == ["id", "text", "words", "start", "end", "vectors", "stars", "who"]
    assert frame["stars"].to_list() == ["4", None, '{"n": 1}']
    assert frame["words"].to_list() == [list(one.words) for one in given]
    assert np.array_equal(np.array(frame["vectors"][0].to_list(), np.float32), given[0].vectors)
    texts = documents("text")
    path = write(tmp_path / "texts.parquet", texts, "text")
    frame = pl.read_parquet(path)
    assert frame.columns == ["id", "text", "vector", "stars", "who"]
    expected = np.concatenate([one.vectors for one in texts])
    assert np.array_equal(frame["vector"].to_numpy(), expected)
    assert pq.read_table(path)["vector"].to_pylist() == expected.tolist()


def test_npz_by_numpy(tmp_path: Path) -> None:
    with np.load(write(tmp_path / "out.npz", documents()), allow_pickle=False) as file:
        ends = [0, *file["fields_ends"]]
        spelled = file["fields"].tobytes()
        assert [json.loads(spelled[a:b]) for a, b in itertools.pairwise(ends)] == FIELDS
    texts = documents("text", (3, 4))
    with np.load(write(tmp_path / "texts.npz", texts, "text")) as file:
        assert not {"words", "offsets", "documents"} & set(file)
        np.testing.assert_array_equal(file["vectors"], np.concatenate([one.vectors for one in texts]))


def test_safetensors_by_its_library(tmp_path: Path) -> None:
    given = documents()
    path = write(tmp_path / "out.safetensors", given)
    found = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(found["vectors"], np.concatenate([one.vectors for one in given]), strict=True)
    np.testing.assert_array_equal(found["offsets"], np.concatenate([one.offsets for one in given]), strict=True)
    assert found["documents"].tolist() == [0, 3, 3, 5]
    ends = [0, *found["words_ends"].tolist()]
    words = [found["words"].tobytes()[a:b].decode() for a, b in itertools.pairwise(ends)]
    assert words == [word for one in given for word in one.words]
    with safetensors.safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["polyseme"]) == ABOUT


@pytest.mark.parametrize("shape", [(4,), (3, 4)], ids=["one layer", "all layers"])
def test_hdf5_as_allennlp_wrote_it(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A dataset a sentence under its number, layers first; `sentence_to_index` from the text to the number."""
    given = documents(shape=shape)
    with h5py.File(write(tmp_path / "out.h5", given)) as file:
        keys = json.loads(file["sentence_to_index"][0])
        assert keys == {one.text: str(number) for number, one in enumerate(given)}
        for one in given:
            stored = file[keys[one.text]]
            assert stored.shape == (*shape[:-1], len(one.words), shape[-1])
            np.testing.assert_array_equal(stored[()], np.moveaxis(one.vectors, 0, -2), strict=True)
        assert json.loads(file["documents"].asstr()[0])["words"] == list(given[0].words)
        assert json.loads(file.attrs["polyseme"]) == ABOUT


def test_hdf5_says_when_the_texts_are_too_many_for_one_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "MOST_INDEX_BYTES", 10)
    with pytest.warns(PolysemeWarning, match="without it"):
        path = write(tmp_path / "out.h5", documents())
    with h5py.File(path) as file:
        assert "sentence_to_index" not in file
    assert len(list(read_vectors(path))) == 3


def test_jsonl_by_json(tmp_path: Path) -> None:
    given = documents()
    lines = [json.loads(line) for line in write(tmp_path / "out.jsonl", given).read_text("utf-8").splitlines()]
    assert [line["id"] for line in lines] == ["t0", "t1", "t2"]
    assert [line["fields"] for line in lines] == FIELDS
    for line, one in zip(lines, given, strict=True):
        np.testing.assert_array_equal(np.array(line["vectors"], np.float32).reshape(-1, 4), one.vectors)
        assert [line["text"][a:b] for a, b in line["offsets"]] == line["words"] == list(one.words)
