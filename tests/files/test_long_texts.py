"""One line, or one text, is never longer in memory than is allowed: a small compressed file may hold any length."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.lines import lines_of
from polyseme.files.rows import read_rows
from polyseme.files.source import LONGEST, open_source

LINE = b"many words " * 30
LIMIT = 100


def _zst(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)  # type: ignore[no-any-return]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": _zst,
}
LONG_LINES = {
    "t.txt": b"short\n" + LINE + b"\nshort again\n",
    "t.jsonl": b'{"text": "short"}\n{"text": "' + LINE + b'"}\n{"text": "short again"}\n',
    "t.csv": b"text\nshort\n" + LINE + b"\nshort again\n",
    "t.tsv": b"text\tn\nshort\t1\n" + LINE + b"\t2\nshort again\t3\n",
    "t.conll": b"short O\n\n" + LINE.replace(b" ", b"") + b" O\n\nshort O\n",
}


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("name", LONG_LINES)
def test_a_line_that_is_too_long_is_refused_with_its_place(tmp_path: Path, name: str, ending: str) -> None:
    path = tmp_path / f"{name}{ending}"
    path.write_bytes(PACKED[ending](LONG_LINES[name]))
    field: dict[str, Any] = {"field": "text"} if name == "t.tsv" else {}
    expected = r"line \d: the line is longer than 100 bytes.*--max-text-bytes \(max_text_bytes=…\)"
    with pytest.raises(InputError, match=expected), read_rows(path, max_text_bytes=LIMIT, **field) as rows:
        list(rows)
    for limit in (1000, 10**20):  # more than a number of bytes can be
        with read_rows(path, max_text_bytes=limit, **field) as rows:
            assert len(list(rows)) == 3


def test_where_bad_rows_are_skipped_so_is_a_long_line_and_places_stay_right(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(LONG_LINES["t.txt"] + b"\xff\n")
    with pytest.warns(PolysemeWarning) as warned, read_rows(path, max_text_bytes=LIMIT, on_error="skip") as rows:
        assert [(row.content, row.id) for row in rows] == [("short", "1"), ("short again", "3")]
    said = [str(each.message) for each in warned]
    assert "line 2: the line is longer" in said[0]
    assert f"byte {len(LONG_LINES['t.txt'])} of the text" in said[1], "what was skipped is counted"


def test_a_line_of_just_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"a" * LIMIT + b"\n" + b"b" * LIMIT)
    with read_rows(path, max_text_bytes=LIMIT) as rows:
        assert [len(row.content) for row in rows] == [LIMIT, LIMIT]


@pytest.mark.parametrize(
    ("name", "content", "split"),
    [
        ("t.txt", b"a line\n" * 30, "document"),
        ("t.txt", b"a line\n" * 30, "paragraph"),
        ("t.csv", b'text\n"' + b"a line\n" * 30 + b'"\n', "line"),
        ("t.conll", b"word O\n" * 30, "line"),
        ("t.conllu", b"1\tword" + b"\t_" * 8 + b"\n" + b"2\tword" + b"\t_" * 80, "line"),
    ],
)
def test_a_text_of_several_lines_that_is_too_long_is_refused(
    tmp_path: Path, name: str, content: bytes, split: Any
) -> None:
    (tmp_path / name).write_bytes(content)
    reading: Any = {"split": split} if split != "line" else {}
    expected = "max_text_bytes=…"
    with pytest.raises(InputError, match=expected), read_rows(tmp_path / name, max_text_bytes=LIMIT, **reading) as rows:
        list(rows)


def test_memory_ends_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "bomb.txt.zst"
    path.write_bytes(_zst(b"a" * 100_000_000))
    assert path.stat().st_size < 50_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="longer than"):
            list(lines_of(open_source(path), longest=1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        assert LONGEST < 100_000_000
        with pytest.raises(InputError, match="longer than"), read_rows(path) as rows:
            list(rows)
    finally:
        tracemalloc.stop()


def test_a_limit_is_a_number_of_bytes_and_has_no_use_for_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\n")
    with pytest.raises(OptionError, match="at least 1"):
        read_rows(tmp_path / "t.txt", max_text_bytes=0)
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "t.parquet")
    with pytest.raises(OptionError, match="'max_text_bytes' is for"):
        read_rows(tmp_path / "t.parquet", max_text_bytes=7)
