"""Users' files to rows: ids, places, and what is not taken for plain text."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyseme.errors import InputError
from polyseme.files.readers import STRUCTURED
from polyseme.files.rows import read_rows


@pytest.mark.parametrize("name", ["reviews.txt", "REVIEWS.TXT", "reviews", "reviews.log", "reviews.txt.gz"])
def test_plain_text_is_a_row_a_line(tmp_path: Path, name: str) -> None:
    raw = b"The food was good.\n\nNever again.\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    rows = read_rows(path)
    assert rows.total == path.stat().st_size
    found = list(rows)
    assert [row.content for row in found] == ["The food was good.", "", "Never again."]
    assert [row.id for row in found] == ["1", "2", "3"]
    assert str(found[2].place) == f"{path}, line 3"
    assert found[0].fields == {}


@pytest.mark.parametrize("suffix", STRUCTURED)
def test_structured_files_are_not_taken_for_plain_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"reviews{suffix}.gz"
    path.write_bytes(gzip.compress(b"text,label\n"))
    with pytest.raises(InputError, match=f"ending in {suffix} are not read.*standard input"):
        read_rows(path)


def test_a_binary_file_is_refused_before_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "reviews.txt"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(InputError, match="PNG"):
        read_rows(path)


def test_reading_text_loads_neither_numpy_nor_arrow() -> None:
    code = "import sys, polyseme.files.rows; print({'numpy', 'pyarrow', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_of_parquet_the_rows_at_hand_count_as_read(tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": [f"row {number}" for number in range(600)]}), file)
    with read_rows(file) as rows:
        done = [rows.done for _ in rows]
        total = file.stat().st_size
        assert rows.done == total
    assert done == [total * 256 // 600] * 256 + [total * 512 // 600] * 256 + [total] * 88
