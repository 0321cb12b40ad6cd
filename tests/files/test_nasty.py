"""Nasty inputs give exactly their rows, or one refusal in words: no other exception, no row lost, nothing left open."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.nasty import conll, jsonl, packed, parquet, system, tables, text, treebanks
from files.nasty.case import Case
from polyseme.errors import InputError, PolysemeWarning
from polyseme.files.readers import ENDINGS
from polyseme.files.rows import read_rows

CASES = [case for group in (system, text, packed, jsonl, tables, parquet, treebanks, conll) for case in group.CASES]


def made(case: Case, folder: Path) -> str | list[str]:
    path = folder / case.file
    if isinstance(case.content, bytes):
        path.write_bytes(case.content)
        return str(path)
    return case.content(folder) or str(path)


def open_files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_there_are_a_hundred() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_rows_or_one_refusal(tmp_path: Path, case: Case) -> None:
    sources = made(case, tmp_path)
    before = open_files()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if case.rows is not None:
            assert [row.content for row in read_rows(sources, **case.options)] == case.rows
        else:
            with pytest.raises(InputError) as caught:
                list(read_rows(sources, **case.options))
            message = str(caught.value)
            assert "\n" not in message
            assert case.file in message
            assert case.refused in message
            assert case.at is None or f"{case.at}:" in message or f"{case.at}." in message
            assert len(message) < 700
            del caught
    assert [warning.category for warning in said] == [PolysemeWarning] * (case.warned is not None)
    assert case.warned is None or case.warned in str(said[0].message)
    assert open_files() == before


STRUCTURE = [
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b",",
    b'"',
    b"#",
    b"1",
    b"2",
    b"1-2",
    b"_",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"null",
]
"""What formats are made of."""


@pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")
@given(
    parts=st.lists(
        st.one_of(st.sampled_from([*STRUCTURE, *STRUCTURE, b'{"text":', b"\t_" * 8]), st.binary(max_size=3))
    ),
    ending=st.sampled_from([*ENDINGS, ".txt.gz", ".txt.zst"]),
)
def test_whatever_the_bytes(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], ending: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    path.write_bytes(b"".join(parts))
    refusal = None
    rows = []
    try:
        rows = list(read_rows(path))
    except InputError as error:
        refusal = str(error)
    assert rows or (refusal and path.name in refusal and "\n" not in refusal)
