"""A disk that fills up, or may not be written to, while vectors are written: one clear paragraph and nothing left."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polyseme.errors import OutputError
from polyseme.files.atomic import check_output
from polyseme.files.vector_files import FORMATS, open_writer
from polyseme.types import EmbeddedDocument, Word

every_format = pytest.mark.parametrize("suffix", sorted(FORMATS))


def large(n_words: int = 3000) -> EmbeddedDocument:
    """Some 3 MB of vectors."""
    numbers = np.random.default_rng(0).standard_normal((n_words, 256)).astype(np.float32)
    starts = np.arange(n_words, dtype=np.int64) * 2
    words = [Word("a", int(start), int(start) + 1) for start in starts]
    return EmbeddedDocument(
        text="a " * n_words, words=words, id="1", offsets=np.stack([starts, starts + 1], axis=1), vectors=numbers
    )


def write_small_chunks(output: Path) -> None:
    with open_writer(output) as writer:
        for _ in range(100):
            writer.write([large(30)])


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, where the system lets us make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if made.returncode:
        pytest.skip("a disk can only be mounted by root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@every_format
def test_a_full_disk_is_explained_and_left_as_it_was(tiny_disk: Path, suffix: str) -> None:
    output = tiny_disk / f"out{suffix}"
    with pytest.raises(OutputError, match="the disk is full") as caught, open_writer(output) as writer:
        writer.write([large()])
    assert str(output) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(tiny_disk.iterdir())


@every_format
def test_a_disk_that_fills_up_late_is_explained_too(tiny_disk: Path, suffix: str) -> None:
    output = tiny_disk / f"out{suffix}"
    with pytest.raises(OutputError, match="the disk is full"):
        write_small_chunks(output)
    assert not any(tiny_disk.iterdir())


def test_a_read_only_disk_is_refused_before_any_work(tiny_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(OutputError, match="may not be written to"):
        check_output(tiny_disk / "out.parquet")


@every_format
def test_a_limit_on_the_size_of_files_is_explained(tmp_path: Path, suffix: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(OutputError, match="ulimit -f"), open_writer(tmp_path / f"out{suffix}") as writer:
            writer.write([large()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not any(tmp_path.iterdir())
