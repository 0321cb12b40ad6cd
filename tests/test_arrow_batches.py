"""The flow over Arrow batches: the vectors of `embed`, beside the columns that came, by a function that pickles."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import polyseme
from polyseme.arrow_batches import EmbedBatches
from polyseme.errors import InputError, PolysemeWarning
from tiny_models import tiny_model

TEXTS = ["Dawn broke.", "", "the vase, the vases! " * 9]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batches") / "model"
    tiny_model("bert").save(folder)
    return folder


@pytest.mark.parametrize("layer", [-1, "all"])
def test_words(tiny: Path, layer: int | str) -> None:
    table = pa.table({"n": [1, 2, 3], "text": TEXTS})
    made = EmbedBatches(model=tiny, layer=layer, device="cpu")(table)
    assert made.column_names == ["n", "text", "words", "start", "end", "vectors"]
    assert made.select(["n", "text"]) == table
    expected = polyseme.load(tiny, device="cpu").embed(TEXTS, layer=layer)
    for row, document in zip(made.to_pylist(), expected, strict=True):
        assert row["words"] == list(document.words)
        assert list(zip(row["start"], row["end"], strict=True)) == [tuple(place) for place in document.offsets.tolist()]
        assert np.array_equal(np.array(row["vectors"], np.float32).reshape(document.vectors.shape), document.vectors)


def test_it_pickles_without_the_model(tiny: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"words of it": [["Dawn", "broke"], []]})
    embed = EmbedBatches(model=tiny, field="words of it", per="text", device="cpu")
    before = embed(pa.RecordBatch.from_pydict({"words of it": [["Dawn", "broke"]]}))
    pickled = pickle.dumps(embed)
    assert len(pickled) < 1000
    made = pickle.loads(pickled)(batch)
    assert made["vector"].to_pylist()[0] == before["vector"].to_pylist()[0]
    assert not any(made["vector"].to_pylist()[1])


def test_an_empty_batch_has_the_columns_of_any_other(tiny: Path) -> None:
    embed = EmbedBatches(model=tiny, device="cpu")
    empty = embed(pa.table({"text": pa.array([], pa.string())}))
    assert empty.schema == embed(pa.table({"text": TEXTS})).schema


def test_what_cannot_be(tiny: Path) -> None:
    with pytest.raises(InputError, match=r"Got a dict instead.*batch_format='pyarrow'"):
        EmbedBatches(model=tiny, device="cpu")({"text": np.array(["Dawn"])})  # type: ignore[arg-type]
    embed = EmbedBatches(model=tiny, device="cpu")
    with pytest.raises(InputError, match=r"no column 'text'. Did you mean 'texts'"):
        embed(pa.table({"texts": TEXTS}))
    with pytest.raises(InputError, match="a column 'vectors' already"):
        embed(pa.table({"text": TEXTS, "vectors": [1, 2, 3]}))
    with pytest.raises(InputError, match="row 1 is a int"):
        embed(pa.table({"text": [1, 2]}))


def test_a_null_is_an_empty_text_and_counted(tiny: Path) -> None:
    embed = EmbedBatches(model=tiny, device="cpu")
    with pytest.warns(PolysemeWarning, match="2 texts are null"):
        made = embed(pa.table({"n": [1, 2, 3], "text": [None, "Dawn broke.", None]}))
    assert [len(words) for words in made["words"].to_pylist()] == [0, 3, 0]
    assert (made["n"].to_pylist(), embed.n_null) == ([1, 2, 3], 2)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["ray", "pyspark"])
def test_the_examples(tiny: Path, tmp_path: Path, library: str) -> None:
    pytest.importorskip("ray.data" if library == "ray" else library, reason=f"{library} is not installed")
    if library == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    source, output = tmp_path / "in.parquet", tmp_path / "out"
    texts = [None if number == 7 else "the vase broke " * (number % 9) for number in range(200)]
    pq.write_table(pa.table({"n": range(200), "text": texts}), source)
    example = Path(__file__).parents[1] / "examples" / f"{library.removeprefix('py')}_embed.py"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, example, source, output, "-m", tiny], check=True, env=environment)
    made = pa.concat_tables(pq.read_table(path) for path in sorted(output.glob("*.parquet")))
    if library == "ray":
        assert made["n"].to_pylist() == list(range(200)), "in the order of the input"
    assert sorted(made["n"].to_pylist()) == list(range(200)), "every row once"
    expected = polyseme.load(tiny, device="cpu").embed([text or "" for text in texts])
    for row, document in zip(made.sort_by("n").to_pylist(), expected, strict=True):
        assert row["words"] == list(document.words)
        got = np.array(row["vectors"], np.float32).reshape(document.vectors.shape)
        assert np.abs(got - document.vectors).max(initial=0) <= 1e-5 * np.abs(document.vectors).max(initial=0)
