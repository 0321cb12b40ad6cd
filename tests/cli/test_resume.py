"""An `embed` that is stopped, however it is stopped, goes on and ends as if it had never been."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import polyseme
from cli.commands import Refuse, Run
from forked import Forked, run_forked
from polyseme.embedding.flow import Embedder
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files import chunked_job, chunks
from polyseme.files.vector_files import read_provenance, read_vectors

CHUNK = 1000
"""Characters of a chunk, instead of the many it has by default."""
N_TEXTS = 150
N_CHUNKS = 13
SLOWLY = f"""
import os, signal, time
from polyseme.cli import main
from polyseme.embedding.flow import Embedder
from polyseme.files.chunk_spool import Spool
from polyseme.files import chunks

left = int(os.environ.get("DIE_AFTER", -1))

def slowly(function):
    def slow(*given, **named):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        time.sleep(0.02)
        return function(*given, **named)
    return slow

chunks.CHUNK_CHARACTERS = {CHUNK}
Embedder.embed = slowly(Embedder.embed)
Spool._data = slowly(Spool._data)
main()
"""
"""The command line with small chunks, each of which takes a while, so that there are moments between."""
SHARDS = ("--shard-rows", "35")


def text(number: int) -> str:
    """Some are long, some empty."""
    return f"{number} dawn broke , the vase broke " * (number % 7)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", CHUNK)
    path = tmp_path / "in.jsonl"
    rows = ({"n": f"text {number}", "text": text(number), "stars": number % 5} for number in range(N_TEXTS))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def line(source: Path, model: Path, output: Path, *more: str) -> list[str]:
    read = ["--field", "text", "--id-field", "n", "--fields", "stars"]
    return ["embed", str(source), *read, "-m", str(model), "-o", str(output), "--device", "cpu", *more]


def contents(output: Path) -> dict[str, bytes]:
    """Every byte of a file, or of the files of a folder."""
    paths = [output] if output.is_file() else sorted(output.iterdir())
    return {path.name if path != output else "": path.read_bytes() for path in paths}


def unfinished(output: Path) -> Path:
    return output.with_name(f"{output.name}.unfinished")


class Enough(Exception):  # noqa: N818
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, n_chunks: int) -> None:
    """Let the network break down after so many chunks."""
    embed, done = Embedder.embed, []

    def counted(self: Embedder, *given: Any) -> Any:
        if len(done) == n_chunks:
            raise Enough
        done.append(1)
        return embed(self, *given)

    monkeypatch.setattr(Embedder, "embed", counted)


def count_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents each chunk has that goes through the network from now on."""
    embed, seen = Embedder.embed, []

    def counted(self: Embedder, documents: Any, *given: Any) -> Any:
        seen.append(len(documents))
        return embed(self, documents, *given)

    monkeypatch.setattr(Embedder, "embed", counted)
    return seen


def stopped(run: Run, given: list[str], n_chunks: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        stop_after(patched, n_chunks)
        with pytest.raises(Enough):
            run(*given)


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, ()) for name in ("out.jsonl", "out")),
        *(pytest.param(f"out.{kind}", (), marks=pytest.mark.slow) for kind in ("parquet", "npz", "safetensors", "h5")),
        ("out.parquet", ("--per", "text", "--store", "fp16")),
        pytest.param("out", ("--per", "text", "--store", "fp16"), marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "texts" if value else "words",
)
def test_stopped_twice(
    run: Run,
    tiny: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    more: tuple[str, ...],
) -> None:
    more = (*more, *SHARDS) if name == "out" else more
    whole, output = tmp_path / f"whole-{name}", tmp_path / f"stopped-{name}"
    seen = count_chunks(monkeypatch)
    assert run(*line(source, tiny, whole, *more)).code == 0
    n_chunks, n_documents = len(seen), sum(seen)
    assert n_chunks == N_CHUNKS
    assert n_documents == N_TEXTS
    seen.clear()
    given = line(source, tiny, output, *more)
    stopped(run, given, 3)
    assert not output.exists()
    stopped(run, given, 4)
    ended = run(*given)
    assert ended.code == 0
    assert "note: Resumed: an earlier run had done" in ended.err
    assert f"{N_TEXTS} texts" in ended.err
    assert len(seen) == n_chunks, "no chunk was embedded twice"
    assert sum(seen) == N_TEXTS
    assert contents(output) == contents(whole)
    assert not unfinished(output).exists()


def test_what_was_done_is_reported_before_more_is_computed(
    run: Run, tiny: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    stopped(run, line(source, tiny, output), 3)
    stop_after(monkeypatch, 0)
    reading: dict[str, Any] = {"field": "text", "id_field": "n", "fields": ["stars"], "device": "cpu"}
    with pytest.raises(Enough), pytest.warns(PolysemeWarning, match=r"^Resumed: an earlier run had done \d+ texts\.$"):
        polyseme.embed(source, output=output, model=tiny, **reading)


def test_shards_hold_every_row_once(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    stopped(run, line(source, tiny, output, *SHARDS), 7)
    made = sorted(path.name for path in (unfinished(output) / "shards").iterdir())
    kept = sorted(path.name for path in unfinished(output).glob("*.parquet"))
    assert made[0] == "part-00000.parquet", "made as soon as its rows are there"
    assert kept[0] != "000000.parquet", "and then in one place only"
    assert run(*line(source, tiny, output, *SHARDS)).code == 0
    parts = sorted(output.iterdir())
    assert [path.name for path in parts] == [f"part-{number:05}.parquet" for number in range(5)]
    assert [pq.read_metadata(path).num_rows for path in parts] == [35, 35, 35, 35, 10]
    assert [document.id for document in read_vectors(output)] == [f"text {number}" for number in range(N_TEXTS)]
    assert read_provenance(output) == read_provenance(parts[-1])
    with pytest.raises(InputError, match="no shards"):
        read_vectors(tmp_path)


def test_shards_of_another_format_and_of_standard_input(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    more = (*SHARDS, "--shard-format", "npz", "--format", "jsonl")
    given = line(source, tiny, output, *more)
    given[1] = "-"
    assert run(*given, stdin=source.read_bytes()).code == 0
    parts = sorted(output.iterdir())
    assert [path.name for path in parts] == [f"part-{number:05}.npz" for number in range(5)]
    assert [document.id for path in parts for document in read_vectors(path)] == [f"text {n}" for n in range(N_TEXTS)]
    assert not unfinished(output).exists()


def test_only_shards_that_polyseme_wrote_are_replaced(
    run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    again = line(source, tiny, output, "--shard-rows", "75", "--force")
    assert run(*line(source, tiny, output, *SHARDS)).code == 0
    assert run(*again).code == 0
    assert sorted(path.name for path in output.iterdir()) == ["part-00000.parquet", "part-00001.parquet"]
    thesis = output / "thesis.txt"
    thesis.write_text("precious")
    assert "has thesis.txt in it, which this command has not written" in refuse(*again, folder=tmp_path)
    thesis.unlink()
    pq.write_table(pa.table({"precious": [1]}), output / "part-00002.parquet")
    assert "has part-00002.parquet in it" in refuse(*again, folder=tmp_path)


def test_input_of_one_chunk_needs_no_spool(
    run: Run, tiny: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 10**7)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chunked_job, "open_spool", None)
        assert run(*line(source, tiny, tmp_path / "out.npz")).code == 0


# --- what does not fit ------------------------------------------------------------------------------------------------


def test_other_settings_are_refused_by_name(run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    stopped(run, line(source, tiny, output), 3)
    said = refuse(*line(source, tiny, output, "--layer", "0", "--store", "fp16"), folder=tmp_path)
    assert "layer was -1 and is 0; store was fp32 and is fp16" in said
    assert "--force" in said
    assert run(*line(source, tiny, output, "--layer", "0", "--force")).code == 0
    assert {len(document.words) for document in read_vectors(output)} >= {0, 7}


def test_another_model_is_refused(run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "out.parquet", tmp_path / "other"
    stopped(run, line(source, tiny, output), 3)
    model = polyseme.load(tiny, device="cpu")
    next(model.bundle.encoder.parameters()).data[0, 0] += 1
    model.save(other)
    said = refuse(*line(source, other, output), folder=tmp_path)
    assert "model was" in said
    assert "the model's weights was" in said


def test_a_finished_output_is_refused(run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    for output, more in ((tmp_path / "out.parquet", ()), (tmp_path / "out", SHARDS)):
        assert run(*line(source, tiny, output, *more)).code == 0
        assert "already there" in refuse(*line(source, tiny, output, *more), folder=tmp_path)
        assert run(*line(source, tiny, output, *more, "--force")).code == 0


def test_a_folder_that_is_not_ours_is_left_alone(refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    unfinished(output).mkdir()
    (unfinished(output) / "thesis.txt").write_text("mine")
    (unfinished(output) / "lock").touch()
    assert "is no unfinished output" in refuse(*line(source, tiny, output), folder=tmp_path)
    assert "Move it away" in refuse(*line(source, tiny, output, "--force"), folder=tmp_path)
    (unfinished(output) / "settings.json").write_text('{"editor.tabSize": 4}')
    assert "is no unfinished output" in refuse(*line(source, tiny, output, "--force"), folder=tmp_path)
    assert (unfinished(output) / "thesis.txt").read_text() == "mine"


def test_no_link_is_followed(run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    output, thesis = tmp_path / "out.parquet", tmp_path / "thesis"
    stopped(run, line(source, tiny, tmp_path / "other.parquet"), 3)
    unfinished(tmp_path / "other.parquet").rename(thesis)  # even what polyseme has made, but elsewhere
    unfinished(output).symlink_to(thesis)
    for force in ((), ("--force",)):
        assert "is a symbolic link" in refuse(*line(source, tiny, output, *force), folder=tmp_path)
    unfinished(output).unlink()
    stopped(run, line(source, tiny, output), 3)
    (unfinished(output) / "linked").symlink_to(thesis)
    (unfinished(output) / "lock").unlink()
    (unfinished(output) / "lock").symlink_to(thesis / "settings.json")
    assert "cannot be written" in refuse(*line(source, tiny, output, "--force"), folder=tmp_path)
    (unfinished(output) / "lock").unlink()
    before = contents(thesis)
    assert run(*line(source, tiny, output, "--layer", "0", "--force")).code == 0
    assert contents(thesis) == before


def test_two_at_once(run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    stopped(run, line(source, tiny, output), 3)
    hold = "import fcntl, sys; lock = open(sys.argv[1]); fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(unfinished(output) / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert "Another process is at work" in refuse(*line(source, tiny, output), folder=tmp_path)
        holder.kill()
    assert run(*line(source, tiny, output)).code == 0


def test_input_that_has_changed_is_embedded_anew(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    stopped(run, line(source, tiny, output), 5)
    source.write_text(source.read_text().replace("1 dawn", "1 crane", 1))
    ended = run(*line(source, tiny, output))
    assert ended.code == 0
    assert ended.err.count("is computed again: the input has changed there") == 1
    assert run(*line(source, tiny, whole)).code == 0
    assert contents(output) == contents(whole)


def test_input_that_has_changed_in_whole_shards_is_refused(
    run: Run, refuse: Refuse, tiny: Path, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    stopped(run, line(source, tiny, output, *SHARDS), 6)
    source.write_text(source.read_text().replace("1 dawn", "1 crane", 1))
    ended = run(*line(source, tiny, output, *SHARDS))
    assert ended.code == 2
    assert "The input has changed since the work began" in ended.err
    assert re.search(rf"remove \S+/{unfinished(output).name} first", ended.err)
    shutil.rmtree(unfinished(output))
    assert run(*line(source, tiny, output, *SHARDS)).code == 0


@pytest.mark.parametrize("damage", ["vectors", "record", "gone"])
def test_a_damaged_chunk_is_embedded_anew(run: Run, tiny: Path, source: Path, tmp_path: Path, damage: str) -> None:
    whole, output = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    assert run(*line(source, tiny, whole)).code == 0
    stopped(run, line(source, tiny, output), 5)
    part = unfinished(output) / ("000002.json" if damage == "record" else "000002.parquet")
    raw = bytearray(part.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    if damage == "record":
        raw = raw[:9]
    part.write_bytes(raw)
    if damage == "gone":
        part.unlink()
    ended = run(*line(source, tiny, output))
    assert ended.code == 0
    assert ended.err.count("Chunk 2 in") == 1
    assert "is computed again: it is damaged" in ended.err
    assert contents(output) == contents(whole)


def test_a_bad_line_keeps_what_was_done(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    assert run(*line(source, tiny, whole)).code == 0
    good = source.read_text()
    source.write_text(good.replace('{"n": "text 125"', '{"n": "text 125'))
    ended = run(*line(source, tiny, output))
    assert ended.code == 2
    assert "line 126" in ended.err
    assert "Finished work is kept in" in ended.err
    assert not output.exists()
    source.write_text(good)
    assert "Resumed" in run(*line(source, tiny, output)).err
    assert contents(output) == contents(whole)


def test_a_disk_that_fills_keeps_whole_chunks(run: Run, tiny: Path, source: Path, tmp_path: Path) -> None:
    disk, whole = tmp_path / "disk", tmp_path / "whole.parquet"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if made.returncode:
        pytest.skip("a disk can only be mounted by root")
    try:
        ended = run(*line(source, tiny, disk / "out.parquet"))
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert "the disk is full" in ended.err
        assert "Finished work is kept in" in ended.err
        assert [path.name for path in disk.iterdir()] == ["out.parquet.unfinished"]
        subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
        assert "Resumed" in run(*line(source, tiny, disk / "out.parquet")).err
        assert run(*line(source, tiny, whole)).code == 0
        assert contents(disk / "out.parquet") == contents(whole)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- killed -----------------------------------------------------------------------------------------------------------


MOMENTS = [
    pytest.param(seed, id=str(seed), marks=[pytest.mark.slow] if seed not in (0, 2) else []) for seed in range(30)
]
"""By default one of a single file and one of shards."""


@pytest.mark.parametrize("seed", MOMENTS)
def test_killed_at_any_moment(run: Run, tiny: Path, source: Path, tmp_path: Path, seed: int) -> None:
    """Killed twice: with some chunks done and some to come, and then at any moment up to the end."""
    name, more = [("out.parquet", ()), ("out.npz", ()), ("out", SHARDS)][seed % 3]
    whole, output = tmp_path / f"whole-{name}", tmp_path / name
    assert run(*line(source, tiny, whole, *more)).code == 0
    draw = random.Random(seed)
    command = line(source, tiny, output, *more)
    die(command, draw.randint(3, N_CHUNKS - 3))
    assert not output.exists()
    assert unfinished(output).is_dir()
    kill(command, output, draw.randint(n_kept(output), N_CHUNKS), draw.uniform(0, 0.3))
    ended = run(*command)
    assert ended.code == 0 or "already there" in ended.err
    assert contents(output) == contents(whole)
    assert {path.name for path in tmp_path.iterdir()} == {source.name, whole.name, output.name}


def die(command: list[str], after: int) -> None:
    """Let a process kill itself after so many calls for a chunk, however fast the machine is."""
    done = run_forked(SLOWLY, *command, env={**os.environ, "DIE_AFTER": str(after)})
    assert done.returncode == -signal.SIGKILL, done.stderr


def kill(command: list[str], output: Path, n_chunks: int, seconds: float) -> None:
    """Kill a process so many seconds after so many chunks are there; it may have ended by then, but only well."""
    with Forked(SLOWLY, *command, stderr=PIPE) as victim:
        while victim.poll() is None and not (unfinished(output).is_dir() and n_kept(output) >= n_chunks):
            time.sleep(0.001)
        time.sleep(seconds)
        victim.kill()
        assert victim.wait() in (0, -signal.SIGKILL), victim.stderr and victim.stderr.read().decode()


def n_kept(output: Path) -> int:
    return len(list(unfinished(output).glob("[0-9]*.json")))


# --- scores -----------------------------------------------------------------------------------------------------------


SCORING = f"""
import time
from polyseme.cli import main
from polyseme.files import chunks
from polyseme.scoring.scorer import Scorer

score = Scorer.__call__

def slowly(*given, **named):
    time.sleep(0.05)
    return score(*given, **named)

chunks.CHUNK_CHARACTERS = {CHUNK}
Scorer.__call__ = slowly
main()
"""
"""`score` with small chunks, each of which takes a while."""


@pytest.mark.parametrize(
    "name", ["out.parquet", *(pytest.param(f"out.{each}", marks=pytest.mark.slow) for each in ("tsv", "jsonl", "html"))]
)
def test_killed_scoring_ends_as_if_it_had_not(run: Run, tiny: Path, source: Path, tmp_path: Path, name: str) -> None:
    read = ["--field", "text", "--id-field", "n", "--fields", "stars"]

    def command(output: Path) -> list[str]:
        return ["score", str(source), *read, "-m", str(tiny), "-o", str(output), "--device", "cpu"]

    whole, output = tmp_path / "whole" / name, tmp_path / name
    ended = run(*command(whole))
    assert ended.code == 0
    with Forked(SCORING, *command(output), stderr=PIPE) as process:
        while len(list(tmp_path.glob(f"{name}.unfinished/[0-9]*.json"))) < 3:
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            time.sleep(0.01)
        process.kill()
    assert not output.exists()
    resumed = run(*command(output))
    assert resumed.code == 0
    assert "note: Resumed: an earlier run had done" in resumed.err
    assert output.read_bytes() == whole.read_bytes()
    assert not unfinished(output).exists()

    def totals(said: str) -> list[str]:
        return [line for line in said.splitlines() if "perplexity" in line or "log prob" in line]

    assert totals(resumed.out) == totals(ended.out)
