"""Chunks by workers: the output of one process, whoever computes which chunk and when; and what cannot be shared.

Workers run in this process here; those of Ray are in `test_ray`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

import polyseme
from cli.commands import Refuse
from polyseme.cluster import ray_cluster
from polyseme.cluster.chunk_worker import ChunkWorker, comparable
from polyseme.errors import MissingPackageError, OptionError, OutputError, PolysemeWarning
from polyseme.extras import optional
from polyseme.files import chunks
from polyseme.files.chunks import Chunk, Job
from polyseme.files.unfinished_folder import SETTINGS
from polyseme.transfer import predict_files
from polyseme.verbs import on_cluster
from transfer.small_tasks import tag

TEXTS = ["Dawn broke .", "", "the vase broke the vase", None, *(f"a vase {'broke ' * n}" for n in range(9))]


class Backwards:
    """Workers that store the last chunk first."""

    def __init__(self, address: str, make_job: Callable[[], Job[Any, Any]], *, on_gpu: bool) -> None:
        self.make_job = make_job

    def store(
        self, chunks: Generator[Chunk[Any], None, None], folder: Path, settings: Mapping[str, Any]
    ) -> Generator[Chunk[Any], None, None]:
        one, other = ChunkWorker(), ChunkWorker()
        for worker in (one, other):
            assert worker.prepare(self.make_job, str(Path.cwd())) == comparable(settings)
        everything = list(chunks)
        assert len(everything) > 2
        for chunk in reversed(everything):
            if chunk.record is None:
                worker = one if chunk.number % 2 else other
                record = (folder / SETTINGS).read_bytes()
                chunk.record, _ = worker.store(chunk.number, chunk.first, chunk.rows, chunk.digest, folder, record)
        yield from everything


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cluster, "RayWorkers", Backwards)
    monkeypatch.setattr(on_cluster, "check_cluster", lambda address, output: None)
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 30)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"t": text, "n": f"row {n}"}) + "\n" for n, text in enumerate(TEXTS)))
    return path


@pytest.mark.parametrize(
    "options",
    [{"output": "v.parquet"}, {"output": "v", "shard_rows": 5}],
    ids=lambda each: each["output"],
)
def test_embed(tiny: Path, source: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "by").mkdir()
    costs = []
    for folder, ray in ((tmp_path, None), (tmp_path / "by", "local")):
        made = {**options, "output": folder / options["output"]}
        with pytest.warns(PolysemeWarning, match="1 text is null and was read as empty"):
            costs.append(polyseme.embed(source, model=tiny, field="t", id_field="n", device="cpu", ray=ray, **made))
    assert costs[0].words == costs[1].words
    _same(tmp_path, options["output"])


def test_score(tiny: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "by").mkdir()
    results = []
    for folder, ray in ((tmp_path, None), (tmp_path / "by", "local")):
        with pytest.warns(PolysemeWarning, match="1 text is null"):
            results.append(
                polyseme.score(source, model=tiny, field="t", device="cpu", output=folder / "s.tsv", ray=ray)
            )
    assert results[0].totals == results[1].totals
    assert results[0].notes == results[1].notes
    _same(tmp_path, "s.tsv")


def test_predict(tiny: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    train = tmp_path / "train.jsonl"
    items = [tag(draw) for _ in range(20)]
    train.write_text("".join(json.dumps({"t": item.words, "tags": item.gold}) + "\n" for item in items))
    monkeypatch.setattr(predict_files, "CHUNK_TEXTS", 4)
    settings = {"epochs": 1, "batch_size": 16, "frozen": True, "device": "cpu"}
    polyseme.finetune("tag", train=train, text="t", model=tiny, output=tmp_path / "tags", **settings)
    (tmp_path / "by").mkdir()
    notes = []
    for folder, ray in ((tmp_path, None), (tmp_path / "by", "local")):
        with pytest.warns(PolysemeWarning) as reported:
            polyseme.predict(
                source, model=tmp_path / "tags", id_field="n", device="cpu", output=folder / "p.jsonl", ray=ray
            )
        notes.append(sorted(str(each.message) for each in reported))
    assert notes[0] == notes[1]
    assert any("empty" in note for note in notes[0])
    _same(tmp_path, "p.jsonl")


def _same(folder: Path, name: str) -> None:
    one, other = folder / name, folder / "by" / name
    if one.is_file():
        assert one.read_bytes() == other.read_bytes()
        return
    names = sorted(each.name for each in one.iterdir())
    assert len(names) == 3
    assert names == sorted(each.name for each in other.iterdir())
    assert all((one / each).read_bytes() == (other / each).read_bytes() for each in names)


def test_a_single_chunk_needs_no_workers(
    tiny: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000_000)
    outputs = [tmp_path / "alone.parquet", tmp_path / "ray.parquet"]
    for output, ray in zip(outputs, (None, "local"), strict=True):
        with pytest.warns(PolysemeWarning) as reported:
            polyseme.embed(source, model=tiny, field="t", output=output, device="cpu", ray=ray)
        assert any("without the cluster" in str(each.message) for each in reported) == (ray is not None)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_a_folder_that_is_not_shared(tmp_path: Path) -> None:
    worker = ChunkWorker()
    with pytest.raises(OutputError, match="that all machines share"):
        worker.store(0, 0, [], "", tmp_path, b"{}")
    (tmp_path / SETTINGS).write_bytes(b"{other}")
    with pytest.raises(OutputError, match="that all machines share"):
        worker.store(0, 0, [], "", tmp_path, b"{}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ray", "head"], "host:port.*Got 'head'"),
        (["--ray", "A [vase]."], r"host:port.*Got 'A \[vase\]\.'"),
        (["--ray", "local:0"], "'local:0' has no valid number of workers"),
        (["--ray", "local:"], "'local:' has no valid number of workers"),
        (["--ray", "127.0.0.1:1"], "no cluster of Ray at 127.0.0.1:1 .*Connection refused.*ray start --head"),
        (["--ray", "ray://127.0.0.1:1"], "no cluster of Ray"),
        (["--ray", "local", "--device", "cuda:1"], "GPU of its own"),
    ],
)
def test_refused_before_any_work(
    refuse: Refuse, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setattr(on_cluster, "check_cluster", ray_cluster.check_cluster)
    for verb in ("embed", "score", "predict"):
        refused = refuse(verb, source, "-m", tmp_path / "none", "-o", tmp_path / "out.jsonl", *options, folder=tmp_path)
        assert re.search(message, refused)


def test_what_workers_cannot_share(tiny: Path, source: Path, tmp_path: Path) -> None:
    model = polyseme.load(tiny, device="cpu")
    with pytest.raises(OptionError, match="give the model by its name"):
        polyseme.embed(source, model=model, field="t", output=tmp_path / "v.npz", ray="local")
    with pytest.raises(OptionError, match="depends on the texts before it"):
        polyseme.embed(source, model=tiny, field="t", output=tmp_path / "v.npz", pool_uses="mean", ray="local")
    with pytest.raises(OptionError, match="Name it with --output"):
        ray_cluster.check_cluster("local", None)


@pytest.mark.skipif(optional("ray") is not None, reason="Ray is installed")
def test_without_ray(tmp_path: Path) -> None:
    with pytest.raises(MissingPackageError, match=r"polyseme\[ray\]"):
        ray_cluster.check_cluster("local", tmp_path)
