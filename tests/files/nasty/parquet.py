"""Parquet that is cut short or has no texts where texts should be."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from files.nasty.case import Group

group = Group("Parquet", "in.parquet")
gives, refuses = group.gives, group.refuses


def parquet(columns: Mapping[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


_TWO_GROUPS = parquet({"text": [f"{number:1000}" for number in range(2000)]}, row_group_size=1000, compression="none")
_BAD_UTF8 = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))

CASES = [
    refuses("cut short", _TWO_GROUPS[:-100], "no Parquet file, or was cut short"),
    refuses("garbage", b"not Parquet at all", "no Parquet file"),
    refuses("no bytes", b"", "is empty"),
    refuses("damaged within", _TWO_GROUPS[:4] + b"\xff" * 200 + _TWO_GROUPS[204:], "damaged in row group 1 of 2"),
    refuses("no rows", parquet({"text": pa.array([], pa.string())}), "no rows"),
    refuses("numbers", parquet({"n": [1]}), "type int64", field="n"),
    refuses("no such column", parquet({"txt": ["a"]}), "'txt'?", field="text"),
    refuses("which of two", parquet({"a": ["a"], "b": ["b"]}), "2 fields can be the text: a, b"),
    refuses("a null", parquet({"text": ["a", None]}), "null", "row 2"),
    refuses("a null word", parquet({"w": [["a"], ["b", None]]}), "item 2", "row 2"),
    refuses("lists of lists", parquet({"w": [[["a"]]]}), "type list", field="w"),
    refuses("bad UTF-8", parquet({"text": _BAD_UTF8}), "not UTF-8", "row 2"),
    refuses("packed", gzip.compress(_TWO_GROUPS), "read from its end", file="in.parquet.gz"),
    refuses("a struct", parquet({"a": [{"b": "c"}]}), "instance a.b", field="a"),
    gives("in a struct", parquet({"a": [{"b": "c"}]}), ["c"], field="a.b"),
    gives("lists of words", parquet({"w": [["a", "b"], []], "n": [1, 2]}), [["a", "b"], []]),
    gives("a dictionary", parquet({"t": pa.array(["a", "b", "a"]).dictionary_encode()}), ["a", "b", "a"]),
]
