"""A build that was stopped is gone on with, and ends as if it had never stopped."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.test_build import contents
from corpus.texts import made_up
from polyseme.corpus import build, tokenizer_choice
from polyseme.corpus import document_reader as documents
from polyseme.corpus.corpus import Corpus
from polyseme.errors import InputError, OutputError, PolysemeWarning
from polyseme.verbs.corpus import build_corpus

SETTINGS: dict[str, Any] = {"tokenizer": "byte-bpe", "vocab_size": 300, "held_out": 0.1}
PROGRAM = """
import os, pathlib, signal, sys, time
from polyseme.corpus import document_reader as documents
from polyseme.verbs.corpus import build_corpus
documents.STRETCH = 2000
text, output, workers, wait, die_at = sys.argv[1:]
journal = pathlib.Path(f"{output}.unfinished", "journal.jsonl")

def progress(done, total):
    if journal.is_file() and journal.read_bytes().count(b"\\n") >= int(die_at):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(wait))

build_corpus(
    text, output=output, workers=int(workers), progress=progress, tokenizer="byte-bpe", vocab_size=300, held_out=0.1
)
"""
"""A build that kills itself once so many lines of its journal are there, however fast the machine is."""
NEVER = 10**9


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "STRETCH", 2000)


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted build makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "STRETCH", 2000)
        return contents(build_corpus(text, output=tmp_path_factory.mktemp("whole") / "c", **SETTINGS).folder)


def start(text: Path, output: Path, *, workers: int, wait: float = 0.0, die_at: int = NEVER) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-c", PROGRAM, str(text), str(output), str(workers), str(wait), str(die_at)]
    return subprocess.Popen(line, stderr=subprocess.PIPE)


def n_lines(output: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return output.with_name(f"{output.name}.unfinished").joinpath("journal.jsonl").read_bytes().count(b"\n")
    return 0


@pytest.mark.parametrize(("workers", "n"), [(1, 1), (1, 12), (2, 5)])
def test_killed_outright_and_gone_on_with(
    workers: int, n: int, text: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
):
    output = tmp_path / "c"
    with start(text, output, workers=workers, die_at=n) as process:
        assert process.wait() == -signal.SIGKILL, process.stderr and process.stderr.read().decode()
    assert not output.exists()
    monkeypatch.setattr(tokenizer_choice, "train_tokenizer", None)  # there already
    n_done = n_lines(output)
    work = build.Work.__call__
    done: list[int] = []

    def counted(self: build.Work, texts: list[bytes]) -> Any:
        done.append(1)
        return work(self, texts)

    monkeypatch.setattr(build.Work, "__call__", counted)
    corpus = build_corpus(text, output=output, **SETTINGS, workers=1)
    assert contents(corpus.folder) == whole
    [source] = documents.text_sources(text, documents=None, field=None, format=None)
    assert n <= n_done < n_done + len(done) == len(list(source.stretches()))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.slow
def test_killed_at_random_moments(text: Path, tmp_path: Path, whole: dict[str, bytes]):
    chance = np.random.default_rng(3)
    n_killed = 0
    turn = -1
    while n_killed < 15:
        turn += 1
        output = tmp_path / f"{turn}"
        for attempt in range(50):
            process = start(text, output, workers=1 + turn % 2, wait=0.03)
            try:
                process.wait(timeout=(0.3 + 1.2 * chance.random()) * 1.1**attempt)  # later and later: machines differ
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                n_killed += 1
            assert process.stderr is not None
            said = process.stderr.read().decode()
            process.stderr.close()
            if process.returncode == 0 or output.exists():
                break
            assert process.returncode == -signal.SIGKILL, said
        assert contents(output) == whole


class Stop(Exception):  # noqa: N818
    """The work is interrupted."""


def stopped_after(n: int, text: Path, output: Path, **settings: Any) -> Path:
    """An unfinished corpus."""
    told: list[int] = []

    def stop(done: int, total: int | None) -> None:
        told.append(done)
        if len(told) == n:
            raise Stop

    with pytest.raises(Stop) as caught:
        build_corpus(text, output=output, **{**SETTINGS, **settings}, workers=1, progress=stop)
    assert "the same command resumes it" in caught.value.__notes__[0]
    return output.with_name(f"{output.name}.unfinished")


def test_other_settings_are_refused_by_name_unless_forced(text: Path, tmp_path: Path, whole: dict[str, bytes]):
    output = tmp_path / "c"
    stopped_after(3, text, output, seed=4, vocab_size=290)
    with pytest.raises(OutputError, match="seed was 4 and is 0; vocab_size was 290 and is 300") as caught:
        build_corpus(text, output=output, **SETTINGS)
    assert "--force" in str(caught.value)
    assert contents(build_corpus(text, output=output, **SETTINGS, force=True).folder) == whole


def test_a_finished_corpus_is_not_replaced_unless_forced(text: Path, tmp_path: Path, whole: dict[str, bytes]):
    output = tmp_path / "c"
    build_corpus(text, output=output, **{**SETTINGS, "vocab_size": 290})
    with pytest.raises(OutputError, match="already there"):
        build_corpus(text, output=output, **SETTINGS)
    with pytest.raises(OutputError, match="already there"):
        build_corpus(text, output=output, **SETTINGS, reuse=True)
    assert contents(build_corpus(text, output=output, **SETTINGS, force=True).folder) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_what_was_written_after_the_last_whole_stretch_is_cut_off(text: Path, tmp_path: Path, whole: dict[str, bytes]):
    output = tmp_path / "c"
    folder = stopped_after(5, text, output)
    for path in folder.rglob("text.*"):
        with path.open("ab") as file:
            file.write(b"half")
    with (folder / "journal.jsonl").open("ab") as file:
        file.write(b'{"input": "ab')
    assert contents(build_corpus(text, output=output, **SETTINGS).folder) == whole


def test_damage_is_found_and_said(text: Path, tmp_path: Path, whole: dict[str, bytes]):
    output = tmp_path / "c"
    folder = stopped_after(5, text, output)
    path = folder / "corpus" / "shards" / "text" / "text.train.pieces"
    altered = bytearray(path.read_bytes())
    altered[7] ^= 1
    path.write_bytes(altered)
    with pytest.warns(PolysemeWarning, match="damaged"):
        corpus = build_corpus(text, output=output, **SETTINGS)
    assert contents(corpus.folder) == whole


def test_a_changed_input_is_done_again_from_there(tmp_path: Path, corpus: Corpus):
    texts = made_up(60, seed=21)
    source, output = tmp_path / "in.txt", tmp_path / "c"
    settings = {"tokenizer": corpus.folder / "tokenizer"}
    source.write_text("\n\n".join(texts), encoding="utf-8")
    stopped_after(8, source, output, **settings, vocab_size=None)
    changed = "\n\n".join([*texts[:6], "Ren ren ren.", *texts[7:]])
    source.write_text(changed, encoding="utf-8")
    with pytest.warns(PolysemeWarning, match="input has changed"):
        made = build_corpus(source, output=output, **{**SETTINGS, **settings, "vocab_size": None})
    anew = build_corpus(source, output=tmp_path / "d", **{**SETTINGS, **settings, "vocab_size": None})
    assert made.fingerprint == anew.fingerprint


def test_two_at_once_are_kept_apart(text: Path, tmp_path: Path):
    output = tmp_path / "c"

    def meanwhile(done: int, total: int | None) -> None:
        with pytest.raises(OutputError, match="Another process"):
            build_corpus(text, output=output, **SETTINGS)
        raise Stop

    with pytest.raises(Stop):
        build_corpus(text, output=output, **SETTINGS, workers=1, progress=meanwhile)


def test_a_stop_before_anything_is_whole_leaves_nothing(tmp_path: Path):
    (tmp_path / "in.txt").write_bytes(b"Ren lo.\n\nMi \xff ka.")
    with pytest.raises(InputError, match="not UTF-8"):
        build_corpus(tmp_path / "in.txt", output=tmp_path / "c", **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_worker_that_fails_is_told_of(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("polyseme.corpus.worker_processes._START", "import sys; sys.exit(7)")
    with warnings.catch_warnings(), pytest.raises(Exception, match="exit code 7"):
        build_corpus(text, output=tmp_path / "c", **SETTINGS, workers=2)
