"""Reading and writing take no more memory for a large file than for a small one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyseme.files.vector_files import FORMATS

READ = """
import resource, sys
from polyseme.files.lines import read_lines

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lines = read_lines(sys.argv[1])
next(lines)
before = peak()
print(sum(1 for line in lines), peak() - before)
"""

READ_ROWS = """
import resource, sys
from polyseme.files.rows import read_rows

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = read_rows(sys.argv[1])
for _ in range(1000):
    next(rows)
before = peak()
print(sum(1 for row in rows), peak() - before)
"""

WRITE = """
import resource, sys
import numpy as np
from polyseme.files.vector_files import open_writer, read_vectors
from polyseme.types import EmbeddedDocument, Word

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
words = [Word("a", 0, 1)] * 50
vectors = np.random.default_rng(0).standard_normal((50, 384)).astype(np.float32)
chunk = [EmbeddedDocument(text="a", words=words, offsets=np.zeros((50, 2), np.int64), vectors=vectors)] * 50
with open_writer(sys.argv[1]) as writer:
    for number in range(40):
        writer.write(chunk)
        if number == 5:
            before = peak()
print(sum(len(document.vectors) for document in read_vectors(sys.argv[1])), peak() - before)
"""


def run(code: str, path: Path) -> tuple[int, int]:
    """What the code counts, and by how many KiB its peak memory grew."""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    count, growth = map(int, done.stdout.split())
    return count, growth


def test_reading_200_megabytes_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    with path.open("wb") as file:
        for _ in range(200):
            file.write((b"x" * 999 + b"\n") * 1000)
    count, growth = run(READ, path)
    assert count == 199_999
    assert growth < 4_000


@pytest.mark.parametrize(
    ("suffix", "start", "row"),
    [
        (".jsonl", b"", b'{"text": "' + b"x" * 990 + b'"}\n'),
        (".csv", b"text\n", b'"' + b"x, " * 330 + b'"\n'),
        (".conll", b"", (b"word " + b"x" * 490 + b"\n") * 2 + b"\n"),
        (".txt.zst", b"", b"x" * 999 + b"\n"),
    ],
)
def test_reading_20_megabytes_of_rows(tmp_path: Path, suffix: str, start: bytes, row: bytes) -> None:
    path = tmp_path / f"in{suffix}"
    with pa.OSFile(str(path), "wb") as plain:
        file = pa.CompressedOutputStream(plain, "zstd") if suffix.endswith(".zst") else plain
        file.write(start)
        for _ in range(20):
            file.write(row * 1000)
        file.close()
    count, growth = run(READ_ROWS, path)
    assert count == 19_000
    assert growth < 4_000


def test_reading_120_megabytes_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    with pq.ParquetWriter(path, pa.schema({"text": pa.string()}), compression="none", use_dictionary=False) as writer:
        for group in range(12):
            writer.write_table(
                pa.table({"text": [f"{row:1000}" for row in range(group * 10_000, (group + 1) * 10_000)]})
            )
    count, growth = run(READ_ROWS, path)
    assert count == 119_000
    assert growth < 30_000


@pytest.mark.parametrize(
    "suffix",
    [pytest.param(each, marks=pytest.mark.slow if each in (".jsonl", ".npz") else ()) for each in sorted(FORMATS)],
)
def test_writing_and_reading_150_megabytes_of_vectors(tmp_path: Path, suffix: str) -> None:
    count, growth = run(WRITE, tmp_path / f"out{suffix}")
    assert count == 100_000
    assert growth < 60_000
